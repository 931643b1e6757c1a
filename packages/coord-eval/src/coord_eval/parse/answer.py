"""The result of parsing, and the rules for collecting objects and drops that all formats share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from coord_codec import GEOMETRIES, WILDCARD_TOKEN, CoordGrid, coord_tokens
from coord_codec import Geometry as Kind
from coord_codec.geometry import GeometryName

Completeness = Literal["complete", "repaired", "partial"]
Geometry = GeometryName
Order = Literal["xyxy", "yxyx", "xywh", "cxcywh", "xy"]
ORDERS: dict[str, tuple[int, ...]] = {
    "xyxy": (0, 1, 0, 1),
    "yxyx": (1, 0, 1, 0),
    "xywh": (0, 1, 0, 1),
    "cxcywh": (0, 1, 0, 1),
    "xy": (0, 1),
}
"""Axis of each coordinate, 0 for x and 1 for y, by order."""
Status = Literal["ok", "partial", "failed", "empty"]


@dataclass(frozen=True, slots=True)
class ParsedObject:
    """One object of an answer.

    Attributes:
        desc: the description as written, without surrounding white space
        box: `(x1, y1, x2, y2)` in [0, 1] with `x1 < x2` and `y1 < y2`
        bins: the numbers as written, in the order of the text (integers for tokens)
        span: characters `[start, end)` of the object in the text
        completeness: `complete`; `repaired` (swapped corners, faulty syntax or no label, see `repairs`);
            `partial` (all coordinates, but no end marker)
        first_coord_index: index of the object's first coordinate token among all coordinate tokens of the
            text, and into `coord_logprobs`; None in formats without coordinate tokens
        start_index: index of the object's start marker (or JSON record) in the text, and into a
            nested `desc_logprobs`; several boxes of one phrase share it; None for a box without phrase
        repairs: names of the repairs made, empty for complete objects
        geometry: a name of `coord_codec.GEOMETRIES`, as written; scores of boxes always use `box`
        points: the points in [0, 1] that draw a shape other than a box (`Geometry.outline`), else empty
        order: order of `bins`, a key of `ORDERS`; empty if a bin is not a single coordinate
        score: confidence in [0, 1] that the answer itself states, None without one
        coordinates: the numbers in [0, 1] of a shape other than a box, else empty
    """

    desc: str
    box: tuple[float, float, float, float]
    bins: tuple[float, ...]
    span: tuple[int, int]
    completeness: Completeness = "complete"
    first_coord_index: int | None = None
    start_index: int | None = None
    repairs: tuple[str, ...] = ()
    geometry: Geometry = "box"
    points: tuple[tuple[float, float], ...] = ()
    order: str = "xyxy"
    score: float | None = None
    coordinates: tuple[float, ...] = ()

    @property
    def is_box(self) -> bool:
        """Whether the object is a box that states its four sides, one by one."""
        kind = GEOMETRIES[self.geometry]
        return kind.is_box and kind.fits(len(self.bins))

    @property
    def coord_indices(self) -> range:
        """Indices of the object's coordinate tokens within the text; empty without any."""
        first = self.first_coord_index
        return range(0) if first is None else range(first, first + len(self.bins))


@dataclass(frozen=True, slots=True)
class Drop:
    """A piece of text that resembles an object and was left out.

    Attributes:
        reason: one of `DROP_REASONS`
        span: characters `[start, end)`
    """

    reason: str
    span: tuple[int, int]


DROP_REASONS = {
    "wrong_arity": "an object with another number of coordinates than its geometry has",
    "invalid_coordinate": "a coordinate outside the grid, a wildcard or not a number",
    "out_of_range": "a plain number outside the image with the scale in use",
    "no_area": "a box without width or height",
    "nested_start": "an object that another one interrupts before its coordinates are complete",
    "truncated": "an incomplete object at the end of the text",
    "stray_coordinates": "coordinates outside any object",
    "stray_text": "words between the coordinates of one object",
    "no_coordinates": "an object with a label and no coordinates",
    "unclosed_thought": "a text that ends inside its <think> part, whose content is not part of the answer",
    "unrecognised": "words or numbers in no known format",
    "ignored_label": "an object with a label that is not to be scored",
}
"""Reasons for dropping a piece of an answer, and their meaning."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The objects of one text, the dropped pieces, and the status of the answer.

    Attributes:
        objects: the objects in the order of the text, including repeats
        dropped: the dropped pieces in the order of the text
        status: `ok` (nothing dropped), `partial` (objects and drops), `failed` (text without an object), `empty` (no
            text, or a list that is explicitly empty)
        format: the format of the text, `none` if `auto` recognised none
        truncated: whether the text ends inside an object or inside its reasoning
        scale: divisors `(x, y)` of plain numbers, None if the format has its own scale
        scale_assumed: whether no scale was given and that of the grid (1000) was assumed
        coord_count: number of coordinate tokens in the whole text, including dropped objects; the length that
            `coord_logprobs` must have
        start_count: number of start markers (or JSON records with coordinates) in the whole text
        repeats: number of objects with the description and numbers of an earlier object of the answer
    """

    objects: tuple[ParsedObject, ...]
    dropped: tuple[Drop, ...]
    status: Status
    format: str
    truncated: bool = False
    scale: tuple[float, float] | None = None
    scale_assumed: bool = False
    coord_count: int = 0
    start_count: int = 0
    repeats: int = 0

    def __iter__(self) -> Iterator[ParsedObject]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)


