"""Many records in an Arrow file: mapped into memory, shared between ranks and workers, decoded one at a time."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa

from coord_codec import Instance, Object
from coord_codec.geometry import read_shape

_BATCH = 4096
_SCHEMA = pa.schema(
    {
        "image": pa.string(),
        "width": pa.int32(),
        "height": pa.int32(),
        "image_id": pa.string(),  # JSON: a number and its text are two ids
        "desc": pa.list_(pa.string()),
        "bbox": pa.list_(pa.float64()),
        "crowd": pa.list_(pa.bool_()),
        "area": pa.list_(pa.float64()),
        "extra": pa.string(),  # JSON: keys of the record, and of its objects
    }
)
_MARKUP_BYTES = 160
"""More than the markers and coordinates of an object add to its description in a target text."""


class Row(NamedTuple):
    """A record as the file keeps it.

    Attributes:
        image: path of the image
        width: in pixels, None if unknown
        height: in pixels, None if unknown
        image_id: the data set's own id
        desc: descriptions of the objects
        bbox: their corners, four numbers each
        crowd: whether each is a crowd region
        area: stated areas in square pixels
        extra: further keys of the record, and of each object; None where there are none
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
        """Return the record with these of its objects."""
        desc, crowd, area = ([column[n] for n in kept] for column in (self.desc, self.crowd, self.area))
        bbox = [side for n in kept for side in self.bbox[4 * n : 4 * n + 4]]
        more = self.extra and (self.extra[0], [self.extra[1][n] for n in kept])
        return self._replace(desc=desc, bbox=bbox, crowd=crowd, area=area, extra=more)


def write_records(path: Path, rows: Iterable[Row]) -> int:
    """Write an Arrow file, whole or not at all; returns how many records it has. Nothing but a batch is kept."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    count, given = 0, iter(rows)
    try:
        with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
            while batch := list(islice(given, _BATCH)):
                columns = dict(zip(Row._fields, zip(*batch, strict=True), strict=True))
                for name in ("image_id", "extra"):
                    columns[name] = tuple(None if value is None else json.dumps(value) for value in columns[name])
                arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
                writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
                count += len(batch)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def row_of(instance: Instance) -> Row:
    """Return an instance as a row."""
    objects = [dict(found.__pydantic_extra__ or {}) for found in instance.objects]
    for values, found in zip(objects, instance.objects, strict=True):
        if found.geometry is not None:
            values["geometry"] = found.geometry.to_json()
    extra = dict(instance.__pydantic_extra__ or {})
    return Row(
        instance.image,
        instance.width,
        instance.height,
        instance.image_id,
        [found.desc for found in instance.objects],
        [side for found in instance.objects for side in found.bbox],
        [found.iscrowd for found in instance.objects],
        [found.area for found in instance.objects],
        (extra, objects) if extra or any(objects) else None,
    )


def instance_of(row: Row) -> Instance:
    """Return a row as an instance."""
    extra, of_objects = row.extra or ({}, None)
    objects = []
    for i, (desc, crowd, area) in enumerate(zip(row.desc, row.crowd, row.area, strict=True)):
        stated = ({"iscrowd": True} if crowd else {}) | ({} if area is None else {"area": area})
        more = of_objects[i] if of_objects else {}
        if "geometry" in more:
            more = {**more, "geometry": read_shape(more["geometry"])}
        objects.append(Object.model_construct(desc=desc, bbox=tuple(row.bbox[4 * i : 4 * i + 4]), **stated, **more))
    given = {key: value for key in ("width", "height", "image_id") if (value := getattr(row, key)) is not None}
    return Instance.model_construct(image=row.image, **given, **extra, objects=tuple(objects))


class Records(Sequence[Instance]):
    """The records of an Arrow file of `write_records`; a process that gets a copy maps the same file.

    Args:
        path: the file
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()

    def __reduce__(self) -> tuple[type[Records], tuple[Path]]:
        return Records, (self.path,)

    def __len__(self) -> int:
        return self._table.num_rows

    @overload
    def __getitem__(self, index: int) -> Instance: ...
    @overload
    def __getitem__(self, index: slice) -> list[Instance]: ...
    def __getitem__(self, index: int | slice) -> Instance | list[Instance]:
        """Return a record, or the list of several."""
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
        return self._table["image"].to_pylist()

    @property
    def repeated(self) -> list[str]:
        """The paths of images that several records have, none of which asks for a phrase."""
        phrased = pa.compute.match_substring(self._table["extra"], '"query":').fill_null(False)
        counted = self._table["image"].filter(pa.compute.invert(phrased)).value_counts()
        return counted.field(0).filter(pa.compute.greater(counted.field(1), 1)).to_pylist()

    @cached_property
    def image_sizes(self) -> np.ndarray:
        """Width and height of each image in pixels; 0 where unknown."""
        return np.stack([self._table[side].fill_null(0).to_numpy() for side in ("width", "height")], axis=1)

    @cached_property
    def target_counts(self) -> np.ndarray:
        """How many objects of each image are targets."""
        return self._sum_by_record("crowd", lambda crowd: 1 - crowd.to_numpy(zero_copy_only=False).astype(np.int64))

    @property
    def words(self) -> frozenset[str]:
        """The different descriptions of targets."""
        desc, crowd = (pa.chunked_array([c.flatten() for c in self._table[name].chunks]) for name in ("desc", "crowd"))
        return frozenset(desc.filter(pa.compute.invert(crowd)).unique().to_pylist())

    @cached_property
    def text_bounds(self) -> np.ndarray:
        """Bytes that the target text of each image cannot exceed."""

        def of_objects(desc: pa.Array) -> np.ndarray:
            return pa.compute.binary_length(desc).to_numpy(zero_copy_only=False).astype(np.int64) + _MARKUP_BYTES

        return self._sum_by_record("desc", of_objects) + 2

    def _sum_by_record(self, column: str, of_objects: Any) -> np.ndarray:
        parts = []
        for chunk in self._table[column].chunks:
            ends = np.concatenate([[0], np.cumsum(of_objects(chunk.flatten()))])
            offsets = chunk.offsets.to_numpy()
            parts.append(np.diff(ends[offsets - offsets[0]]))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _instance(values: dict[str, Any]) -> Instance:
    parsed = {name: values[name] and json.loads(values[name]) for name in ("image_id", "extra")}
    return instance_of(Row(**values | parsed))
