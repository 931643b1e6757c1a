"""Detects class numbers that are shifted by one against the class names, so that each object has a wrong name."""

from __future__ import annotations

import json

from coord_codec.counts import counted
from coord_data.finding import Finding
from coord_data.sources.raw_boxes import ClassNumbers

_LISTED = 12
"""Number of classes up to which the corrected list of names is printed in full."""


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
                f"{numbers.used[beyond]} of {counted(count, 'object has', 'objects have')} class {beyond}, names go "
            )
            evidence += (
                f"from {first} ({numbers.names[first]}) to {last} ({numbers.names[last]}), and no object has class "
            )
            evidence += str(unused)
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
    names = sorted(numbers.names.items())
    moved = [f"{number + step}: {json.dumps(name, ensure_ascii=False)}" for number, name in names]
    listed = ", ".join(moved if len(moved) <= _LISTED else [*moved[:2], "...", moved[-1]])
    return f"{of_class}, or write in data.yaml: `names: {{{listed}}}`"
