"""Collects the objects and drops of one text, by the rules that all formats share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from coord_codec import GEOMETRIES, WILDCARD_TOKEN, CoordGrid, InputError, coord_tokens
from coord_codec import Geometry as Shape
from coord_codec.fields import NumberOrder, Unit, check_unit, names_of, rotated_corners
from coord_eval.parse.answer import (
    OVERSHOOT,
    Answer,
    Completeness,
    Confidence,
    Drop,
    Geometry,
    ParsedObject,
    Status,
    corners,
    without,
)
from coord_eval.parse.numbers import NUMBER, Value, read_number

COORD_START, _end = WILDCARD_TOKEN.split("*")
COORD_PATTERN = rf"{re.escape(COORD_START)}[^|<>]{{0,24}}{re.escape(_end)}"
"""Text spelled like a coordinate token, valid or not (wildcard, padded, too large); bounded, for linear time."""
COORD = re.compile(COORD_PATTERN)
POINT_RADIUS = 0.0005
"""Half the side of the square that represents a point, which is one cell of a grid of 1000."""


@lru_cache(maxsize=8)
def token_units(grid: CoordGrid) -> Mapping[str, tuple[int, float]]:
    """Return the bin and the coordinate of every valid coordinate token, at most 1 where a grid has fewer units."""
    return MappingProxyType({token: (k, min(grid.dequantize(k), 1.0)) for k, token in enumerate(coord_tokens(grid))})


def shape_order(geometry: Geometry) -> str:
    """Return the order of the numbers of a shape, if nothing else states it; empty if it has others than x and y."""
    kind = GEOMETRIES[geometry]
    return "xyxy" if kind.is_box else "xy" if kind.has_points else ""


def _enclosing_box(kind: Shape, unit: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the box around a shape, or the small square around a single point, clipped at the image border."""
    x1, y1, x2, y2 = kind.to_box(tuple(unit))
    r = POINT_RADIUS if (x1, y1) == (x2, y2) and not kind.closed else 0.0
    return max(x1 - r, 0.0), max(y1 - r, 0.0), min(x2 + r, 1.0), min(y2 + r, 1.0)


@dataclass(frozen=True, slots=True)
class UnitScale:
    """Divisors of plain numbers: `x` for abscissas, `y` for ordinates; whether they are assumed, or an image's size."""

    x: float
    y: float
    assumed: bool = False
    pixels: bool = False


class Stated(NamedTuple):
    """What a text states of an object besides its numbers."""

    desc: str
    span: tuple[int, int]
    start_index: int | None = None
    repairs: tuple[str, ...] = ()
    partial: bool = False
    score: Confidence | None = None

    def repaired(self, repair: str) -> Stated:
        """Return the same with one more repair."""
        return self._replace(repairs=(*self.repairs, repair))


_FRACTIONS, _PERCENT = UnitScale(1.0, 1.0), UnitScale(100.0, 100.0)
_FOUR = rf"{NUMBER}(?:,\s?{NUMBER}){{3}}"
ROW_IN_LABEL = re.compile(rf"[=:,|]\W{{0,4}}{_FOUR}|{_FOUR}(?![0-9.\s]*[\])])")
"""Another object within a label, since a quote or bracket before it is missing."""
_ANGLE = re.compile(rf"(?:{'|'.join(names_of('turn'))})[\"'`*]{{0,3}}\s{{0,9}}[:=]\s{{0,9}}({NUMBER})", re.IGNORECASE)
_PIXELS = re.compile(r"[0-9]\s?px\b")
_BOOLEANS = {"true": True, "false": False}
_ORDERS: dict[str, NumberOrder] = {"xywh": "xywh", "cxcywh": "cxcywh"}


