"""What looks at image files told: a fixed number of bytes an image, in columns; parts of a set are merged.

Parts are merged in any order and grouping, and an image that two parts contain counts once. A part is stored as a
Parquet file, whose metadata state the version of this layout and a digest of the settings.

Shapes: I images, K images that were decoded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute  # `pa.compute` is there only once something has imported it
import pyarrow.parquet
from PIL import Image

from coord_codec import InputError
from coord_data.looking.hashes import FIELDS

VERSION = "1"
"""To be increased with every change of the columns, or of how they are computed."""

_HELD_BYTES = 1 << 26
"""Bytes of grey values above which they lie in a temporary file, of which only the values that are read are mapped."""

_TOGETHER = 64
"""Number of parts whose rows are joined at a time: the many small columns of parts take several times their bytes."""

_SCHEMA = pa.schema(
    {
        "row": pa.int64(),  # position of the image in the list of all images
        "width": pa.int32(),  # after EXIF rotation; null if the image cannot be used
        "height": pa.int32(),
        "stored_width": pa.int32(),
        "stored_height": pa.int32(),
        "orientation": pa.uint8(),
        "fault": pa.string(),
        "notes": pa.list_(pa.string()),
        "digest": pa.binary(32),
        "hash": pa.uint64(),
        "bytes": pa.int64(),
        "modified": pa.int64(),  # nanoseconds
        "low": pa.float64(),  # least and largest value of an image of more than 8 bits
        "high": pa.float64(),
    }
)
_PIXELS = pa.schema(
    {"grey": pa.binary(FIELDS * FIELDS), "thumbnail": pa.binary(), "across": pa.int32(), "down": pa.int32()}
)


@dataclass(frozen=True)
class ImageFile:
    """What a look at an image file told.

    Attributes:
        size: width and height in pixels after EXIF rotation; None if the file was not read or cannot be decoded
        fault: why the file cannot be used
        orientation: EXIF orientation, 1 for an image that is stored upright
        stored_size: width and height before EXIF rotation
        notes: what decoding changes, see `coord_codec.images.ImageFacts`
        digest: SHA-256 of the file; empty if only its header was read
        look: perceptual hash, which hardly changes when an image is resized or compressed again
        grey: mean grey values of a coarse grid, which distinguish copies from images that only look alike
        small: thumbnail for the comparison with boxes, if requested
        stamp: bytes of the file, and the time of its last change in nanoseconds
        value_range: least and largest value of an image of more than 8 bits
    """

    size: tuple[int, int] | None
    fault: str | None = None
    orientation: int = 1
    stored_size: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    digest: str = ""
    look: int | None = None
    grey: np.ndarray | None = field(default=None, repr=False)
    small: Image.Image | None = field(default=None, repr=False)
    stamp: tuple[int, int] = (-1, -1)
    value_range: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Looks(Sequence[ImageFile]):
    """What looks at several images told.

    Attributes:
        table: a row for each image; `slot` is the index of its grey values, -1 for an image that was not decoded
        grey_K: grey values of the decoded images, [K, FIELDS * FIELDS]
        thumbnails: pixels [height, width, 3] of the images that are compared with their boxes, by row
    """

    table: pa.Table
    grey_K: np.ndarray
    thumbnails: Mapping[int, np.ndarray]

    @classmethod
    def of(cls, files: Iterable[tuple[int, ImageFile]]) -> Looks:
        """Return what looks at single files told, each with its position in the list of all images."""
        columns: dict[str, list[Any]] = {name: [] for name in (*_SCHEMA.names, "slot")}
        greys, thumbnails = list[np.ndarray](), dict[int, np.ndarray]()
        for row, file in files:
            size, stored = file.size or (None, None), file.stored_size or (None, None)
            low, high = file.value_range or (None, None)
            slot = -1 if file.grey is None else len(greys)
            digest = bytes.fromhex(file.digest) or None
            values = (row, *size, *stored, file.orientation, file.fault, file.notes or None, digest, file.look)
            for column, value in zip(columns.values(), (*values, *file.stamp, low, high, slot), strict=True):
                column.append(value)
            if file.grey is not None:
                greys.append(file.grey.reshape(-1))
            if file.small is not None:
                thumbnails[row] = np.asarray(file.small)
        arrays = [pa.array(columns[column.name], column.type) for column in _SCHEMA]
        table = pa.table([*arrays, pa.array(columns["slot"], pa.int64())], names=[*_SCHEMA.names, "slot"])
        grey_K = np.stack(greys) if greys else np.zeros((0, FIELDS * FIELDS), np.uint8)
        return cls(table, grey_K, thumbnails)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, index: int) -> ImageFile: ...
    @overload
    def __getitem__(self, index: slice) -> Looks: ...
    def __getitem__(self, index: int | slice) -> ImageFile | Looks:
        """Return what the look at an image told, or those of a slice."""
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        position = range(len(self))[index]
        values = self.table.slice(position, 1).to_pylist()[0]
        is_sized = values["width"] is not None
        pixels = self.thumbnails.get(values["row"])
        return ImageFile(
            (values["width"], values["height"]) if is_sized else None,
            values["fault"],
            values["orientation"],
            (values["stored_width"], values["stored_height"]) if is_sized else None,
            tuple(values["notes"] or ()),
            (values["digest"] or b"").hex(),
            values["hash"],
            None if values["slot"] < 0 else self.grey_K[values["slot"]].reshape(FIELDS, FIELDS),
            None if pixels is None else Image.fromarray(pixels),
            (values["bytes"], values["modified"]),
            None if values["low"] is None else (values["low"], values["high"]),
        )

    def take(self, positions_n: np.ndarray) -> Looks:
        """Return the looks at some positions, of which one may occur several times."""
        return replace(self, table=self.table.take(pa.array(positions_n, pa.int64())))

    def numbered(self, row_I: np.ndarray) -> Looks:
        """Return the looks with other positions in the list of all images."""
        new = dict(zip(self._numbers("row").tolist(), row_I.tolist(), strict=True))
        thumbnails = {new[row]: pixels for row, pixels in self.thumbnails.items() if row in new}
        return replace(self, table=self.table.set_column(0, "row", pa.array(row_I)), thumbnails=thumbnails)

    def _numbers(self, name: str, unknown: int = 0) -> np.ndarray:
        values: np.ndarray = self.table[name].fill_null(unknown).to_numpy()
        return values

    @cached_property
    def sizes(self) -> np.ndarray:
        """Width and height of each image in pixels; 0 if unknown."""
        return np.stack([self._numbers("width"), self._numbers("height")], axis=1)

    @cached_property
    def orientations(self) -> np.ndarray:
        """EXIF orientation of each image."""
        return self._numbers("orientation", 1)

    @cached_property
    def hashes(self) -> np.ndarray:
        """Perceptual hash of each image; 0 for one that was not decoded."""
        return self._numbers("hash")

    @cached_property
    def slots(self) -> np.ndarray:
        """Index of the grey values of each image; -1 for one that was not decoded."""
        return self._numbers("slot")

    @cached_property
    def digests(self) -> np.ndarray:
        """SHA-256 of each file as four numbers; 0 for an image that was not decoded."""
        column = self.table["digest"].fill_null(bytes(32)).combine_chunks()
        return np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 4)[column.offset :][: len(column)]

    @cached_property
    def stamps(self) -> np.ndarray:
        """Bytes of each file, and the time of its last change in nanoseconds."""
        return np.stack([self._numbers("bytes"), self._numbers("modified")], axis=1)

    @cached_property
    def ranges(self) -> np.ndarray:
        """Least and largest value of each image of more than 8 bits; NaN for any other."""
        return np.stack([self.table[name].fill_null(np.nan).to_numpy() for name in ("low", "high")], axis=1)

    @cached_property
    def faults(self) -> dict[int, str]:
        """Why images cannot be used, by position."""
        known = np.flatnonzero(self.table["fault"].is_valid().to_numpy())
        return dict(zip(known.tolist(), self.table["fault"].take(pa.array(known)).to_pylist(), strict=True))

    @property
    def compared(self) -> list[int]:
        """Positions of the images whose thumbnails are kept."""
        is_kept = np.isin(self._numbers("row"), list(self.thumbnails))
        return [int(i) for i in np.flatnonzero(is_kept)]

    def thumbnail(self, position: int) -> Image.Image | None:
        """Return the thumbnail of an image, if it is kept."""
        pixels = self.thumbnails.get(self.table["row"][position].as_py())
        return None if pixels is None else Image.fromarray(pixels)

    def write(self, path: Path, settings: str) -> None:
        """Write a Parquet file with a digest of the settings, which appears complete or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        slots, rows = self.slots.tolist(), self._numbers("row").tolist()
        pixels = [self.thumbnails.get(row) for row in rows]
        shapes = [(None, None) if p is None else (p.shape[1], p.shape[0]) for p in pixels]
        added = (
            [None if slot < 0 else self.grey_K[slot].tobytes() for slot in slots],
            [None if p is None else p.tobytes() for p in pixels],
            *([shape[axis] for shape in shapes] for axis in (0, 1)),
        )
        table = self.table.select(_SCHEMA.names)
        for column, values in zip(_PIXELS, added, strict=True):
            table = table.append_column(column, pa.array(values, column.type))
        table = table.replace_schema_metadata({"coord_data.looks": VERSION, "coord_data.settings": settings})
        partial = path.with_name(f".{path.name}.tmp")
        try:
            pa.parquet.write_table(table, partial, compression="none", use_dictionary=False)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path, settings: str) -> Looks:
        """Read a file by `write`.

        Raises:
            InputError: it has another version, or was written with other settings.
            OSError: it cannot be read.
            ValueError: it is no such file.
        """
        with pa.parquet.ParquetFile(path) as file:
            stated = file.schema_arrow.metadata or {}
            found = [stated.get(key, b"").decode() for key in (b"coord_data.looks", b"coord_data.settings")]
            if found[0] != VERSION:
                raise InputError(f"{path}: expected a part of version {VERSION}, found version {found[0] or 'none'}")
            if found[1] != settings:
                raise InputError(f"{path}: it was made with other settings or for other images")
            table = file.read()
        rows, is_decoded = table["row"].to_pylist(), table["grey"].is_valid().to_numpy()
        grey_K = np.frombuffer(b"".join(table["grey"].drop_null().to_pylist()), np.uint8).reshape(-1, FIELDS * FIELDS)
        pixels = (table[name].to_pylist() for name in ("thumbnail", "across", "down"))
        thumbnails = {
            row: np.frombuffer(content, np.uint8).reshape(height, width, 3)
            for row, content, width, height in zip(rows, *pixels, strict=True)
            if content is not None
        }
        slot_I = np.where(is_decoded, np.cumsum(is_decoded) - 1, -1)
        light = table.select(_SCHEMA.names).cast(_SCHEMA).replace_schema_metadata(None)
        return cls(light.append_column("slot", pa.array(slot_I, pa.int64())), grey_K, thumbnails)