_prefix, _suffix = map(re.escape, WILDCARD_TOKEN.split("*"))

COORD_PATTERN = rf"{_prefix}[^|<>]{{0,24}}{_suffix}"
"""Text spelled like a coordinate token, valid or not (wildcard, padded, too large); bounded, for linear time."""
COORD = re.compile(COORD_PATTERN)
COORD_START = WILDCARD_TOKEN.split("*", maxsplit=1)[0]


def corners(order: str, unit: Sequence[float]) -> list[float]:
    """Convert coordinates in [0, 1] from `order` to x before y, and a box to its two corners."""
    if order == "yxyx":
        return [value for pair in zip(unit[1::2], unit[::2], strict=True) for value in pair]
    if order in ("xywh", "cxcywh"):
        x, y, w, h = unit
        x, y = (x, y) if order == "xywh" else (x - w / 2, y - h / 2)
        return [x, y, x + w, y + h]
    return list(unit)


OVERSHOOT = 0.01
"""Share of the image by which plain numbers may exceed it because of rounding; they are clipped."""

POINT_RADIUS = 0.0005
"""Half the side of the square that represents a point, which is one cell of a grid of 1000."""


@lru_cache(maxsize=8)
def token_units(grid: CoordGrid) -> Mapping[str, tuple[int, float]]:
    """Return the bin and the coordinate in [0, 1] of every valid coordinate token.

    Bins beyond 1, in a grid with fewer units than bins, are clipped to 1.
    """
    return MappingProxyType({token: (k, min(grid.dequantize(k), 1.0)) for k, token in enumerate(coord_tokens(grid))})


def shape_order(geometry: Geometry) -> str:
    """Return the order of the numbers of a shape, if nothing else states it; empty if it has others than x and y."""
    kind = GEOMETRIES[geometry]
    if kind.is_box:
        return "xyxy"
    return "xy" if kind.has_points else ""


def _enclosing_box(kind: Kind, unit: Sequence[float]) -> list[float]:
    """Return the box around a shape, or the small square around a single point, clipped at the image border."""
    x1, y1, x2, y2 = kind.to_box(tuple(unit))
    r = POINT_RADIUS if (x1, y1) == (x2, y2) and not kind.closed else 0.0
    return [max(x1 - r, 0.0), max(y1 - r, 0.0), min(x2 + r, 1.0), min(y2 + r, 1.0)]


@dataclass(frozen=True)
class Scale:
    """Divisors of plain numbers: `x` for abscissas, `y` for ordinates."""

    x: float
    y: float
    assumed: bool = False


