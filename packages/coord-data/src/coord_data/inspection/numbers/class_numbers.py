"""Detects class numbers that are shifted by one against the class names, so that each object has a wrong name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coord_data.inspection.numbers.findings import Finding

_LISTED = 12
"""Number of classes up to which the corrected list of names is printed in full."""


@dataclass(frozen=True)
class ClassNumbers:
    """Class numbers of an annotation file.

    Attributes:
        used: number of objects of each class number
        names: name of each class number
        of: source of the names: the `names` of YOLO, or the `categories` of COCO
    """

    used: Mapping[int, int]
    names: Mapping[int, str]
    of: Literal["names", "categories"] = "names"


def of_coco(document: Any) -> ClassNumbers | None:
    """Return the class numbers of a COCO document; None if it is not a JSON object."""
    if not isinstance(document, Mapping):
        return None
    used = Counter(number for row in _rows(document, "annotations") if _is_number(number := row.get("category_id")))
    named = {row.get("id"): str(row.get("name")) for row in _rows(document, "categories")}
    return ClassNumbers(used, {number: name for number, name in named.items() if _is_number(number)}, "categories")


def _rows(document: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    rows = document.get(name)
    return (row for row in rows if isinstance(row, Mapping)) if isinstance(rows, list) else ()


def _is_number(value: Any) -> bool:
    return type(value) is int


def shifted_classes(numbers: ClassNumbers | None) -> list[Finding]:
    """Report class numbers that are all one too high or too low.

    The number just beyond the names is in use, that at the other end is not, and all have names after a shift by one.
    """
    if numbers is None or not numbers.names:
        return []
    first, last = min(numbers.names), max(numbers.names)
    for step, beyond, unused, direction in ((1, last + 1, first, "high"), (-1, first - 1, last, "low")):
        fits = all(number - step in numbers.names for number, times in numbers.used.items() if times)
        if numbers.used.get(beyond) and not numbers.used.get(unused) and fits:
            count = sum(numbers.used.values())
            message = f"class numbers seem one too {direction}: each object would get the name of a neighbouring class"
            evidence = (
                f"{numbers.used[beyond]} of {count} objects have class {beyond}, names go from {first} "
                f"({numbers.names[first]}) to {last} ({numbers.names[last]}), and no object has class {unused}"
            )
            return [Finding("class_numbers", "error", message, evidence, count, _correction(numbers, step))]
    return []


def _correction(numbers: ClassNumbers, step: int) -> str:
    """Return the correction of the class numbers of the objects or of the names; names have no negative numbers."""
    of_objects, of_names = ("subtract 1 from", "add 1 to") if step > 0 else ("add 1 to", "subtract 1 from")
    if numbers.of == "categories":
        return f"{of_objects} the category_id of each annotation, or {of_names} the id of each category"
    of_class = f"{of_objects} the class of each object"
    if min(numbers.names) + step < 0:
        return of_class
    moved = [
        f"{number + step}: {json.dumps(numbers.names[number], ensure_ascii=False)}" for number in sorted(numbers.names)
    ]
    listed = ", ".join(moved if len(moved) <= _LISTED else [*moved[:2], "...", moved[-1]])
    return f"{of_class}, or write in data.yaml: `names: {{{listed}}}`"
