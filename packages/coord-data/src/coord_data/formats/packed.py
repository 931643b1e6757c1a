"""Opens annotations that are packed with their images: Parquet files of the Hugging Face hub, and WebDataset's tars.

Both are unpacked once, into the cache, as a folder of images with COCO JSON or instance JSONL beside them, which is
then read as any other: by the same rules, as a stream where it is large, in another order by `--read-as`.

| source | image | boxes | names |
|---|---|---|---|
| Parquet | a column of encoded images | structures with `bbox`, columns of lists, one a row | `ClassLabel` or text |
| tar | the image member of a key | the JSON member of the key that has boxes | as stated |

Which columns and members these are, `which_field` decides. Boxes are COCO's x, y, width and height in pixels unless
the numbers show otherwise (`boxes_as_stated`), and those of objects with `desc` are instance records.
"""

from __future__ import annotations

import json
import logging
import re
import tarfile
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from tqdm import tqdm

from coord_codec.counts import counted
from coord_codec.files import InputError, read_json, write_text
from coord_codec.images import ImageError, image_facts
from coord_data.formats.boxes_as_stated import order_and_unit
from coord_data.formats.packed_sample import whole
from coord_data.formats.parquet_rows import parquet_rows
from coord_data.formats.tar_members import has_samples, tar_samples
from coord_data.remote import cache_folder, place_inside
from coord_data.sources.source import Source
from coord_data.sources.which_field import parse_fields

_LOG = logging.getLogger(__name__)
_COCO, _LINES, _TOLD = "annotations.json", "instances.jsonl", "told.json"
_VERSION = 2
"""Changes with what is unpacked from a file, so that what an older version unpacked is not read."""
_SHARD = re.compile(
    r"(?<![a-z0-9])(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?=[a-f]*[0-9])[0-9a-f]{8,}|c?\d+|of|part|shard|data"
    r"|snappy|gz|zstd|tar)(?![a-z0-9])",
    re.IGNORECASE,
)
"""What the files of one split differ by: numbers, and what the hub, Ray, Spark and DuckDB write beside them."""


def unpacked(source: Source, fields: str | None = None) -> Source | None:
    """Return the unpacked annotations of a packed file, or of a folder of such; None for any other source.

    Args:
        source: the file or folder
        fields: the columns or members that the user chose, see `which_field`
    """
    files = _files(source)
    if not files:
        if fields:
            raise InputError(
                f"{source.path}: --fields chooses columns of Parquet files and members of tars, found neither"
            )
        return None
    stamps = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    folder = cache_folder("annotated", json.dumps([stamps, fields, _VERSION]))
    if not (folder / _TOLD).is_file():
        _unpack(files, folder, source.path, parse_fields(fields) if fields else {})
    place = next(place for name in (_COCO, _LINES) if (place := folder / name).is_file())
    found, told = Source(place, source.path), read_json(folder / _TOLD)
    found.read_as, found.notes = told["read_as"], tuple(f"{source.path}: {note}" for note in told["notes"])
    return found


def _files(source: Source) -> list[Path]:
    if not source.is_dir:
        return [source.path] if _is_packed(source) else []
    patterns = (("*.parquet",), ("data/*.parquet",), ("*.tar", "*.tar.gz", "*.tgz"))
    files = next(filter(None, (source.glob(*names) for names in patterns)), [])
    if not files or not _is_packed(source.file(files[0])):
        return []
    splits = sorted({_SHARD.sub("", file.stem).strip("-_.") for file in files})
    if len(splits) > 1:
        raise InputError(f"{source.path}: holds the splits {', '.join(splits[:6])}; name the files of one split")
    return files


def _is_packed(source: Source) -> bool:
    if source.head.startswith("PAR1"):
        return True
    return source.is_archive and tarfile.is_tarfile(source.path) and has_samples(source.path)