@dataclass
class AnswerBuilder:
    """Collects the objects and drops of one text.

    Attributes:
        format: the format being parsed
        scale: divisors of plain numbers
        keep_flat: whether boxes without area are kept, for callers that replace the sides
    """

    format: str
    scale: Scale | None = None
    objects: list[ParsedObject] = field(default_factory=list)
    dropped: list[Drop] = field(default_factory=list)
    coord_count: int = 0
    start_count: int = 0
    truncated: bool = False
    explicit_empty: bool = False
    repeats: int = 0
    numbers_read: bool = False
    read_scale: Scale | None = None
    keep_flat: bool = False
    _seen: set[tuple[str, tuple[float, ...]]] = field(default_factory=set)

    def drop(self, reason: str, start: int, end: int) -> None:
        """Record the characters `[start, end)` as dropped."""
        self.dropped.append(Drop(reason, (start, end)))

    def add_box(
        self,
        desc: str,
        bins: Sequence[float],
        unit: Sequence[float],
        span: tuple[int, int],
        *,
        first_coord_index: int | None = None,
        start_index: int | None = None,
        repairs: tuple[str, ...] = (),
        partial: bool = False,
        geometry: Geometry = "box",
        points: tuple[tuple[float, float], ...] = (),
        order: str = "xyxy",
        score: float | None = None,
        coordinates: tuple[float, ...] = (),
    ) -> None:
        """Add a box in [0, 1]; swapped corners are repaired, boxes without area are dropped."""
        x1, y1, x2, y2 = unit
        if (x1 == x2 or y1 == y2) and not self.keep_flat:
            self.drop("no_area", *span)
            return
        if x1 > x2 or y1 > y2:
            repairs = (*repairs, "swapped_corners")
            x1, y1, x2, y2 = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
        desc = desc.strip()
        if not desc:
            repairs = (*repairs, "no_label")
        state: Completeness = "partial" if partial else "repaired" if repairs else "complete"
        box, bins = (x1, y1, x2, y2), tuple(bins)
        self.repeats += (desc, bins) in self._seen
        self._seen.add((desc, bins))
        fields = (desc, box, bins, span, state, first_coord_index, start_index, repairs, geometry, points, order, score)
        self.objects.append(ParsedObject(*fields, coordinates))

    def add_shape(
        self,
        desc: str,
        bins: Sequence[float],
        unit: Sequence[float],
        span: tuple[int, int],
        *,
        geometry: Geometry = "box",
        order: str = "xyxy",
        **details: Any,
    ) -> None:
        """Add a box, point or polygon in [0, 1] with its bounding box, as `add_box` does."""
        if not GEOMETRIES[geometry].reads(len(bins)):
            self.drop("wrong_arity", *span)
            return
        self._add_corners(desc, bins, corners(order, unit), span, geometry, order=order, **details)

    def _add_corners(
        self,
        desc: str,
        bins: Sequence[float],
        unit: Sequence[float],
        span: tuple[int, int],
        geometry: Geometry,
        **details: Any,
    ) -> None:
        """Add a box by its corners, or another shape by its numbers; one of which no point is labelled is dropped."""
        kind = GEOMETRIES[geometry]
        if not kind.is_box:
            coordinates = tuple(unit)
            points = kind.outline(coordinates)
            if not kind.placed(points):
                self.drop("no_coordinates", *span)
                return
            details |= {"points": points, "coordinates": coordinates}
            unit = _enclosing_box(kind, unit)
        self.add_box(desc, bins, unit, span, geometry=geometry, **details)

    def add_numbers(
        self,
        desc: str,
        numbers: Sequence[float],
        span: tuple[int, int],
        *,
        geometry: Geometry = "box",
        order: str = "xyxy",
        own_scale: float | None = None,
        repairs: tuple[str, ...] = (),
        **details: Any,
    ) -> None:
        """Add a shape in plain numbers, which are divided by `scale`, as `add_shape` does.

        Without a scale from the caller, `own_scale` of the format applies, or else numbers in [0, 1] are fractions.
        """
        kind = GEOMETRIES[geometry]
        if not kind.reads(len(numbers)):
            self.drop("wrong_arity", *span)
            return
        assert self.scale is not None
        scale = self.scale
        if scale.assumed and own_scale is not None:
            scale = Scale(own_scale, own_scale)
        elif scale.assumed and any(n % 1 for n in numbers) and all(-OVERSHOOT <= n <= 1 + OVERSHOOT for n in numbers):
            scale = Scale(1.0, 1.0)
        self.numbers_read |= scale is self.scale
        self.read_scale = scale
        along_y = "x" if order.startswith("y") else "y"
        unit = [n / (scale.y if kind.number_at(i) == along_y else scale.x) for i, n in enumerate(numbers)]
        unit = corners(order, unit)
        if not all(math.isfinite(u) and -OVERSHOOT <= u <= 1 + OVERSHOOT for u in unit):
            self.drop("out_of_range", *span)
            return
        clipped = [min(max(u, 0.0), 1.0) for u in unit]
        repairs = repairs if clipped == unit else (*repairs, "clipped")
        self._add_corners(desc, numbers, clipped, span, geometry, order=order, repairs=repairs, **details)

    def build(self, text: str) -> Answer:
        """Return the finished answer."""
        status: Status = "failed"
        if self.objects:
            status = "partial" if self.dropped else "ok"
        elif not self.dropped and (self.explicit_empty or not text.strip()):
            status = "empty"
        scale = self.scale if self.numbers_read else self.read_scale
        return Answer(
            objects=tuple(self.objects),
            dropped=tuple(self.dropped),
            status=status,
            format=self.format,
            truncated=self.truncated,
            scale=None if scale is None else (scale.x, scale.y),
            scale_assumed=scale is not None and scale.assumed,
            coord_count=self.coord_count,
            start_count=self.start_count,
            repeats=self.repeats,
        )
