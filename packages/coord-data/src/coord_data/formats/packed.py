"""Opens annotations that are packed with their images: Parquet files of the Hugging Face hub, and WebDataset's tars.

Both are unpacked once, into the cache, as a folder of images with COCO JSON or instance JSONL beside them, which is
then read as any other: by the same rules, as a stream where it is large, in another order by `--read-as`.

| source | image | boxes | names |
|---|---|---|---|
| Parquet | the column of encoded images | a column of structures with `bbox`, or columns | `ClassLabel` of the schema |
| tar | a member | the JSON member of its name, or of its name up to the first dot | as stated |

Boxes are COCO's x, y, width and height in pixels, and those of objects with `desc` are instance records.
"""

from __future__ import annotations

import json
import logging
import re
import tarfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tqdm import tqdm

from coord_codec.counts import counted
from coord_codec.files import InputError, write_text
from coord_data.looking.image_paths import IMAGE_SUFFIXES
from coord_data.remote import cache_folder, has_bytes, place_inside, suffix_of
from coord_data.sources.source import Source

_LOG = logging.getLogger(__name__)
_BOXES = ("bbox", "bboxes", "boxes", "box", "bounding_box", "bounding_boxes")
_LABELS = (
    *("category", "categories", "category_name", "category_id", "label", "labels", "label_name", "class", "classes"),
    *("class_name", "class_id", "name", "names"),
)
_LISTS = ("objects", "annotations", "instances", "detections")
"""Names of the field with the objects of an image, of their boxes and of their classes, the first one that is there."""
_COCO, _LINES = "annotations.json", "instances.jsonl"
_SHARD = re.compile(r"-\d+-of-\d+$|[-_]?\d+$")
"""What the files of one split differ by."""


class _Sample(NamedTuple):
    """An image and what is stated about it; no record for an image without annotations."""

    image: str
    content: bytes
    record: Mapping[str, Any] | None


def unpacked(source: Source) -> Source | None:
    """Return the unpacked annotations of a packed file, or of a folder of such; None for any other source."""
    files = _files(source)
    if not files:
        return None
    stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    folder = cache_folder("annotated", json.dumps(stamps))
    places = [folder / name for name in (_COCO, _LINES)]
    if not any(place.is_file() for place in places):
        _unpack(files, folder, source.path)
    place = next(place for place in places if place.is_file())
    return Source(place, source.path)


def _files(source: Source) -> list[Path]:
    if not source.is_dir:
        return [source.path] if _is_packed(source) else []
    files = next(filter(None, (source.glob(p) for p in ("*.parquet", "data/*.parquet", "*.tar"))), [])
    if not files or not _is_packed(source.file(files[0])):
        return []
    splits = sorted({_SHARD.sub("", file.stem) for file in files})
    if len(splits) > 1:
        raise InputError(f"{source.path}: holds the splits {', '.join(splits[:6])}; name the files of one split")
    return files


def _is_packed(source: Source) -> bool:
    if source.head.startswith("PAR1"):
        return True
    if not source.is_archive or not tarfile.is_tarfile(source.path):
        return False
    try:
        with tarfile.open(source.path, "r:") as archive:
            names = {member.name for member in archive if member.isfile()}
    except tarfile.TarError:  # compressed, or damaged
        return False
    return any(_record_of(name, names) for name in names)


