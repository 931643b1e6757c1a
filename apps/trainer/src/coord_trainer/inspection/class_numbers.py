"""Classes that are counted from another number than their names: each object would be called as its neighbour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coord_trainer.inspection.findings import Finding


@dataclass(frozen=True)
class ClassNumbers:
    """The numbers by which a file says classes.

    Attributes:
        used: how many objects have each number
        names: name of each number
    """

    used: Mapping[int, int]
    names: Mapping[int, str]


def of_coco(document: Any) -> ClassNumbers | None:
    """Return the numbers of a COCO document; None where it has no such lists."""
    if not isinstance(document, Mapping):
        return None
    used = Counter(number for row in _rows(document, "annotations") if _is_number(number := row.get("category_id")))
    named = {row.get("id"): str(row.get("name")) for row in _rows(document, "categories")}
    return ClassNumbers(used, {number: name for number, name in named.items() if _is_number(number)})


def _rows(document: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    found = document.get(name)
    return (row for row in found if isinstance(row, Mapping)) if isinstance(found, list) else ()


def _is_number(value: Any) -> bool:
    return type(value) is int


def shifted_classes(found: ClassNumbers | None) -> list[Finding]:
    """Name numbers that are all one too high or too low: one beyond the names occurs, the one at the other end not."""
    if found is None or not found.names:
        return []
    first, last = min(found.names), max(found.names)
    outside = {number for number in found.used if number not in found.names}
    for beyond, unused, way in ((last + 1, first, "high"), (first - 1, last, "low")):
        if outside == {beyond} and not found.used.get(unused):
            count = sum(found.used.values())
            message = f"classes seem to be numbered one too {way}: each object would be called as its neighbour"
            evidence = (
                f"{found.used[beyond]} of {count} objects have class {beyond}, names go from {first} "
                f"({found.names[first]}) to {last} ({found.names[last]}), and no object has class {unused}"
            )
            fix = (
                f"{'subtract 1 from' if way == 'high' else 'add 1 to'} the class of each object, or number the names so"
            )
            return [Finding("class_numbers", "error", message, evidence, count, fix)]
    return []