@dataclass(slots=True)
class AnswerBuilder:
    """Collects the objects and drops of one text.

    Attributes:
        keep_flat: whether boxes without area are kept, for callers that replace the sides
        fractions: whether numbers are fractions, since other numbers of this text are
        aspect: width of the image divided by its height: NaN drops boxes with an angle, None takes the image as square
        text: the whole text, whose largest angle tells degrees from radians
        places: records that name an image or a frame, `(start, end, name)`
        units: records that state the unit or order of the boxes in them, `(start, end, fields)`
    """

    format: str
    scale: UnitScale
    geometry: Geometry = "box"
    keep_flat: bool = False
    fractions: bool = False
    aspect: float | None = None
    text: str = ""
    places: list[tuple[int, int, str]] = field(default_factory=list)
    units: list[tuple[int, int, Mapping[str, float | str]]] = field(default_factory=list)
    objects: list[ParsedObject] = field(default_factory=list)
    dropped: list[Drop] = field(default_factory=list)
    coord_count: int = 0
    start_count: int = 0
    truncated: bool = False
    explicit_empty: bool = False
    zeros: list[tuple[int, int]] = field(default_factory=list)
    repeats: int = 0
    label_keys: list[str] = field(default_factory=list)
    ones: bool = False
    need_labels: bool = True
    numbers_read: bool = False
    read_scale: UnitScale | None = None
    _seen: set[tuple[str, tuple[float, ...]]] = field(default_factory=set)

    def largest_turn(self) -> float:
        """Return the largest angle of a box that the text states, in its own unit."""
        return max((abs(read_number(angle)) for angle in _ANGLE.findall(self.text)), default=0.0)

    def drop(self, reason: str, start: int, end: int) -> None:
        """Record characters as dropped."""
        self.dropped.append(Drop(reason, (start, end)))

    def add(
        self, stated: Stated, bins: tuple[float, ...], unit: Sequence[float], first_coord_index: int | None = None,
        geometry: Geometry = "box", order: str = "xyxy", scale: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        """Add a box by its corners in [0, 1], or another shape by its numbers.

        Swapped corners are sorted; boxes without area and shapes of which no point is labelled are dropped.
        """
        desc, span, start_index, repairs, partial, score = stated
        points: tuple[tuple[float, float], ...] = ()
        coordinates: tuple[float, ...] = ()
        kind = GEOMETRIES[geometry]
        if kind.is_box:
            box = x1, y1, x2, y2 = unit[0], unit[1], unit[2], unit[3]
        else:
            coordinates = tuple(unit)
            points = kind.outline(coordinates)
            if not kind.placed(points):
                self.drop("no_coordinates", *span)
                return
            box = x1, y1, x2, y2 = _enclosing_box(kind, unit)
        if x1 >= x2 or y1 >= y2:
            if not any(bins) and kind.is_box and not self.keep_flat:
                self.zeros.append(span)
                self.explicit_empty = True
                return
            if self.geometry == "point" and (x1, y1) == (x2, y2) and kind.is_box:
                self.add(stated, bins[:2], (x1, y1), first_coord_index, "point", "xy", scale)
                return
            if (x1 == x2 or y1 == y2) and not self.keep_flat:
                self.drop("no_area", *span)
                return
            if x1 > x2 or y1 > y2:
                repairs = (*repairs, "swapped_corners")
                box = (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
        desc = desc.strip()
        if len(desc) > 12 and ROW_IN_LABEL.search(desc):
            self.drop("unread_numbers", *span)
        if not desc:
            repairs = (*repairs, "no_label")
        state: Completeness = "partial" if partial else "repaired" if repairs else "complete"
        seen, key = self._seen, (desc, bins)
        if key in seen:
            self.repeats += 1
        else:
            seen.add(key)
        share, number = score or (None, None)
        placed = first_coord_index, start_index, repairs, geometry, points, order, share, coordinates, scale
        self.objects.append(ParsedObject(desc, box, bins, span, state, *placed, score_number=number))

    def add_numbers(
        self, stated: Stated, numbers: Sequence[float], geometry: Geometry = "box", order: str = "",
        own_scale: float | None = None, unit: Sequence[float] = (), first_coord_index: int | None = None,
        turn: float = 0.0,
    ) -> None:  # fmt: skip
        """Add a shape by its numbers; another number than its geometry has is a drop.

        Those of tokens and percentages, whose coordinates in [0, 1] are `unit`, need no scale. Without a scale from the
        caller, plain numbers in [0, 1] are fractions; others are divided by `own_scale` of the format, or by the
        assumed scale. A box that is turned clockwise by `turn` degrees about its centre becomes an oriented one.
        """
        count, kind, span = len(numbers), GEOMETRIES[geometry], stated.span
        order = order or shape_order(geometry)
        if not kind.reads(count):
            self.drop("wrong_arity", *span)
            return
        if unit and first_coord_index is not None and not turn:
            self.add(stated, tuple(numbers), corners(order, unit), first_coord_index, geometry, order)
            return
        sx, sy = self._divisors(numbers, kind.is_box, own_scale, bool(unit))
        if unit and first_coord_index is not None:
            unit = corners(order, unit)
        elif kind.is_box and count == 4 and order != "yxyx":
            x1, y1, x2, y2 = numbers if order == "xyxy" else corners(order, numbers)
            unit = (x1 / sx, y1 / sy, x2 / sx, y2 / sy)
        else:
            along_y = "x" if order[:1] == "y" else "y"
            scaled = [n / (sy if kind.number_at(i) == along_y else sx) for i, n in enumerate(numbers)]
            unit = corners(order, scaled)
        if turn:
            turned = self._turned(unit, turn)
            if turned is None:
                self.drop("turned", *span)
                return
            geometry, unit = "oriented", turned
            stated = stated.repaired("square_assumed") if self.aspect is None else stated
        low, high = min(unit), max(unit)
        if not 0 <= low <= high <= 1:  # false for NaN too
            if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT) or any(map(math.isnan, unit)):
                self.drop("out_of_range", *span)
                return
            unit = [min(max(u, 0.0), 1.0) for u in unit]
            stated = stated.repaired("clipped")
        self.add(stated, tuple(numbers), unit, None, geometry, order, (sx, sy))

    def _divisors(
        self, numbers: Sequence[float], is_box: bool, own_scale: float | None, percent: bool
    ) -> tuple[float, float]:
        """Return what numbers are divided by along x and y, and note what they tell of the text's scale."""
        scale = _PERCENT if percent else self.scale
        largest = max(numbers)
        is_small = largest <= 1 + OVERSHOOT
        if scale.assumed and is_small and own_scale != 100 and (self.fractions or any(n % 1 for n in numbers)):
            scale, self.fractions = _FRACTIONS, True
        elif scale.assumed:
            self.ones |= largest <= 1
            scale = scale if own_scale is None else UnitScale(own_scale, own_scale)
        elif not percent and is_box and largest <= 1 < scale.x and any(n % 1 for n in numbers):
            self.fractions = True
        self.numbers_read |= scale is self.scale
        self.read_scale = scale
        return scale.x, scale.y

    def _turned(self, unit: Sequence[float], degrees: float) -> list[float] | None:
        """Return the corners of a turned box, clipped to the image; None if they cannot be known."""
        aspect = 1.0 if self.aspect is None else self.aspect
        if math.isnan(aspect) or math.isnan(degrees):
            return None
        x1, y1, x2, y2 = unit
        points = rotated_corners((x1 * aspect, y1, (x2 - x1) * aspect, y2 - y1), degrees)
        turned = [c / aspect if i % 2 == 0 else c for i, c in enumerate(points)]
        inside = 0 <= (x1 + x2) / 2 <= 1 and 0 <= (y1 + y2) / 2 <= 1
        return [min(max(c, 0.0), 1.0) for c in turned] if inside else turned

    def add_values(
        self, stated: Stated, values: Sequence[Value], geometry: Geometry, order: str = "",
        own_scale: float | None = None, turn: float = 0.0,
    ) -> None:  # fmt: skip
        """Add a shape by its coordinates: plain numbers, tokens or percentages, of which a shape has one kind."""
        unit = [value[1] for value in values if value[1] is not None]
        if unit and len(unit) < len(values):
            self.drop("invalid_coordinate", *stated.span)
            return
        numbers, index = [value[0] for value in values], values[0][2] if unit else None
        self.add_numbers(stated, numbers, geometry, order, own_scale, unit, index, turn)

    def rename(self, index: int, desc: str, repair: str = "", start_index: int | None = None) -> None:
        """Give an object another label, and state the repair that it took."""
        item = self.objects[index]
        repairs = (*(name for name in item.repairs if name != "no_label"), *([repair] if repair else []))
        state = item.completeness if item.completeness == "partial" else "repaired" if repairs else "complete"
        start = item.start_index if start_index is None else start_index
        self.objects[index] = item._replace(desc=desc.strip(), repairs=repairs, completeness=state, start_index=start)

    def agrees(self, stated: Mapping[str, float | str], order: str, numbers: Sequence[float]) -> bool:
        """Return whether numbers are read in the unit and order that fields state."""
        unit: Unit = "pixels" if self.scale.pixels or self.scale.x != 1000 else "thousandths"
        values = {name: _BOOLEANS.get(str(value).lower(), value) for name, value in stated.items() if value != order}
        try:
            check_unit(values, _ORDERS.get(order, "xyxy"), "fractions" if max(numbers) <= 1 else unit, "setting")
        except InputError:
            return False
        return True

    def _is_in_other_unit(self, item: ParsedObject) -> bool:
        """Return whether a record around a box, or `px` behind its numbers, states another unit than the one in use."""
        if not item.is_box or item.first_coord_index is not None or item.scale == (100, 100):
            return False
        start, end = item.span
        around = [stated for a, b, stated in self.units if a < start and end < b]
        if not all(self.agrees(stated, item.order, item.bins) for stated in around):
            return True
        return not self.scale.pixels and len(_PIXELS.findall(self.text, start, end)) > 1

    def _placed(self, item: ParsedObject) -> ParsedObject:
        """Return an object with the image that the innermost record around it names."""
        around = [place for place in self.places if place[0] <= item.span[0] and item.span[1] <= place[1]]
        return item._replace(place=max(around)[2]) if around else item

    def build(self, text: str) -> Answer:
        """Return the finished answer."""
        if self.places:
            self.objects = [self._placed(item) for item in self.objects]
        status: Status = "failed"
        if self.objects:
            status = "partial" if self.dropped else "ok"
        elif not self.dropped and (self.explicit_empty or not text.strip()):
            status = "empty"
        scale = self.scale if self.numbers_read else self.read_scale
        answer = Answer(
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
            zeros=tuple(self.zeros),
            label_keys=tuple(dict.fromkeys(self.label_keys)),
        )
        if self.units or "px" in self.text:
            answer = without(answer, self._is_in_other_unit, "other_unit")
        orders = [item.order for item in self.objects]
        rarer = min(("xyxy", "yxyx"), key=orders.count)
        if orders.count(rarer):  # a key of another order among others is more often a slip than meant
            answer = without(answer, lambda item: item.order == rarer, "ambiguous")
        if self.fractions and not self.scale.assumed and not all(map(_is_small, answer)):
            answer = without(answer, _is_small, "ambiguous")  # 0.1 among 100 is hardly a tenth of a thousandth
        return answer


def _is_small(item: ParsedObject) -> bool:
    return item.first_coord_index is None and item.scale != (100, 100) and max(item.bins) <= 1