def merge(parts: Iterable[Looks]) -> Looks:
    """Return parts as one, in the order of the list of all images; the order and grouping of the parts is irrelevant.

    Raises:
        OSError: the grey values cannot be written.
    """
    thumbnails, grey = dict[int, np.ndarray](), _Grey()
    tables, whole = list[pa.Table](), [Looks.of(()).table]
    for part in parts:
        slot_I = np.where(part.slots < 0, -1, part.slots + len(grey))
        at = part.table.schema.get_field_index("slot")
        tables.append(part.table.set_column(at, "slot", pa.array(slot_I, pa.int64())))
        thumbnails |= part.thumbnails
        grey.append(part.grey_K)
        if len(tables) == _TOGETHER:
            whole.append(pa.concat_tables(tables).combine_chunks())
            tables.clear()
    table = pa.concat_tables([*whole, *tables]).combine_chunks()
    del whole, tables
    pa.default_memory_pool().release_unused()
    row_I = table["row"].to_numpy()
    _, first_I = np.unique(row_I, return_index=True)
    if len(first_I) < len(row_I) or (np.diff(row_I) < 0).any():
        table = table.take(pa.array(first_I))
    return Looks(table, grey.values(), thumbnails)


class _Grey:
    """Grey values that are gathered in memory, and in a temporary file once they are many."""

    def __init__(self) -> None:
        self._count = 0
        self._held: list[np.ndarray] = []
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    def append(self, grey_K: np.ndarray) -> None:
        self._held.append(grey_K)
        self._count += len(grey_K)
        if self._file is not None or self._count * FIELDS * FIELDS > _HELD_BYTES:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - kept while it is mapped
            for values in self._held:
                self._file.write(values.tobytes())
            self._held.clear()

    def values(self) -> np.ndarray:
        if self._file is None:
            return np.concatenate([np.zeros((0, FIELDS * FIELDS), np.uint8), *self._held])
        self._file.flush()
        return np.memmap(self._file, np.uint8, "r", shape=(self._count, FIELDS * FIELDS))