def _unpack(files: Sequence[Path], folder: Path, named: Path, fields: Mapping[str, str]) -> None:
    """Write the images of packed files, and what is stated about them once all are written."""
    stated: list[tuple[str, Mapping[str, Any], list[dict[str, Any]]]] = []
    rows_of_image: dict[tuple[str, str], list[dict[str, Any]]] = {}
    taken, told = set[str](), Counter[str]()
    sizes: list[tuple[int, int] | None] = []
    of_phrases = False
    for file in files:
        try:
            read = parquet_rows if Source(file).head.startswith("PAR1") else tar_samples
            for sample in tqdm(
                read(file, fields, told), f"unpacking {file.name}", unit="img", leave=False, disable=None
            ):
                of_phrases |= sample.has_phrases
                key = (sample.image, sha256(sample.content).hexdigest()) if sample.is_row else ("", "")
                if key in rows_of_image:
                    rows_of_image[key] += sample.objects
                    continue
                name = sample.image
                if name in taken:  # as each shard may have a 0.jpg
                    name = str(PurePosixPath(f"{len(taken):07d}") / name)
                taken.add(name)
                place = place_inside(folder, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(sample.content)
                stated.append((name, sample.record, sample.objects))
                sizes.append(_size(sample.content))
                if sample.is_row:
                    rows_of_image[key] = sample.objects
        except InputError:
            raise
        except (OSError, ValueError, tarfile.TarError) as error:
            raise InputError(f"{file}: cannot be read ({error}); a Parquet file or tar that is complete") from None
    left_out = [f"{count:,} {reason}" if count else reason for reason, count in told.items()]
    if not stated:
        raise InputError("; ".join([f"{named}: expected images with boxes beside them, found none", *left_out]))
    read_as = None
    if all("desc" in item for _, _, objects in stated for item in objects):
        lines = (_json({**record, "image": name, "objects": objects}) for name, record, objects in stated)
        write_text(folder / _LINES, "".join(line + "\n" for line in lines))
    else:
        read_as, note = order_and_unit([objects for _, _, objects in stated], sizes, of_phrases)
        left_out += [note] if note else []
        write_text(folder / _COCO, _json(_coco(stated)))
    write_text(folder / _TOLD, json.dumps({"read_as": read_as, "notes": left_out}))
    _LOG.info(f"{named}: {counted(len(stated), 'image')} and their annotations unpacked into {folder}")


def _size(content: bytes) -> tuple[int, int] | None:
    try:
        return image_facts(content).size
    except ImageError:  # the look at the image reports it
        return None


def _json(value: Any) -> str:
    """Return values of Arrow as JSON: a DECIMAL is a number; a time, a UUID and others are their text."""
    return json.dumps(value, default=lambda own: whole(own) if isinstance(own, Decimal) else str(own)[:200])


def _coco(stated: Sequence[tuple[str, Mapping[str, Any], list[dict[str, Any]]]]) -> Any:
    """Return images with their objects as COCO JSON."""
    ids = [whole(record.get("image_id")) for _, record, _ in stated]
    ids = [value if value is None or isinstance(value, int | str) else str(value) for value in ids]
    own_ids = all(isinstance(value, int | str) for value in ids) and len(set(ids)) == len(ids)
    categories: dict[str, int] = {}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for row, (name, record, objects) in enumerate(stated):
        image_id = ids[row] if own_ids else row
        sizes = {side: whole(record[side]) for side in ("width", "height") if record.get(side) is not None}
        images.append({"id": image_id, "file_name": name, **sizes})
        for item in objects:
            label = whole(item.pop("category", None))
            category = None if label is None else categories.setdefault(str(label), len(categories))
            own = {key: value for key, value in item.items() if value is not None and key != "image_id"}
            if "is_crowd" in own:
                own["iscrowd"] = own.pop("is_crowd")
            own |= {"id": len(annotations), "image_id": image_id, "category_id": category}
            annotations.append(own)
    rows = [{"id": number, "name": name} for name, number in categories.items()]
    return {"images": images, "annotations": annotations, "categories": rows}
