"""Reader of ms-swift's grounding records: `messages` with `<ref-object>` and `<bbox>`, whose values are in `objects`.

`objects.bbox` is x1, y1, x2, y2, or the x, y of a point, in pixels (`bbox_type: real`, the default) or in fractions
(`norm1`). A `<bbox>` belongs to the last `<ref-object>` before it, or to the next one in a message that begins with a
box and ends with a name. If a record has several images, `objects.image_id` is the index of each box's image. Records
without boxes are left out and listed. ms-swift 2 has a list of objects with `caption`, `bbox`, `bbox_type`, `image`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coord_codec.fields import check_places, of_meaning
from coord_codec.files import InputError
from coord_codec.thoughts import find_thoughts
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.negatives import ABSENT, IN_THOUGHT, check_no_video, says_no_box
from coord_data.formats.stated_fields import kept
from coord_data.sources.raw import (
    RawImage,
    RawObject,
    Reading,
    Unit,
    as_json,
    as_list,
    check,
    images_of,
    number,
    query_of,
)
from coord_data.sources.source import Source

_UNITS: dict[str, tuple[Unit, float]] = {
    "real": ("pixels", 1.0),
    "norm1": ("fractions", 1.0),
    "norm_1": ("fractions", 1.0),
    "norm_1000": ("fractions", 1000.0),
}
"""Unit of each `bbox_type` and the number that is the whole side; those with an underscore are ms-swift 2's."""
_UNNAMED = (
    "expected a <ref-object> in the messages that names this box, found none (objects.ref has {} names for {} boxes): "
    "write a name for each box into objects.ref, and <ref-object> before its <bbox>"
)
_READ = frozenset(("ref", "bbox", "bbox_type", "image_id"))
_OF_CAPTIONS = frozenset(("caption", "bbox", "bbox_type", "image"))
_TAGS = re.compile(r"<ref-object>|<bbox>")


def recognise(source: Source) -> bool:
    """Return whether the records of a source are conversations with `objects`."""
    record = source.record or {}
    objects = record.get("objects")
    return ("messages" in record and isinstance(objects, Mapping)) or _are_captioned(objects)


def _are_captioned(objects: Any) -> bool:
    """Return whether objects are those of ms-swift 2: a list of captions with boxes."""
    is_list = isinstance(objects, list) and bool(objects)
    return is_list and all(isinstance(item, Mapping) and {"caption", "bbox"} <= item.keys() for item in objects)


def read(source: Source, images: Path | None) -> Reading:
    """Read JSON lines or a JSON list of such records."""
    return Reading(images_of(source.records(), _images), images or source.path.parent)


def _images(record: Mapping[str, Any], where: str) -> Iterator[RawImage]:
    stated = record.get("images", record.get("image"))
    names = [item.get("path", item) if isinstance(item, Mapping) else item for item in as_list(stated)]
    objects = record.get("objects")
    notes: tuple[str, ...] = ()
    if _are_captioned(objects):
        image = {"image": names[0], "image_index": 0} if len(names) == 1 else {}
        check_places(as_list(objects) if image else (), image)  # with several images, `image` is the index of one
        objects, notes = kept(as_list(objects), _OF_CAPTIONS, image)
        _check_plain(field for item in objects for field in of_meaning(item, "turn", "shape", "unit"))
        objects = _of_captions(objects)
    check_no_video(record)
    if not isinstance(objects, Mapping) or "bbox" not in objects:
        raise InputError("a conversation without boxes: there is nothing to detect in it; remove it")
    boxes = [] if objects["bbox"] is None else objects["bbox"]
    check(names and all(isinstance(name, str) for name in names), "images: expected paths", stated)
    check(isinstance(boxes, list), "objects.bbox: expected a list of boxes", boxes)
    indices = as_list(objects.get("image_id"))
    if len(names) == 1 and all(isinstance(index, int | str) for index in indices) and len(set(indices)) == 1:
        indices = []  # the id of the one image in its data set, or its index: all boxes are of that image
    for index in indices:
        expected = f"objects.image_id: expected whole numbers from 0 to {len(names) - 1}"
        check(isinstance(index, int) and 0 <= index < len(names), expected, index)
    _check_plain(of_meaning(objects, "turn", "shape", "unit", "place"))
    if len(names) > 1 and len(indices) < len(boxes):
        expected = f"objects.image_id: expected the index of each box's image among {len(names)}, counted from 0"
        raise InputError(f"{expected}, found {len(indices)} numbers for {len(boxes)} boxes")
    _, in_thoughts = _references(record)
    notes += (IN_THOUGHT,) * len(in_thoughts)
    read = [(n, box) for n, box in enumerate(_boxes(record, objects, where)) if n not in in_thoughts]
    for position, name in enumerate(names):
        own = [box for n, box in read if (indices[n] if n < len(indices) else 0) == position]
        targets = [box for box in own if box.corners_xyxy or box.fault]
        absent = (ABSENT,) * (len(own) - len(targets))
        yield RawImage(name, where, targets, extra=query_of(record), notes=notes + absent)


