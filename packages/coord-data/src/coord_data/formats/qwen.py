"""Reader of conversations whose answers are JSON with `bbox_2d` or `point_2d` and `label`, or have boxes in markers.

The JSON is Qwen3-VL's and Qwen2.5-VL's. Markers are those of Qwen2-VL, `<|object_ref_start|>cat<|object_ref_end|>
<|box_start|>(x1,y1),(x2,y2)<|box_end|>`, and of Qwen-VL and InternVL, `<ref>cat</ref><box>[[x1, y1, x2, y2]]</box>`, in
thousandths too; a name holds for all boxes behind it, also one in the question for those of the answer. In an answer
that begins with a box and ends with a name, each name holds for the boxes before it.

Qwen3-VL writes thousandths of the image, Qwen2.5-VL pixels of the resized image, which the numbers alone cannot tell
apart. They are read as thousandths unless one exceeds 1000; `--format qwen-pixels` reads pixels. A note names the unit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from coord_codec.fields import Unit, largest_turn
from coord_codec.files import InputError
from coord_codec.thoughts import find_thoughts, without_thoughts
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.negatives import ABSENT, IN_THOUGHT, check_no_video, says_no_box, says_none
from coord_data.formats.stated_fields import kept, with_fields
from coord_data.sources.raw import RawImage, RawObject, Reading, as_json, as_list, check, images_of, number, query_of
from coord_data.sources.source import Source

_KEYS = ("bbox_2d", "point_2d")
_READ = frozenset((*_KEYS, "label"))
_MARKED = re.compile(
    r"(?:<\|object_ref_start\|>|<ref>)(?P<name>.*?)(?:<\|object_ref_end\|>|</ref>)"
    r"|(?:<\|box_start\|>|<box>)(?P<box>.*?)(?:<\|box_end\|>|</box>)",
    re.DOTALL,
)
"""A name or a box between markers."""
MARKS = (*_KEYS, "<|box_start|>", "<box>")
"""What tells boxes in a conversation."""
_IMAGE = re.compile(r"<img>(.*?)</img>")
"""An image as Qwen-VL names it in the question."""
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")  # also in <|coord_500|>, which is in thousandths too


def recognise(source: Source) -> bool:
    """Return whether a source has conversations, and `bbox_2d`, `point_2d` or a box in markers near its beginning."""
    return bool({"messages", "conversations"} & set(source.record or {})) and any(key in source.head for key in MARKS)


def read(source: Source, images: Path | None, pixels: bool | None = None) -> Reading:
    """Read JSON lines or a JSON list of conversations; the largest number tells the unit if `pixels` is None."""
    fields: dict[str, Mapping[str, Any]] = {}
    raw_images = list(images_of(source.records(), partial(_images, fields)))
    numbers = (v for image in raw_images for box in image.objects for v in box.corners_xyxy)
    largest = max(filter(math.isfinite, numbers), default=0.0)
    if pixels is None:
        pixels = largest > 1000
    largest_angle = cache(partial(largest_turn, fields.values()))

    def with_stated(box: RawObject) -> RawObject:
        of_box = fields.get(box.where, {})
        unit: Unit = "pixels" if pixels else "thousandths"
        return box.tried(lambda stated: with_fields(stated, of_box, "xyxy", unit, largest_angle))

    raw_images = [image._replace(objects=list(map(with_stated, image.objects))) for image in raw_images]
    if not pixels:
        raw_images = [image._replace(objects=map(_as_fractions, image.objects)) for image in raw_images]
    unit = "pixels" if pixels else "thousandths of the image; --format qwen-pixels reads pixels"
    note = f"{source.path}: bbox_2d is read as {unit} (the largest number is {largest:g})"
    return Reading(raw_images, images or source.path.parent, (note,), in_thousandths=not pixels)


def _as_fractions(box: RawObject) -> RawObject:
    return box._replace(corners_xyxy=tuple(v / 1000 for v in box.corners_xyxy), unit="fractions")


def _images(fields: dict[str, Mapping[str, Any]], record: Mapping[str, Any], where: str) -> list[RawImage]:
    """Return the image of a record; `fields` gets those of each object, which are read once the unit is known."""
    check_no_video(record)
    names = [n for n in as_list(record.get("images", record.get("image"))) if isinstance(n, str)]
    answers: list[str] = []
    marked: list[Any] = []
    boxes_in_markers = boxes_in_thoughts = 0
    name = ""
    for turn in as_list(record.get("messages", record.get("conversations"))):
        if not isinstance(turn, Mapping):
            continue
        content = turn.get("content", turn.get("value"))
        parts = content if isinstance(content, list) else [content]
        names += [p["image"] for p in parts if isinstance(p, Mapping) and isinstance(p.get("image"), str)]
        is_answer = turn.get("role", turn.get("from")) in ("assistant", "gpt")
        for written in (str(p.get("text") or "") if isinstance(p, Mapping) else str(p) for p in parts):
            boxes_in_thoughts += _boxes_in_thoughts(written) if is_answer else 0
            text = without_thoughts(written) if is_answer else written
            names += [] if is_answer else _IMAGE.findall(text)
            marks = list(_MARKED.finditer(text))
            is_named_after = is_answer and bool(marks) and marks[0]["name"] is None and marks[-1]["box"] is None
            step = -1 if is_named_after else 1
            of_answer: list[list[Any]] = []
            for match in marks[::step]:
                if match["name"] is not None:
                    name = match["name"].strip()
                elif is_answer:
                    of_answer.append(_in_markers(match["box"], name))
            boxes_in_markers += len(of_answer)
            marked += [item for items in of_answer[::step] for item in items]
            if is_answer and (any(key in text for key in _KEYS) or says_none(text)):
                answers.append(text)
    if len(names) != 1:
        raise InputError(f"expected one image, found {len(names)}")
    if not answers and not boxes_in_markers:
        raise InputError("expected an answer with bbox_2d or a box in markers, found none")
    objects = [item for answer in answers for item in _objects(answer)] if answers else marked
    objects, notes = kept(objects, _READ, {**record, "image": names[0]})
    notes += (IN_THOUGHT,) * boxes_in_thoughts
    boxes = []
    for position, item in enumerate(objects):
        if isinstance(item, Mapping):
            if says_no_box(item.get("bbox_2d", item.get("point_2d", item))):
                notes += (ABSENT,)
                continue
            fields[f"{where}: bbox_2d {position}"] = item
        boxes.append(RawObject("", (), f"{where}: bbox_2d {position}").tried(partial(_box, item)))
    return [RawImage(names[0].removeprefix("file://"), where, boxes, extra=query_of(record), notes=notes)]


def _boxes_in_thoughts(text: str) -> int:
    """Return the number of boxes that the thoughts of an answer name, by their keys or markers."""
    thoughts = [text[start:end] for start, end in find_thoughts(text)[0]]
    marked = [match for thought in thoughts for match in _MARKED.finditer(thought) if match["box"] is not None]
    return len(marked) + sum(thought.count(key) for thought in thoughts for key in _KEYS)


def _in_markers(text: str, name: str) -> list[Any]:
    """Return the objects of the boxes between a pair of markers in the form of JSON answers."""
    if says_none(text):
        return [{"bbox_2d": None, "label": name}]
    numbers = [float(number) for number in _NUMBER.findall(text)]
    if not numbers or len(numbers) % 4:
        return [text]
    return [{"bbox_2d": numbers[at : at + 4], "label": name} for at in range(0, len(numbers), 4)]


def _objects(answer: str) -> list[Any]:
    """Return the objects of the JSON in an answer."""
    if says_none(answer):
        return []
    begin, end = answer.find("["), answer.rfind("]")
    brace = answer.find("{")
    if brace >= 0 and (brace < begin or begin < 0):
        begin, end = brace, answer.rfind("}")
    try:
        value = json.loads(answer[begin : end + 1])
    except (ValueError, RecursionError) as error:
        raise InputError(f"the answer is not JSON: {error}") from None
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(inner := next(iter(value.values())), list):
        return inner if all(isinstance(item, Mapping) for item in inner) else [value]
    return as_list(value)


def _box(value: Any, stated: RawObject) -> RawObject:
    expected = "expected an object with bbox_2d and label, or four numbers between markers"
    check(isinstance(value, Mapping), expected, value)
    corners = tuple(number(v) for v in as_list(value.get("bbox_2d", value.get("point_2d"))))
    label = value.get("label")
    check(not isinstance(label, list | Mapping), "label: expected text", label)
    stated = stated._replace(desc="" if label is None else str(label))
    if is_point := len(corners) == 2 and "point_2d" in value:
        corners *= 2
    if len(corners) != 4:
        return stated._replace(fault=f"expected four numbers, found {as_json(value)}")
    return stated._replace(corners_xyxy=corners, is_point=is_point)


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
    read=partial(read, pixels=True),
)
