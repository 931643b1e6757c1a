"""Groups of numbers in a text, and the shapes that they are.

A group is an innermost list of numbers, `[1, 2, 3, 4]` or `(1, 2)`. Every format that writes plain numbers finds its
groups and divides them into shapes by the rules of this file, so that each group becomes an object or a drop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, TypeVar

from coord_codec import GEOMETRIES
from coord_eval.parse.answer import Geometry

_DIGITS = "[0-9\uff10-\uff19]+"
NUMBER = rf"[-+\u2212]?(?:{_DIGITS}(?:\.{_DIGITS})?|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?"
"""A number, in every format: `12`, `-0.5`, `+3`, `.5`, `1e-3`, also with a printed minus or in full-width digits."""
PERCENT = r"[ \t]?%"
"""What makes a number after it a percentage, which is a share of the image whatever the scale of plain numbers is."""
Value = tuple[float, float | None, int | None]
"""A coordinate as written; its value in [0, 1], None for a plain number; and the index of its token, None without."""
NumberKind = str
"""What the text says about the geometry of numbers: its name, or `any` if it says nothing."""

_PART = re.compile(
    rf"(?P<number>{NUMBER})(?P<percent>{PERCENT})?|(?P<open>[\[({{])|(?P<close>[\])}}])|(?P<cut>;)|(?P<word>[^\s,|\[\](){{}};]+)"
)
T = TypeVar("T")


def read_number(digits: str) -> float:
    """Return a number of `NUMBER`."""
    return float(digits.replace("\u2212", "-"))


def read_value(digits: str, percent: bool = False) -> Value:
    """Return a number of `NUMBER` as a coordinate; a percentage states its value in [0, 1]."""
    number = read_number(digits)
    return number, number / 100 if percent else None, None


def number_of(value: Value) -> float:
    """Return a coordinate as written."""
    return value[0]


@dataclass(slots=True)
class NumberGroup:
    """The numbers of one innermost list, from its bracket (or first number) to the end of its closing bracket.

    `depth` brackets stand around them, the outermost at `outer`, which the groups in it share.
    """

    values: list[Value]
    start: int
    end: int
    depth: int
    outer: int
    closed: bool = True

    @property
    def numbers(self) -> list[float]:
        """The numbers as written."""
        return [number for number, _, _ in self.values]


@dataclass(slots=True)
class Groups:
    """The groups of a range of a text, in its order, and the positions of words between them."""

    groups: list[NumberGroup] = field(default_factory=list)
    words: list[tuple[int, int]] = field(default_factory=list)


def read_groups(text: str, start: int, stop: int, bare: bool = True) -> Groups:
    """Find the groups of numbers in a range of a text; with `bare`, numbers outside brackets are a group as well.

    Example:
        >>> [group.numbers for group in read_groups("[[1, 2], [3, 4]; 5", 0, 18).groups]
        [[1.0, 2.0], [3.0, 4.0], [5.0]]
    """
    found = Groups()
    opened: list[int] = []
    group: NumberGroup | None = None
    for part in _PART.finditer(text, start, stop):
        kind = part.lastgroup
        if kind in ("number", "percent"):
            if group is None and (opened or bare):
                outer = opened[0] if opened else part.start()
                begin = opened[-1] if opened else part.start()
                group = NumberGroup([], begin, part.end(), len(opened), outer, not opened)
                found.groups.append(group)
            if group is not None:
                group.values.append(read_value(part["number"], part["percent"] is not None))
                group.end = part.end()
        elif kind == "open":
            if group is not None:
                group.closed, group = True, None  # [1, 2, [3, 4]]: the inner list is a group of its own
            opened.append(part.start())
        elif kind == "close":
            if group is not None:
                group.end, group.closed, group = part.end(), True, None
            if opened:
                opened.pop()
        elif kind == "cut":
            if group is not None:
                group.closed, group = True, None
        else:
            found.words.append(part.span())
    return found


def values_in(text: str, start: int = 0, stop: int | None = None) -> list[list[Value]]:
    """Return the values of each group of numbers in a range of a text."""
    return [group.values for group in read_groups(text, start, len(text) if stop is None else stop).groups]


def proper_boxes(numbers: Sequence[float]) -> bool:
    """Return whether numbers are boxes one after the other, each with x1 < x2 and y1 < y2; an outline never is."""
    return all(numbers[i] < numbers[i + 2] and numbers[i + 1] < numbers[i + 3] for i in range(0, len(numbers) - 3, 4))


def split_shapes(
    groups: Sequence[Sequence[T]],
    kind: NumberKind,
    requested: Geometry,
    value: Callable[[T], float] = lambda item: item,  # type: ignore[assignment,return-value]
) -> list[tuple[Geometry, list[T]]]:
    """Divide groups of numbers that stand together into shapes.

    A shape may have a number of coordinates that its geometry does not have; it is a drop then. The geometry "" is that
    of numbers that can be read in two ways. `kind` is what the text says about the geometry, `requested` what the
    caller expects where it says nothing; `value` returns the number of an item.

    Example:
        >>> split_shapes([[1, 2], [3, 4]], "any", "box"), split_shapes([[1, 2], [3, 4]], "any", "point")
        ([('box', [1, 2, 3, 4])], [('point', [1, 2]), ('point', [3, 4])])
    """
    kind = _stated_or_requested(groups, kind, requested)
    if kind not in ("any", "box"):
        return [(kind, shape) for shape in _outlines(groups, kind)]
    lengths = {len(group) for group in groups}
    if kind == "box" and lengths in ({2}, {8}) and sum(map(len, groups)) == 8:
        corners = list(chain(*groups))
        numbers = list(map(value, corners))
        if is_quad(numbers) and not proper_boxes(numbers):  # the four corners of a turned box
            return [("polygon" if requested == "polygon" else "oriented", corners)]
    if lengths == {2} and kind == "any" and len(groups) != 2:
        flat = list(chain(*groups))
        if len(groups) % 2 == 0 and proper_boxes(list(map(value, flat))):
            return [("", flat)]  # as many points, or half as many boxes
        return [("point", list(group)) for group in groups]
    if lengths == {1, 2} or (lengths == {2} and len(groups) % 2):  # corners of which some or parts of some are missing
        step = 2 if len(groups) % 2 == 0 else len(groups)
        return [("box", list(chain(*groups[i : i + step]))) for i in range(0, len(groups), step)]
    shapes: list[tuple[Geometry, list[T]]] = []
    for paired, run in groupby(groups, lambda group: len(group) == 2):
        if paired:  # corners of boxes; one that is left is a point
            flat = list(chain(*run))
            whole = len(flat) - len(flat) % 4
            shapes += [("box", flat[i : i + 4]) for i in range(0, whole, 4)]
            shapes += [("point" if kind == "any" else "box", flat[whole:])] if flat[whole:] else []
        else:
            shapes += [shape for group in run for shape in _flat_shapes(list(group), kind, value)]
    return shapes


def _stated_or_requested(groups: Sequence[Sequence[Any]], kind: NumberKind, requested: Geometry) -> NumberKind:
    """Return the geometry that the text states, or what the caller expects if the text leaves it open."""
    if requested == "point" and kind in ("any", "box"):
        return "box" if kind == "box" or {len(group) for group in groups} == {4} else "point"
    if requested == "box" or kind == "any":
        return kind if requested == "box" else requested
    # Points of one list, and any outline, are what the caller expects if their number fits.
    pairs = {len(group) for group in groups} == {2}
    several = kind == "polygon" or (kind == "point" and pairs and len(groups) > 1)
    if not several or requested in ("point", "polygon" if kind == "polygon" else ""):
        return kind
    counts = [2 * len(groups)] if pairs else list(map(len, groups))
    return requested if all(map(GEOMETRIES[requested].fits, counts)) else kind


def _outlines(groups: Sequence[Sequence[T]], kind: NumberKind) -> list[list[T]]:
    """Return the numbers of each shape other than a box: those of each list, or of the lists of x and y together."""
    expected = GEOMETRIES[kind]
    alone = expected.fixed and expected.least == expected.step
    if alone or len(groups) < 2 or {len(group) for group in groups} != {expected.step}:
        return list(map(list, groups))
    flat = list(chain(*groups))
    length = expected.least if expected.fixed and len(flat) % expected.least == 0 else len(flat)
    return [flat[i : i + length] for i in range(0, len(flat), length)]


def _flat_shapes(items: list[T], kind: NumberKind, value: Callable[[T], Any]) -> list[tuple[Geometry, list[T]]]:
    """Divide one list of numbers: several boxes, if all of them have their corners in order, else an outline."""
    if kind == "any" and len(items) > 4 and len(items) % 2 == 0:
        if len(items) % 4 == 0 and proper_boxes([value(item) for item in items]):
            return [("box", items[i : i + 4]) for i in range(0, len(items), 4)]
        return [("polygon", items)]
    return [("box", items)]


def is_quad(numbers: Sequence[float]) -> bool:
    """Return whether eight numbers are the corners of a convex quadrilateral, one after the other around it."""
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    turns = [
        (points[i - 1][0] - points[i - 2][0]) * (points[i][1] - points[i - 1][1])
        - (points[i - 1][1] - points[i - 2][1]) * (points[i][0] - points[i - 1][0])
        for i in range(len(points))
    ]
    return len(points) == 4 and (min(turns) >= 0 or max(turns) <= 0) and any(turns)