def _unpack(files: Sequence[Path], folder: Path, named: Path) -> None:
    """Write the images of packed files, and what is stated about them once all are written."""
    rows: list[tuple[str, Mapping[str, Any]]] = []
    names: list[str] = []
    taken, told = set[str](), Counter[str]()
    for file in files:
        try:
            read = _of_parquet(file, names, told) if Source(file).head.startswith("PAR1") else _of_tar(file, told)
            for sample in tqdm(read, f"unpacking {file.name}", unit="img", leave=False, disable=None):
                if sample.record is None:
                    told["images without annotations, left out"] += 1
                    continue
                name = sample.image
                if name in taken:  # as each shard may have a 0.jpg
                    name = str(PurePosixPath(f"{len(taken):07d}") / name)
                taken.add(name)
                place = place_inside(folder, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(sample.content)
                rows.append((name, sample.record))
        except InputError:
            raise
        except (OSError, ValueError, tarfile.TarError) as error:
            raise InputError(f"{file}: cannot be read ({error}); a Parquet file or tar that is complete") from None
    left_out = [f"{count:,} {reason}" for reason, count in told.items()]
    if not rows:
        raise InputError("; ".join([f"{named}: expected images with boxes beside them, found none", *left_out]))
    for line in left_out:
        _LOG.info(f"{named}: {line}")
    stated = [(name, record, list(objects_of(record))) for name, record in rows]
    if all("desc" in item for _, _, objects in stated for item in objects):
        lines = (json.dumps({**record, "image": name, "objects": objects}) for name, record, objects in stated)
        write_text(folder / _LINES, "".join(line + "\n" for line in lines))
    else:
        write_text(folder / _COCO, json.dumps(_coco(stated, names)))
    _LOG.info(f"{named}: {counted(len(rows), 'image')} and their annotations unpacked into {folder}")


def objects_of(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects that a record states: as a list of objects, or as lists of equal length, a value an object.

    Example:
        >>> list(objects_of({"objects": {"bbox": [[1, 2, 3, 4]], "category": [7]}}))
        [{'bbox': [1, 2, 3, 4], 'category': 7}]
        >>> list(objects_of({"boxes": [[1, 2, 3, 4]], "labels": ["cat"], "width": 640}))
        [{'bbox': [1, 2, 3, 4], 'category': 'cat'}]
    """
    stated = next((record[name] for name in _LISTS if isinstance(record.get(name), list | Mapping)), record)
    if isinstance(stated, list):
        for item in stated:
            yield _with_names(item) if isinstance(item, Mapping) else {"bbox": item}
        return
    boxes = _with_names(stated).get("bbox")
    lists = {
        name: value
        for name, value in stated.items()
        if isinstance(value, list) and isinstance(boxes, list) and len(value) == len(boxes)
    }
    for n in range(len(boxes) if isinstance(boxes, list) else 0):
        yield _with_names({name: value[n] for name, value in lists.items()})


def _with_names(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its box as `bbox` and its class as `category`."""
    named = dict(item)
    for wanted, names in (("bbox", _BOXES), ("category", _LABELS)):
        name = next((name for name in names if name in named), None)
        if name is not None:
            named[wanted] = named.pop(name)
    return named


def _coco(stated: Sequence[tuple[str, Mapping[str, Any], list[dict[str, Any]]]], names: Sequence[str]) -> Any:
    """Return images with their objects as COCO JSON."""
    ids = [record.get("image_id") for _, record, _ in stated]
    own_ids = all(isinstance(value, int | str) for value in ids) and len(set(ids)) == len(ids)
    categories: dict[str, int] = {name: number for number, name in enumerate(names)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for row, (name, record, objects) in enumerate(stated):
        image_id = ids[row] if own_ids else row
        sizes = {side: record[side] for side in ("width", "height") if record.get(side) is not None}
        images.append({"id": image_id, "file_name": name, **sizes})
        for item in objects:
            label = item.pop("category", None)
            category: int | None = None
            if type(label) is int and names:
                category = label  # one without a name is refused as in COCO
            elif label is not None:
                category = categories.setdefault(str(label), len(categories))
            own = {key: value for key, value in item.items() if value is not None and key != "image_id"}
            if "is_crowd" in own:
                own["iscrowd"] = own.pop("is_crowd")
            own |= {"id": len(annotations), "image_id": image_id, "category_id": category}
            annotations.append(own)
    rows = [{"id": number, "name": name} for name, number in categories.items()]
    return {"images": images, "annotations": annotations, "categories": rows}


def _of_parquet(file: Path, names: list[str], told: Counter[str]) -> Iterator[_Sample]:
    """Yield the rows of a file of the hub, and fill the names of its classes."""
    from pyarrow import parquet

    with parquet.ParquetFile(file) as table:
        schema = table.schema_arrow
        pixels = next((field.name for field in schema if has_bytes(field.type)), None)
        if pixels is None or not any(_has_boxes(field) for field in schema):
            raise InputError(
                f"{file}: a Parquet file; expected a column of encoded images and one of boxes "
                f"({', '.join(_BOXES)}), found {', '.join(schema.names)[:200]}; write its rows as instance JSONL or CSV"
            )
        names[:] = _class_names(schema.metadata) or names
        row = 0
        for batch in table.iter_batches(64):
            for record in batch.to_pylist():
                image = record.pop(pixels)
                path, content = (image.get("path"), image["bytes"]) if isinstance(image, dict) else (None, image)
                if content is None:
                    told["rows whose image is a path or nothing (`to_parquet` of datasets embeds none), left out"] += 1
                else:
                    yield _Sample(path or f"{file.stem}-{row:07d}{suffix_of(content)}", content, record)
                row += 1


def _has_boxes(field: Any) -> bool:
    import pyarrow as pa

    inner = field.type.value_type if pa.types.is_list(field.type) or pa.types.is_large_list(field.type) else field.type
    below = [inner.field(n).name for n in range(inner.num_fields)] if pa.types.is_struct(inner) else []
    return field.name in _BOXES or not set(_BOXES).isdisjoint(below)


def _class_names(metadata: Mapping[bytes, bytes] | None) -> list[str]:
    """Return the names of the first `ClassLabel` of a class field, as `datasets` writes them into the schema."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return []
    found = [names for field, names in _labels_in(features) if field in _LABELS]
    return list(found[0]) if found else []


def _labels_in(feature: Any, name: str = "") -> Iterable[tuple[str, list[str]]]:
    if isinstance(feature, list):
        for item in feature:
            yield from _labels_in(item, name)
    elif isinstance(feature, Mapping):
        if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
            yield name, feature["names"]
            return
        for key, value in feature.items():
            yield from _labels_in(value, name if key == "feature" else key)


def _record_of(name: str, names: Collection[str]) -> str | None:
    """Return the JSON member that describes an image of a tar; None for other members, and images without one."""
    path = PurePosixPath(name)
    if path.suffix.lower() not in IMAGE_SUFFIXES:
        return None
    beside = (path.with_suffix(".json"), path.with_name(f"{path.name.partition('.')[0]}.json"))
    return next((str(record) for record in beside if str(record) in names), None)


def _of_tar(file: Path, told: Counter[str]) -> Iterator[_Sample]:
    """Yield the images of a tar with the JSON beside them, which may come before or after them."""
    with tarfile.open(file, "r:") as archive:
        members = {member.name: member for member in archive if member.isfile()}
        for name, member in members.items():
            if PurePosixPath(name).suffix.lower() not in IMAGE_SUFFIXES:
                continue
            record = _record_of(name, members.keys())
            yield _Sample(name, _content(archive, member), _parsed(archive, members.get(record or ""), told))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a file
    return stream.read()


def _parsed(archive: tarfile.TarFile, member: tarfile.TarInfo | None, told: Counter[str]) -> Mapping[str, Any] | None:
    if member is None:
        return None
    try:
        found = json.loads(_content(archive, member))
    except ValueError:
        told[f"JSON members that cannot be read, such as {member.name}, left out with their images"] += 1
        return None
    return found if isinstance(found, Mapping) else {"objects": found if isinstance(found, list) else []}
