"""Reader of conversations whose answers are JSON with `bbox_2d` or `point_2d` and `label`, or have boxes in markers.

The JSON is Qwen3-VL's and Qwen2.5-VL's. Markers are those of Qwen2-VL, `<|object_ref_start|>cat<|object_ref_end|>
<|box_start|>(x1,y1),(x2,y2)<|box_end|>`, and of Qwen-VL and InternVL, `<ref>cat</ref><box>[[x1, y1, x2, y2]]</box>`, in
thousandths too; a name holds for all boxes behind it, also one in the question for those of the answer.

Qwen3-VL writes thousandths of the image, Qwen2.5-VL pixels of the resized image, which the numbers alone cannot tell
apart. They are read as thousandths unless one exceeds 1000; `--format qwen-pixels` reads pixels. A note names the unit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.raw import RawImage, RawObject, Reading, as_json, as_list, number, query_of
from coord_data.source import Source

_KEYS = ("bbox_2d", "point_2d")
_MARKED = re.compile(
    r"(?:<\|object_ref_start\|>|<ref>)(?P<name>.*?)(?:<\|object_ref_end\|>|</ref>)"
    r"|(?:<\|box_start\|>|<box>)(?P<box>.*?)(?:<\|box_end\|>|</box>)",
    re.DOTALL,
)
"""A name or a box between markers."""
MARKS = (*_KEYS, "<|box_start|>", "<box>")
"""What tells boxes in a conversation."""
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")  # also in <|coord_500|>, which is in thousandths too


def recognise(source: Source) -> bool:
    """Return whether a source has conversations, and `bbox_2d`, `point_2d` or a box in markers near its beginning."""
    return bool({"messages", "conversations"} & set(source.record or {})) and any(key in source.head for key in MARKS)


def read(source: Source, images: Path | None, pixels: bool | None = None) -> Reading:
    """Read JSON lines or a JSON list of conversations.

    Args:
        source: the file
        images: folder of its images
        pixels: whether numbers are pixels; inferred from the largest number if None
    """
    raw_images = [image for where, record in source.records() for image in _images(record, where)]
    numbers = (v for image in raw_images for box in image.objects for v in box.corners_xyxy)
    largest = max(filter(math.isfinite, numbers), default=0.0)
    if pixels is None:
        pixels = largest > 1000
    if not pixels:
        raw_images = [image._replace(objects=[_as_fractions(box) for box in image.objects]) for image in raw_images]
    unit = "pixels" if pixels else "thousandths of the image; --format qwen-pixels reads pixels"
    note = f"{source.path}: bbox_2d is read as {unit} (the largest number is {largest:g})"
    return Reading(raw_images, images or source.path.parent, (note,), in_thousandths=not pixels)


def read_pixels(source: Source, images: Path | None) -> Reading:
    """Read conversations with `bbox_2d` in pixels of the image."""
    return read(source, images, pixels=True)


def _as_fractions(box: RawObject) -> RawObject:
    return box._replace(corners_xyxy=tuple(v / 1000 for v in box.corners_xyxy), unit="fractions")


def _images(record: Any, where: str) -> Iterator[RawImage]:
    if isinstance(record, str):
        yield RawImage("", where, fault=record)
        return
    turns = as_list(record.get("messages", record.get("conversations")))
    names = [n for n in as_list(record.get("images", record.get("image"))) if isinstance(n, str)]
    answers = []
    marked: list[Any] = []
    name = ""
    for turn in turns:
        if not isinstance(turn, Mapping):
            continue
        content = turn.get("content", turn.get("value"))
        parts = content if isinstance(content, list) else [content]
        names += [p["image"] for p in parts if isinstance(p, Mapping) and isinstance(p.get("image"), str)]
        texts = [str(p.get("text") or "") if isinstance(p, Mapping) else str(p) for p in parts]
        is_answer = turn.get("role", turn.get("from")) in ("assistant", "gpt")
        answers += texts if is_answer else []
        for match in (match for text in texts for match in _MARKED.finditer(text)):
            if match["name"] is not None:
                name = match["name"].strip()
            elif is_answer:
                marked += _in_markers(match["box"], name)
    if len(names) != 1:
        yield RawImage("", where, fault=f"expected one image, found {len(names)}")
        return
    parsed_answers = [
        _objects(answer)
        for answer in answers
        if any(key in answer for key in _KEYS) or answer.strip("`json\n ") == "[]"
    ]
    if marked and not parsed_answers:
        parsed_answers = [marked]
    if not parsed_answers or any(isinstance(objects, str) for objects in parsed_answers):
        expected = "expected an answer with bbox_2d or a box in markers, found none"
        fault = next((found for found in parsed_answers if isinstance(found, str)), expected)
        yield RawImage(names[0], where, fault=fault)
        return
    boxes = [_box(o, f"{where}: bbox_2d {i}") for i, o in enumerate(o for objects in parsed_answers for o in objects)]
    yield RawImage(names[0].removeprefix("file://"), where, boxes, extra=query_of(record))


def _in_markers(text: str, name: str) -> list[Any]:
    """Return the objects of the boxes between a pair of markers in the form of JSON answers."""
    numbers = [float(number) for number in _NUMBER.findall(text)]
    if not numbers or len(numbers) % 4:
        return [text]
    return [{"bbox_2d": numbers[at : at + 4], "label": name} for at in range(0, len(numbers), 4)]


def _objects(answer: str) -> list[Any] | str:
    """Return the objects of the JSON in an answer, or an error message."""
    begin, end = answer.find("["), answer.rfind("]")
    if "{" in answer[: max(begin, 0)]:
        begin, end = answer.find("{"), answer.rfind("}")
    try:
        value = json.loads(answer[begin : end + 1])
    except (ValueError, RecursionError) as error:
        return f"the answer is not JSON: {error}"
    return value if isinstance(value, list) else [value]


def _box(value: Any, where: str) -> RawObject:
    if not isinstance(value, Mapping):
        expected = "expected an object with bbox_2d and label, or four numbers between markers"
        return RawObject("", (), where, fault=f"{expected}, found {as_json(value)}")
    try:
        corners = tuple(number(v) for v in as_list(value.get("bbox_2d", value.get("point_2d"))))
    except ValueError as error:
        return RawObject("", (), where, fault=str(error))
    label = value.get("label")
    if isinstance(label, list | Mapping):
        return RawObject("", (), where, fault=f"label: expected text, found {as_json(label)}")
    box = RawObject("" if label is None else str(label), corners, where)
    if len(corners) == 4:
        return box
    if len(corners) == 2 and "point_2d" in value:
        return box._replace(corners_xyxy=corners * 2, is_point=True)
    return box._replace(corners_xyxy=(), fault=f"expected four numbers, found {as_json(value)}")


def _example(key: str, numbers: list[int]) -> Example:
    answer = json.dumps([{key: numbers, "label": "cat"}])
    turns = [{"role": "user", "content": "<image>Find the cat."}, {"role": "assistant", "content": answer}]
    return Example({"a.jsonl": json.dumps({"messages": turns, "images": ["a.jpg"]}) + "\n"}, "a.jsonl")


FORMAT = AnnotationFormat(
    "qwen",
    "conversations of Qwen3-VL",
    "`messages` or `conversations` whose answers are JSON with `bbox_2d` and `label`, or have boxes in markers "
    "(`<box>`, `<|box_start|>`), in thousandths of the image",
    {"box": _example("bbox_2d", [200, 200, 600, 800]), "point": _example("point_2d", [400, 500])},
    recognise,
    read,
)
IN_PIXELS = AnnotationFormat(
    "qwen-pixels",
    "conversations of Qwen2.5-VL",
    "the same in pixels; recognised by numbers above 1000, else the format has to be named",
    {"box": _example("bbox_2d", [20, 10, 60, 40]), "point": _example("point_2d", [40, 25])},
    read=read_pixels,
)
