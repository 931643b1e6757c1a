"""Classes that are counted from another number than their names: each object would be called as its neighbour."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coord_trainer.inspection.numbers.findings import Finding

_LISTED = 12
"""Classes up to which the line that mends their numbers is written out."""


@dataclass(frozen=True)
class ClassNumbers:
    """The numbers by which a file says classes.

    Attributes:
        used: how many objects have each number
        names: name of each number
        of: where the names stand: the `names` of YOLO, or the `categories` of COCO
    """

    used: Mapping[int, int]
    names: Mapping[int, str]
    of: Literal["names", "categories"] = "names"


def of_coco(document: Any) -> ClassNumbers | None:
    """Return the numbers of a COCO document; None where it has no such lists."""
    if not isinstance(document, Mapping):
        return None
    used = Counter(number for row in _rows(document, "annotations") if _is_number(number := row.get("category_id")))
    named = {row.get("id"): str(row.get("name")) for row in _rows(document, "categories")}
    return ClassNumbers(used, {number: name for number, name in named.items() if _is_number(number)}, "categories")


def _rows(document: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    found = document.get(name)
    return (row for row in found if isinstance(row, Mapping)) if isinstance(found, list) else ()


def _is_number(value: Any) -> bool:
    return type(value) is int


def shifted_classes(found: ClassNumbers | None) -> list[Finding]:
    """Name numbers that are all one too high or too low: one beyond the names occurs, the one at the other end not.

    Names may leave numbers out, as COCO's do: every number in use must have a name when it is moved by one.
    """
    if found is None or not found.names:
        return []
    first, last = min(found.names), max(found.names)
    for step, beyond, unused, way in ((1, last + 1, first, "high"), (-1, first - 1, last, "low")):
        fits = all(number - step in found.names for number, times in found.used.items() if times)
        if found.used.get(beyond) and not found.used.get(unused) and fits:
            count = sum(found.used.values())
            message = f"classes seem to be numbered one too {way}: each object would be called as its neighbour"
            evidence = (
                f"{found.used[beyond]} of {count} objects have class {beyond}, names go from {first} "
                f"({found.names[first]}) to {last} ({found.names[last]}), and no object has class {unused}"
            )
            return [Finding("class_numbers", "error", message, evidence, count, _mend(found, step))]
    return []


def _mend(found: ClassNumbers, step: int) -> str:
    """Say which numbers to change: those of the names, where these may have them, or those of the objects."""
    of_objects, of_names = ("subtract 1 from", "add 1 to") if step > 0 else ("add 1 to", "subtract 1 from")
    if found.of == "categories":
        return f"{of_objects} the category_id of each annotation, or {of_names} the id of each category"
    told = f"{of_objects} the class of each object"
    if min(found.names) + step < 0:
        return told
    moved = [
        f"{number + step}: {json.dumps(found.names[number], ensure_ascii=False)}" for number in sorted(found.names)
    ]
    listed = ", ".join(moved if len(moved) <= _LISTED else [*moved[:2], "...", moved[-1]])
    return f"{told}, or write in data.yaml: `names: {{{listed}}}`"