def _check_plain(fields: Iterable[tuple[str, Any]]) -> None:
    for name, value in fields:
        expected = f"objects.{name}: expected no angle, other shape, unit or frame beside bbox"
        check(name in _READ or not value, expected, value)


def _of_captions(objects: Any) -> dict[str, Any]:
    """Return the objects of ms-swift 2 in the form of ms-swift 3; a caption may have several boxes."""
    refs, boxes, images, kinds = [], [], [], set()
    for item in objects:
        several = isinstance(item["bbox"], list) and bool(item["bbox"]) and isinstance(item["bbox"][0], list)
        for box in item["bbox"] if several else [item["bbox"]]:
            refs.append(item["caption"])
            boxes.append(box)
            images.append(item.get("image", 0))
        kinds.add(item.get("bbox_type", "real"))
    return {"ref": refs, "bbox": boxes, "image_id": images, "bbox_type": kinds.pop() if len(kinds) == 1 else kinds}


def _references(record: Mapping[str, Any]) -> tuple[list[int], set[int]]:
    """Return the index of the `<ref-object>` that names each `<bbox>`, and which of these stand in a thought.

    `{"bbox_2d": <bbox>, "label": "<ref-object>"}` names a box after it, `<ref-object><bbox>` before it: the next one
    where a message has it so.
    """
    of_box: list[int] = []
    in_thoughts: set[int] = set()
    seen = -1
    for message in as_list(record.get("messages")):
        content = str(message.get("content", "")) if isinstance(message, Mapping) else ""
        tags = list(_TAGS.finditer(content))
        thoughts = find_thoughts(content)[0] if tags and message.get("role") == "assistant" else []
        is_named_after = bool(tags) and tags[0][0] == "<bbox>" and tags[-1][0] == "<ref-object>"
        for tag in tags:
            if tag[0] == "<bbox>":
                if any(start <= tag.start() < end for start, end in thoughts):
                    in_thoughts.add(len(of_box))
                of_box.append(seen + is_named_after)
            else:
                seen += 1
    return of_box, in_thoughts


def _boxes(record: Mapping[str, Any], objects: Mapping[str, Any], where: str) -> Iterator[RawObject]:
    boxes, refs, ref_of_box = objects["bbox"] or [], as_list(objects.get("ref")), _references(record)[0]
    kind = objects.get("bbox_type", "real")
    unit, scale = _UNITS.get(str(kind), ("pixels", 1.0))
    for position, box in enumerate(boxes):
        is_named = position < len(ref_of_box) and (ref_of_box[position] >= 0 or len(refs) != len(boxes))
        ref = ref_of_box[position] if is_named else position
        desc, fault = (str(refs[ref]), "") if 0 <= ref < len(refs) else ("", _UNNAMED.format(len(refs), len(boxes)))
        if str(kind) not in _UNITS:
            fault = f"bbox_type: expected {', '.join(_UNITS)}, found {kind!r}"
        numbers = [] if says_no_box(box) else as_list(box)
        try:
            corners = tuple(number(v) / scale for v in numbers)
        except ValueError:
            corners, fault = (), f"expected x1, y1, x2, y2, found {as_json(box)}"
        is_point = len(corners) == 2
        corners = corners * 2 if is_point else corners
        yield RawObject(desc, corners, f"{where}: objects.bbox[{position}]", unit, fault=fault, is_point=is_point)


def _example(*numbers: float) -> Example:
    turns = [{"role": "user", "content": "<image>Find <ref-object>"}, {"role": "assistant", "content": "<bbox>"}]
    record = {"messages": turns, "images": ["a.jpg"], "objects": {"ref": ["cat"], "bbox": [numbers]}}
    return Example({"a.jsonl": json.dumps(record) + "\n"}, "a.jsonl")


FORMAT = AnnotationFormat(
    "swift",
    "grounding conversations of ms-swift",
    "`messages` with `<ref-object>` and `<bbox>`, whose values are in `objects`",
    {"box": _example(20, 10, 60, 40), "point": _example(40, 25)},
    recognise,
    read,
)
