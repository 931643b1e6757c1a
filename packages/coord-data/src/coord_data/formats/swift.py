"""Reader of ms-swift's grounding records: `messages` with `<ref-object>` and `<bbox>`, whose values are in `objects`.

`objects.bbox` is x1, y1, x2, y2, or the x, y of a point, in pixels (`bbox_type: real`, the default) or in fractions
(`norm1`). A `<bbox>` belongs to the last `<ref-object>` before it, or to the next one in a message that begins with a
box and ends with a name. If a record has several images, `objects.image_id` is the index of each box's image. Records
without boxes are left out and listed. ms-swift 2 has a list of objects with `caption`, `bbox`, `bbox_type`, `image`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.raw import RawImage, RawObject, Reading, Unit, as_json, as_list, number, query_of
from coord_data.source import Source

_UNITS: dict[str, tuple[Unit, float]] = {
    "real": ("pixels", 1.0),
    "norm1": ("fractions", 1.0),
    "norm_1": ("fractions", 1.0),
    "norm_1000": ("fractions", 1000.0),
}
"""Unit of each `bbox_type` and the number that is the whole side; those with an underscore are ms-swift 2's."""
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
    raw_images = (image for where, record in source.records() for image in _images(record, where))
    return Reading(raw_images, images or source.path.parent)


def _images(record: Any, where: str) -> Iterator[RawImage]:
    if isinstance(record, str):
        yield RawImage("", where, fault=record)
        return
    stated = record.get("images", record.get("image"))
    names = [item.get("path", item) if isinstance(item, Mapping) else item for item in as_list(stated)]
    objects = record.get("objects")
    if _are_captioned(objects):
        objects = _of_captions(objects)
    if not isinstance(objects, Mapping) or not objects.get("bbox"):
        yield RawImage("", where, fault="a conversation without boxes: there is nothing to detect in it; remove it")
        return
    if not names or not all(isinstance(name, str) for name in names):
        yield RawImage("", where, fault=f"images: expected paths, found {as_json(stated)}")
        return
    if not isinstance(objects["bbox"], list):
        yield RawImage("", where, fault=f"objects.bbox: expected a list of boxes, found {as_json(objects['bbox'])}")
        return
    indices = as_list(objects.get("image_id"))
    if len(names) == 1 and all(isinstance(index, int | str) for index in indices) and len(set(indices)) == 1:
        indices = []  # the id of the one image in its data set, or its index: all boxes are of that image
    if invalid := [index for index in indices if not isinstance(index, int) or not 0 <= index < len(names)]:
        expected = f"objects.image_id: expected whole numbers from 0 to {len(names) - 1}"
        yield RawImage("", where, fault=f"{expected}, found {as_json(invalid[0])}")
        return
    if len(names) > 1 and len(indices) < len(objects["bbox"]):
        expected = f"objects.image_id: expected the index of each box's image among {len(names)}, counted from 0"
        yield RawImage("", where, fault=f"{expected}, found {len(indices)} numbers for {len(objects['bbox'])} boxes")
        return
    boxes = list(_boxes(record, objects, where, indices))
    for position, name in enumerate(names):
        of_image = [box for index, box in boxes if index == position]
        yield RawImage(name, where, of_image, extra=query_of(record))


def _of_captions(objects: list[Mapping[str, Any]]) -> dict[str, Any]:
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


def _references(record: Mapping[str, Any]) -> list[int]:
    """Return the index of the `<ref-object>` that names each `<bbox>`: the next one where a message has it so.

    `{"bbox_2d": <bbox>, "label": "<ref-object>"}` names a box after it, `<ref-object><bbox>` before it.
    """
    of_box: list[int] = []
    seen = -1
    for message in as_list(record.get("messages")):
        tags = _TAGS.findall(str(message.get("content", ""))) if isinstance(message, Mapping) else []
        is_named_after = bool(tags) and tags[0] == "<bbox>" and tags[-1] == "<ref-object>"
        for tag in tags:
            if tag == "<bbox>":
                of_box.append(seen + is_named_after)
            else:
                seen += 1
    return of_box


def _boxes(
    record: Mapping[str, Any], objects: Mapping[str, Any], where: str, indices: list[int]
) -> Iterator[tuple[int, RawObject]]:
    kind = objects.get("bbox_type", "real")
    refs = as_list(objects.get("ref"))
    ref_of_box = _references(record)
    for position, box in enumerate(objects["bbox"]):
        box_where = f"{where}: objects.bbox[{position}]"
        is_named = position < len(ref_of_box) and (ref_of_box[position] >= 0 or len(refs) != len(objects["bbox"]))
        ref = ref_of_box[position] if is_named else position
        image = indices[position] if position < len(indices) else 0
        if kind not in _UNITS:
            fault = f"bbox_type: expected {', '.join(_UNITS)}, found {kind!r}"
        elif not 0 <= ref < len(refs):
            found = f"found none (objects.ref has {len(refs)} names for {len(objects['bbox'])} boxes)"
            fault = f"expected a <ref-object> in the messages that names this box, {found}: write a name for each box "
            fault += "into objects.ref, and <ref-object> before its <bbox>"
        else:
            fault = ""
        try:
            corners = tuple(number(v) for v in as_list(box))
        except ValueError:
            corners, fault = (), f"expected x1, y1, x2, y2, found {as_json(box)}"
        desc = str(refs[ref]) if 0 <= ref < len(refs) else ""
        unit, scale = _UNITS.get(kind if isinstance(kind, str) else "", ("pixels", 1.0))
        corners = tuple(value / scale for value in corners)
        is_point = len(corners) == 2
        yield (
            image,
            RawObject(desc, corners * 2 if is_point else corners, box_where, unit, fault=fault, is_point=is_point),
        )


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
