"""COCO detection JSON (pixel xywh boxes) to instances (boxes in [0,1]), with every oddity counted.

Format: https://cocodataset.org/#format-data.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coord_codec import Instance, Object, Problem

from .errors import InputError

# Annotators' boxes overshoot the picture by rounding; within this many pixels they are clipped and counted.
CLIP_PIXELS = 1.0


@dataclass
class Reading:
    """Instances, what was wrong (a problem each) and what was left out on purpose (counted by reason)."""

    instances: list[Instance] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)


def read_coco(path: Path) -> Reading:
    """Read a COCO file; crowd regions are left out of the targets (scoring ignores them, as COCO does).

    Raises:
        InputError: when the file is not COCO detection JSON at all.
    """
    document = _load(path)
    names = {
        category["id"]: category["name"] for category in _table(document, "categories", path, ("id", "name"))
    }
    images = _table(document, "images", path, ("id", "file_name", "width", "height"))
    reading = Reading()
    by_image: dict[Any, list[tuple[int, dict]]] = {image["id"]: [] for image in images}
    for position, annotation in enumerate(
        _table(document, "annotations", path, ("image_id", "category_id", "bbox"))
    ):
        where = f"{path}: annotations[{position}] (id {annotation.get('id', 'none')})"
        if annotation["image_id"] not in by_image:
            reading.problems.append(
                Problem(where, "image_id", f"no image has the id {annotation['image_id']!r}")
            )
        elif annotation["category_id"] not in names:
            message = f"no category has the id {annotation['category_id']!r}"
            reading.problems.append(Problem(where, "category_id", message))
        elif annotation.get("iscrowd"):
            reading.notes["crowd regions left out of the targets"] += 1
        else:
            by_image[annotation["image_id"]].append((where, annotation))
    for image in images:
        objects = [_object(where, a, image, names, reading) for where, a in by_image[image["id"]]]
        reading.instances.append(
            Instance(
                image=image["file_name"],
                width=image["width"],
                height=image["height"],
                image_id=image["id"],
                objects=[found for found in objects if found is not None],
            )
        )
    return reading


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check data.annotations") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); expected COCO annotations or instance JSONL") from None
    if not isinstance(document, dict):
        found = type(document).__name__
        raise InputError(
            f"{path}: expected a COCO object with images, annotations and categories, found a JSON {found}"
            + ("; a results list has no images and cannot be trained on" if found == "list" else "")
        )
    return document


def _table(document: dict[str, Any], key: str, path: Path, fields: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = document.get(key)
    if not isinstance(rows, list):
        found = ", ".join(sorted(document)) or "nothing"
        raise InputError(f"{path}: expected COCO annotations with a list {key!r}, found the keys {found}")
    for position, row in enumerate(rows):
        missing = [name for name in fields if not isinstance(row, dict) or name not in row]
        if missing:
            raise InputError(
                f"{path}: {key}[{position}] lacks {', '.join(missing)}; not COCO detection annotations"
            )
    return rows


def _object(where: str, annotation: dict, image: dict, names: dict, reading: Reading) -> Object | None:
    box = annotation["bbox"]
    numbers = isinstance(box, list) and len(box) == 4
    if not numbers or not all(isinstance(v, (int, float)) and math.isfinite(v) for v in box):
        problem = f"expected four finite numbers [x, y, width, height], found {box!r}"
        return _refuse(reading, where, problem)
    x, y, w, h = map(float, box)
    if w <= 0 or h <= 0:
        return _refuse(reading, where, f"the box has no area: width {w:g}, height {h:g} pixels")
    width, height = image["width"], image["height"]
    if min(x, y) < -CLIP_PIXELS or x + w > width + CLIP_PIXELS or y + h > height + CLIP_PIXELS:
        inside = f"the picture {image['file_name']} is {width} x {height}"
        return _refuse(reading, where, f"[{x:g}, {y:g}, {w:g}, {h:g}] lies outside: {inside}")
    corners = (max(x, 0.0), max(y, 0.0), min(x + w, width), min(y + h, height))
    if corners != (x, y, x + w, y + h):
        reading.notes[f"boxes clipped by at most {CLIP_PIXELS:g} pixel"] += 1
    scaled = [corners[0] / width, corners[1] / height, corners[2] / width, corners[3] / height]
    try:
        return Object(desc=names[annotation["category_id"]], bbox=scaled)
    except ValueError as error:
        return _refuse(reading, where, str(error))


def _refuse(reading: Reading, where: str, message: str) -> None:
    reading.problems.append(Problem(where, "bbox", message))
