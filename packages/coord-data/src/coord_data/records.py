"""Stores many records in an Arrow file that ranks and workers map into memory and decode one record at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from os.path import normpath
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute  # `pa.compute` is there only once something has imported it

from coord_codec import Instance, Object
from coord_codec.files import atomic_write
from coord_codec.geometry import read_shape
from coord_codec.records import phrase_of

_BATCH = 4096
_SCHEMA = pa.schema(
    {
        "image": pa.string(),
        "width": pa.int32(),
        "height": pa.int32(),
        "image_id": pa.string(),  # JSON, since a number and its text are different ids
        "desc": pa.list_(pa.string()),
        "bbox": pa.list_(pa.float64()),
        "crowd": pa.list_(pa.bool_()),
        "area": pa.list_(pa.float64()),
        "extra": pa.string(),  # JSON: further keys of the record and of its objects
    }
)
_MARKUP_BYTES = 160
"""Upper bound of the bytes that markers and coordinates of an object add to its description in a target text."""


class Row(NamedTuple):
    """A record as stored in the file.

    Attributes:
        image: path of the image
        width: in pixels, None if unknown
        height: in pixels, None if unknown
        image_id: id in the data set
        desc: descriptions of the objects
        bbox: corners of the objects, four numbers each
        crowd: whether each object is a crowd region
        area: stated areas in square pixels
        extra: further keys of the record and of each object; None if there are none
    """

    image: str
    width: int | None
    height: int | None
    image_id: int | str | None
    desc: list[str]
    bbox: list[float]
    crowd: list[bool]
    area: list[float | None]
    extra: tuple[dict[str, Any], list[dict[str, Any]]] | None = None

    def of_objects(self, kept: Sequence[int]) -> Row:
        """Return the record with only the objects at the indices `kept`."""
        return self._replace(
            desc=[self.desc[n] for n in kept],
            bbox=[side for n in kept for side in self.bbox[4 * n : 4 * n + 4]],
            crowd=[self.crowd[n] for n in kept],
            area=[self.area[n] for n in kept],
            extra=self.extra and (self.extra[0], [self.extra[1][n] for n in kept]),
        )


def write_records(path: Path, rows: Iterable[Row]) -> None:
    """Write an Arrow file atomically, one batch in memory at a time."""
    with atomic_write(path, "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        for batch in _batches(rows):
            writer.write_batch(batch)


def _batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    iterator = iter(rows)
    while batch := list(islice(iterator, _BATCH)):
        columns = dict(zip(Row._fields, zip(*batch, strict=True), strict=True))
        for name in ("image_id", "extra"):
            columns[name] = tuple(None if value is None else json.dumps(value, default=str) for value in columns[name])
        arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
        yield pa.record_batch(arrays, schema=_SCHEMA)


def row_of(instance: Instance) -> Row:
    """Convert an instance to a row."""
    objects = [dict(target.__pydantic_extra__ or {}) for target in instance.objects]
    for values, target in zip(objects, instance.objects, strict=True):
        if target.geometry is not None:
            values["geometry"] = target.geometry.to_json()
    extra = dict(instance.__pydantic_extra__ or {})
    return Row(
        instance.image,
        instance.width,
        instance.height,
        instance.image_id,
        [target.desc for target in instance.objects],
        [side for target in instance.objects for side in target.bbox],
        [target.iscrowd for target in instance.objects],
        [target.area for target in instance.objects],
        (extra, objects) if extra or any(objects) else None,
    )


class Records(Sequence[Instance]):
    """Records in an Arrow table, of which questions about all records are answered without decoding any.

    Args:
        table: the table
        path: the file by `write_records` that it is mapped from, which a pickled copy maps as well; None if it is held
            in memory
    """

    def __init__(self, table: pa.Table, path: Path | None = None) -> None:
        self._table, self.path = table, path

    @classmethod
    def open(cls, path: Path) -> Records:
        """Map a file by `write_records` into memory."""
        return cls(pa.ipc.open_file(pa.memory_map(str(path))).read_all(), path)

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Records:
        """Return rows as a table in memory."""
        return cls(pa.Table.from_batches(_batches(rows), _SCHEMA))

    @classmethod
    def of(cls, instances: Sequence[Instance]) -> Records:
        """Return instances as a table; what is one already is returned as it is."""
        if isinstance(instances, Records):
            return instances
        return cls.of_rows(map(row_of, instances))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Records, (self._table,)) if self.path is None else (Records.open, (self.path,))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Instance: ...
    @overload
    def __getitem__(self, index: slice) -> list[Instance]: ...
    def __getitem__(self, index: int | slice) -> Instance | list[Instance]:
        """Return one record, or a list of records for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return _instance(self._table.slice(position, 1).to_pylist()[0])

    def __iter__(self) -> Iterator[Instance]:
        for batch in self._table.to_batches(_BATCH):
            yield from map(_instance, batch.to_pylist())

    @property
    def names(self) -> list[str]:
        """The paths of the images."""
        return list(self._table["image"].to_pylist())

    @property
    def repeated(self) -> list[str]:
        """The paths of images with several records, not counting records with a phrase."""
        maybe_phrased = pa.compute.match_substring(self._table["extra"], '"query":').fill_null(False)
        phrased = {i for i in np.flatnonzero(maybe_phrased.to_numpy()).tolist() if phrase_of(self[i]) is not None}
        counts = Counter(normpath(name) for i, name in enumerate(self.names) if i not in phrased)
        return [name for name, count in counts.items() if count > 1]

    @cached_property
    def image_sizes(self) -> np.ndarray:
        """Width and height of each image in pixels; 0 if unknown."""
        return np.stack([self._table[side].fill_null(0).to_numpy() for side in ("width", "height")], axis=1)

    @cached_property
    def target_counts(self) -> np.ndarray:
        """Number of training targets of each image."""
        return self._sum_by_record("crowd", lambda crowd: 1 - crowd.to_numpy(zero_copy_only=False).astype(np.int64))

    @property
    def object_count(self) -> int:
        """Number of objects, crowd regions among them."""
        return len(self._flat("crowd"))

    @property
    def words(self) -> frozenset[str]:
        """The distinct descriptions of the targets."""
        return frozenset(self._flat("desc").filter(pa.compute.invert(self._flat("crowd"))).unique().to_pylist())

    @property
    def boxes(self) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
        """The index of the image, the four corners and the description of each target."""
        image_N = np.repeat(np.arange(len(self)), pa.compute.list_value_length(self._table["crowd"]).to_numpy())
        is_target = pa.compute.invert(self._flat("crowd"))
        target_N = is_target.to_numpy()
        corners_N4 = self._flat("bbox").to_numpy().reshape(-1, 4)
        return image_N[target_N], corners_N4[target_N], tuple(self._flat("desc").filter(is_target).to_pylist())

    def _flat(self, name: str) -> pa.ChunkedArray:
        values = [chunk.flatten() for chunk in self._table[name].chunks]
        return pa.chunked_array(values, _SCHEMA.field(name).type.value_type)

    @cached_property
    def text_bounds(self) -> np.ndarray:
        """Upper bound of the target text of each image in bytes."""

        def of_objects(desc: pa.Array) -> np.ndarray:
            lengths: np.ndarray = pa.compute.binary_length(desc).to_numpy(zero_copy_only=False).astype(np.int64)
            return lengths + _MARKUP_BYTES

        return self._sum_by_record("desc", of_objects) + 2

    def _sum_by_record(self, column: str, of_objects: Any) -> np.ndarray:
        parts = []
        for chunk in self._table[column].chunks:
            ends = np.concatenate([[0], np.cumsum(of_objects(chunk.flatten()))])
            offsets = chunk.offsets.to_numpy()
            parts.append(np.diff(ends[offsets - offsets[0]]))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _instance(values: dict[str, Any]) -> Instance:
    """Return the instance of a row as the file holds it."""
    extra, extras = json.loads(values["extra"]) if values["extra"] else ({}, None)
    objects = []
    for i, (desc, crowd, area) in enumerate(zip(values["desc"], values["crowd"], values["area"], strict=True)):
        stated: dict[str, Any] = {"desc": desc, "bbox": tuple(values["bbox"][4 * i : 4 * i + 4])}
        if crowd:
            stated["iscrowd"] = True
        if area is not None:
            stated["area"] = area
        if extras:
            stated |= extras[i]
        if "geometry" in stated:
            stated["geometry"] = read_shape(stated["geometry"])
        objects.append(Object.model_construct(**stated))
    known = {key: values[key] for key in ("width", "height") if values[key] is not None}
    if values["image_id"] is not None:
        known["image_id"] = json.loads(values["image_id"])
    return Instance.model_construct(image=values["image"], **known, **extra, objects=tuple(objects))
