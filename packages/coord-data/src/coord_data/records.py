"""Stores many records in an Arrow file that ranks and workers map into memory and decode one record at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from os.path import normpath
from pathlib import Path
from typing import Any, overload

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


def write_records(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write an Arrow file atomically, some thousand records in memory at a time."""
    with atomic_write(path, "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(map(len, waiting)) >= _BATCH:
                writer.write_table(pa.Table.from_batches(waiting, _SCHEMA).combine_chunks())
                waiting = []
        writer.write_table(pa.Table.from_batches(waiting, _SCHEMA).combine_chunks())


def batch_of(instances: Sequence[Instance]) -> pa.RecordBatch:
    """Return records as a batch."""
    targets = [target for instance in instances for target in instance.objects]
    starts = np.cumsum([0, *(len(instance.objects) for instance in instances)])
    values = [*map(_keys_of, targets)]
    extras: list[str | None] = []
    for n, instance in enumerate(instances):
        own, of_objects = dict(instance.__pydantic_extra__ or {}), values[starts[n] : starts[n + 1]]
        extras.append(json.dumps((own, of_objects), default=str) if own or any(of_objects) else None)
    ids = (instance.image_id for instance in instances)
    return batch_of_columns(
        image=[instance.image for instance in instances],
        width=[instance.width for instance in instances],
        height=[instance.height for instance in instances],
        image_id=[None if image_id is None else json.dumps(image_id) for image_id in ids],
        starts=starts,
        desc=[target.desc for target in targets],
        bbox=np.array([target.bbox for target in targets], np.float64).ravel(),
        crowd=[target.iscrowd for target in targets],
        area=[target.area for target in targets],
        extra=extras,
    )


def _keys_of(target: Object) -> dict[str, Any]:
    """Return the further keys of an object, with its shape."""
    shape = {} if target.geometry is None else {"geometry": target.geometry.to_json()}
    return {**(target.__pydantic_extra__ or {}), **shape}


def batch_of_columns(starts: np.ndarray, **columns: Any) -> pa.RecordBatch:
    """Return a batch of the columns of images, and of those of the objects of all images.

    Args:
        starts: where the objects of each image begin, and where the last ones end
        columns: the columns of the schema; those of objects without lists, `bbox` with four numbers an object
    """
    arrays = []
    for column in _SCHEMA:
        if not pa.types.is_list(column.type):
            arrays.append(pa.array(columns[column.name], column.type))
            continue
        offsets = pa.array(starts * (4 if column.name == "bbox" else 1), pa.int32())
        values = pa.array(columns[column.name], column.type.value_type)
        arrays.append(pa.ListArray.from_arrays(offsets, values, column.type))
    return pa.record_batch(arrays, schema=_SCHEMA)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _further(values: dict[str, Any]) -> str:
    """Return further keys as they follow others in a JSON object, a shape first."""
    if not values:
        return ""
    first = {"geometry": values["geometry"]} if "geometry" in values else {}
    return f", {_json({**first, **values})[1:-1]}"


def images_of_batch(batch: pa.RecordBatch) -> list[tuple[str, int | None, int | None]]:
    """Return path, width and height of each image."""
    columns = (batch[name].to_pylist() for name in ("image", "width", "height"))
    return list(zip(*columns, strict=True))


def of_classes(batch: pa.RecordBatch, classes: Sequence[str]) -> tuple[pa.RecordBatch, int]:
    """Return the records with only the objects of some classes, and the number of those left out."""
    starts = batch["desc"].offsets.to_numpy()
    starts = starts - starts[0]
    flat = {name: batch[name].flatten() for name in ("desc", "bbox", "crowd", "area")}
    is_kept = pa.compute.is_in(flat["desc"], pa.array(classes, pa.string())).to_numpy(zero_copy_only=False)
    rows_n = np.flatnonzero(is_kept)
    if len(rows_n) == len(is_kept):
        return batch, 0
    extras = batch["extra"].to_pylist()
    for n, extra in enumerate(extras):
        if extra is not None:
            own, of_objects = json.loads(extra)
            kept = [of_objects[k] for k in np.flatnonzero(is_kept[starts[n] : starts[n + 1]]).tolist()]
            extras[n] = json.dumps((own, kept))
    columns = {name: batch[name] for name in ("image", "width", "height", "image_id")} | {"extra": extras}
    columns |= {name: flat[name].take(pa.array(rows_n)) for name in ("desc", "crowd", "area")}
    columns["bbox"] = flat["bbox"].to_numpy().reshape(-1, 4)[rows_n].ravel()
    return batch_of_columns(np.concatenate([[0], np.cumsum(is_kept)])[starts], **columns), int((~is_kept).sum())


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
    def of_batches(cls, batches: Iterable[pa.RecordBatch]) -> Records:
        """Return batches as a table in memory."""
        return cls(pa.Table.from_batches(batches, _SCHEMA))

    @classmethod
    def in_one_piece(cls, batches: Iterable[pa.RecordBatch]) -> Records:
        """Return batches as a table in memory whose numbers are read without a copy."""
        table = pa.Table.from_batches(batches, _SCHEMA).combine_chunks()
        pa.default_memory_pool().release_unused()  # what the batches took
        return cls(table)

    @classmethod
    def of(cls, instances: Sequence[Instance]) -> Records:
        """Return instances as a table; what is one already is returned as it is."""
        if isinstance(instances, Records):
            return instances
        return cls.of_batches(batch_of(instances[n : n + _BATCH]) for n in range(0, len(instances), _BATCH))

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """Return the records of several tables as one."""
        return cls(pa.concat_tables([part._table for part in parts]) if parts else _SCHEMA.empty_table())

    def renamed(self, names: Sequence[str]) -> Records:
        """Return the records with other paths of their images."""
        return Records(self._table.set_column(0, "image", pa.array(names, pa.string())))

    def without_ids(self) -> Records:
        """Return the records without the ids of their images."""
        return Records(self._table.set_column(3, "image_id", pa.nulls(len(self), pa.string())))

    def take(self, positions_n: Sequence[int]) -> Records:
        """Return the records at some positions, in their order."""
        return Records(self._table.take(pa.array(positions_n, pa.int64())))

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

    def rows_of(self, names: Collection[str]) -> list[int]:
        """Return the positions of the records of some images."""
        each = chain.from_iterable(batch["image"].to_pylist() for batch in self._table.to_batches(_BATCH))
        return [i for i, name in enumerate(each) if name in names]

    @property
    def image_ids(self) -> frozenset[int | str | None]:
        """The ids of the images."""
        ids = self._table["image_id"].to_pylist()
        return frozenset(json.loads(f"[{','.join('null' if value is None else value for value in ids)}]"))

    @property
    def image_id_texts(self) -> list[str | None]:
        """The id of each image as JSON; None for an image without one."""
        return list(self._table["image_id"].to_pylist())

    @property
    def class_counts(self) -> Counter[str]:
        """Number of targets of each description, in the order in which they occur."""
        targets = self._flat("desc").filter(pa.compute.invert(self._flat("crowd")))
        counts = targets.value_counts()
        return Counter(dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)))

    def lines(self) -> Iterator[str]:
        """Yield the line of each record in an instance file, as `coord_codec.instance_file.instance_line` writes it."""
        for batch in self._table.to_batches(_BATCH):
            descs = batch["desc"].flatten().to_pylist()
            quoted = {desc: _json(desc) for desc in set(descs)}
            boxes = batch["bbox"].flatten().to_numpy().reshape(-1, 4).tolist()
            objects = [f'"desc": {quoted[desc]}, "bbox": {box}' for desc, box in zip(descs, boxes, strict=True)]
            for n in np.flatnonzero(batch["crowd"].flatten().to_numpy(zero_copy_only=False)).tolist():
                objects[n] += ', "iscrowd": true'
            for n, area in enumerate(batch["area"].flatten().to_pylist()):
                if area is not None:
                    objects[n] += f', "area": {area}'
            starts = (batch["desc"].offsets.to_numpy() - batch["desc"].offsets[0].as_py()).tolist()
            columns = (batch[name].to_pylist() for name in ("image", "width", "height", "image_id", "extra"))
            for n, (image, width, height, image_id, extra) in enumerate(zip(*columns, strict=True)):
                own = objects[starts[n] : starts[n + 1]]
                of_record, of_objects = json.loads(extra) if extra else ({}, [{}] * len(own))
                is_text = image_id is not None and image_id[0] == '"'  # which is stored in ASCII
                own_id = _json(json.loads(image_id)) if is_text else image_id
                stated = {"width": width, "height": height, "image_id": own_id}
                fields = "".join(f'"{key}": {value}, ' for key, value in stated.items() if value is not None)
                shown = ", ".join(f"{{{text}{_further(more)}}}" for text, more in zip(own, of_objects, strict=True))
                yield f'{{"image": {_json(image)}, {fields}"objects": [{shown}]{_further(of_record)}}}'

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
    def corners(self) -> np.ndarray:
        """The four corners of each target."""
        corners_N4: np.ndarray = self._flat("bbox").to_numpy().reshape(-1, 4)
        is_crowd_N = self._flat("crowd").to_numpy()
        return corners_N4[~is_crowd_N] if is_crowd_N.any() else corners_N4

    @property
    def boxes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
        """The index of the image, the four corners and the index of the description of each target; descriptions."""
        image_N = np.repeat(np.arange(len(self)), pa.compute.list_value_length(self._table["crowd"]).to_numpy())
        descs, is_target = self._flat("desc"), pa.compute.invert(self._flat("crowd"))
        if not (target_N := is_target.to_numpy()).all():
            image_N, descs = image_N[target_N], descs.filter(is_target)
        chunks = descs.dictionary_encode().unify_dictionaries().chunks
        label_N = np.concatenate([np.zeros(0, np.int64), *(chunk.indices.to_numpy() for chunk in chunks)])
        return image_N, self.corners, label_N, tuple(chunks[0].dictionary.to_pylist() if chunks else ())

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
