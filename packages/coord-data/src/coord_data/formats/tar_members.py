"""Reads the samples of a tar as WebDataset has them: the photograph of a key, and the JSON of the key that has boxes.

A JSON belongs to the image of its whole name (`street.v1.jpg`, `street.v1.json`), else to those of its key, the name up
to the first dot (`a.jpg`, `a.mask.png` and `a.json`). Members are read in the order of the archive, which may be
compressed.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from coord_data.formats.packed_sample import PackedSample, items_of, named_object
from coord_data.looking.image_paths import IMAGE_SUFFIXES
from coord_data.sources.which_field import BOXES, LISTS, PHRASES, label_of, only, photograph


def has_samples(file: Path) -> bool:
    """Return whether a tar has images with JSON beside them."""
    try:
        with tarfile.open(file) as archive:
            names = [_name(member) for member in archive if member.isfile()]
    except (tarfile.TarError, OSError, EOFError):  # damaged
        return False
    return bool({_key(n) for n in names if _is_image(n)} & {_key(n) for n in names if n.endswith(".json")})


def _name(member: tarfile.TarInfo) -> str:
    """Return the name of a member without the `./` that `tar -C dir .` writes."""
    return str(PurePosixPath(member.name))


def _is_image(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES


def _key(name: str) -> str:
    path = PurePosixPath(name)
    return str(path.with_name(path.name.partition(".")[0] or path.name))


def tar_samples(file: Path, fields: Mapping[str, str], told: Counter[str]) -> Iterator[PackedSample]:
    """Yield the photographs of a tar with the JSON beside them, which may come before or after them."""
    with tarfile.open(file) as archive:
        members = [(member, _name(member)) for member in archive if member.isfile()]
        pairs = _pairs([name for _, name in members], fields, file, told)
        read = {name for kinds in pairs.values() for name in kinds.values()}
        parsed = {name: _parsed(_content(archive, member)) for member, name in members if name in read}
        unreadable = ""
        for member, name in members:
            if name not in pairs:
                continue
            records = {kind: parsed[own] for kind, own in pairs[name].items()}
            if faulty := [pairs[name][kind] for kind, record in records.items() if record is None]:
                unreadable = unreadable or faulty[0]
                told[f"images with JSON that cannot be read, such as {unreadable}, left out"] += 1
                continue
            kinds = [kind for kind, record in records.items() if _holds_boxes(record)]
            wanted = fields.get("boxes")
            kind = wanted if wanted in kinds else only(kinds, "boxes", f"{file}: {name}")
            if kind is None:
                told["images whose JSON has no field of boxes, read as images without objects"] += 1
            record = records[kind] if kind else next(iter(records.values()))
            objects, label = objects_of(record, fields, f"{file}: {name}")
            own = record if isinstance(record, Mapping) else {}
            yield PackedSample(name, _content(archive, member), own, objects, has_phrases=label in PHRASES)


def _pairs(
    names: Sequence[str], fields: Mapping[str, str], file: Path, told: Counter[str]
) -> dict[str, dict[str, str]]:
    """Return the JSON members of each photograph by their kind, the end of their name; others are counted."""
    groups: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for name in names:
        if _is_image(name) or name.endswith(".json"):
            groups[_key(name)][not _is_image(name)].append(name)
    found: dict[str, dict[str, str]] = {}
    for key, (images, records) in groups.items():
        stems = {_stem(name) for name in images} & {_stem(name) for name in records}
        for stem in stems or {key}:
            own = [name for name in images if not stems or _stem(name) == stem]
            kinds = {name.removeprefix(f"{stem}."): name for name in own}
            of_stem = [name for name in records if name.startswith(f"{stem}.") and _stem(name) not in stems - {stem}]
            wanted = fields.get("image")
            kind = wanted if wanted is not None else photograph(list(kinds), {}, f"{file}: {stem}")
            if kind in kinds and of_stem:
                found[kinds[kind]] = {name.removeprefix(f"{stem}."): name for name in of_stem}
        for name in images:
            if name not in found:
                kind = name.removeprefix(f"{key}.")
                beside = f"images {kind} beside others, or masks without a photograph, not read"
                told[beside if records else "images without annotations, left out"] += 1
    return found


def _stem(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a file
    return stream.read()


def _parsed(content: bytes) -> Any:
    """Return the object or list of a JSON member; None for anything else."""
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, Mapping | list) else None


def _holds_boxes(record: Any) -> bool:
    return isinstance(record, list) or any(
        name in BOXES or name in LISTS or _has_box(value) for name, value in record.items()
    )


def _has_box(value: Any) -> bool:
    """Return whether a value is an object with a box, or a list of such."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Mapping) and not set(BOXES).isdisjoint(first)


def objects_of(
    record: Any, fields: Mapping[str, str] | None = None, where: str = "JSON"
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the objects that a record states, as a list or as lists of equal length, and the field of their class.

    Raises:
        InputError: several fields may be the boxes or the class, and `fields` chooses none.

    Example:
        >>> objects_of({"objects": {"bbox": [[1, 2, 3, 4]], "category": [7]}, "label": "street"})
        ([{'bbox': [1, 2, 3, 4], 'category': 7}], 'category')
        >>> objects_of({"boxes": [[1, 2, 3, 4]], "labels": ["cat"], "width": 640})
        ([{'bbox': [1, 2, 3, 4], 'category': 'cat'}], 'labels')
    """
    fields = fields or {}
    stated = record
    if isinstance(record, Mapping):
        holders = [name for name, value in record.items() if _has_box(value) or (name in LISTS and _is_filled(value))]
        wanted = fields.get("boxes", "").partition(".")[0]
        usual = [name for name in holders if name == wanted] or [name for name in holders if name in LISTS]
        holder = only(usual if len(usual) == 1 else holders, "boxes", where)
        if holder is None and (empty := [name for name in LISTS if isinstance(record.get(name), list | Mapping)]):
            holder = empty[0]
        stated = record if holder is None else record[holder]
    is_lists = isinstance(stated, Mapping)
    first = stated if is_lists else next((item for item in stated if isinstance(item, Mapping)), {})
    box = only([name for name in first if name in BOXES], "boxes", where)
    if box is None:
        return ([] if is_lists else [{"bbox": item} for item in stated]), None
    items = list(items_of(stated, box)) if is_lists else list(stated)
    of_object = {key: value for key, value in (items[0] if is_lists and items else first).items() if key != box}
    label = label_of({key: "name" if isinstance(v, str) else "number" for key, v in of_object.items()}, fields, where)
    return [
        named_object(item, box, label, item.get(label or "")) if isinstance(item, Mapping) else {"bbox": item}
        for item in items
    ], label


def _is_filled(value: Any) -> bool:
    return isinstance(value, list) and bool(value)
