"""Turns what a parser read into objects and drops; the rules that all formats share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from coord_eval.answer import Answer, Completeness, Drop, Geometry, ParsedObject, Status

#: Plain numbers may overshoot the picture by this share (rounding of pixels) and are then clipped.
OVERSHOOT = 0.01


#: Half the side of the square that stands for a point: one cell of a grid of a thousand.
POINT_RADIUS = 0.0005


def arity_fits(geometry: Geometry, count: int) -> bool:
    """Tell whether a shape can have so many numbers: box 4, point 2, polygon 6 or more by twos."""
    if geometry == "polygon":
        return count >= 6 and count % 2 == 0
    return count == (2 if geometry == "point" else 4)


def _enclosing_box(points: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Return the box around a polygon, or the small square around a point, inside the picture."""
    radius = POINT_RADIUS if len(points) == 1 else 0.0
    xs, ys = zip(*points, strict=True)
    return (
        max(min(xs) - radius, 0.0),
        max(min(ys) - radius, 0.0),
        min(max(xs) + radius, 1.0),
        min(max(ys) + radius, 1.0),
    )


@dataclass(frozen=True)
class Scale:
    """What plain numbers are divided by: ``x`` for abscissas, ``y`` for ordinates."""

    x: float
    y: float
    assumed: bool = False


@dataclass
class AnswerBuilder:
    """Collects the objects and drops of one text.

    Attributes:
        format: The format being read.
        scale: Set where plain numbers are read.
        keep_flat: Whether boxes without area stay, for somebody who reads their sides elsewhere.
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
    keep_flat: bool = False
    _seen: set[tuple[str, tuple[float, ...]]] = field(default_factory=set)

    def drop(self, reason: str, start: int, end: int) -> None:
        """Leave out the characters ``[start, end)``."""
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
    ) -> None:
        """Add a box given in [0, 1]; swapped corners are repaired, boxes without area dropped."""
        x1, y1, x2, y2 = unit
        if (x1 == x2 or y1 == y2) and not self.keep_flat:
            self.drop("no_area", *span)
            return
        if x1 > x2 or y1 > y2:
            repairs = (*repairs, "swapped_corners")
            x1, y1, x2, y2 = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
        state: Completeness = "partial" if partial else "repaired" if repairs else "complete"
        self._append(
            ParsedObject(
                desc.strip(),
                (x1, y1, x2, y2),
                tuple(bins),
                span,
                state,
                first_coord_index,
                start_index,
                repairs,
                geometry,
                points,
            )
        )

    def add_numbers(
        self,
        desc: str,
        numbers: Sequence[float],
        span: tuple[int, int],
        *,
        geometry: Geometry = "box",
        start_index: int | None = None,
        repairs: tuple[str, ...] = (),
        partial: bool = False,
    ) -> None:
        """Add a shape given as plain numbers on ``scale``, x and y in turn."""
        if not arity_fits(geometry, len(numbers)):
            self.drop("wrong_arity", *span)
            return
        self.numbers_read = True
        unit, repairs = self._to_unit(numbers, repairs)
        if unit is None:
            self.drop("out_of_range", *span)
            return
        self.add_shape(
            desc,
            numbers,
            unit,
            span,
            geometry=geometry,
            start_index=start_index,
            repairs=repairs,
            partial=partial,
        )

    def add_shape(
        self,
        desc: str,
        bins: Sequence[float],
        unit: Sequence[float],
        span: tuple[int, int],
        *,
        geometry: Geometry = "box",
        first_coord_index: int | None = None,
        start_index: int | None = None,
        repairs: tuple[str, ...] = (),
        partial: bool = False,
    ) -> None:
        """Add a box, point or polygon given in [0, 1]; points and polygons get the box that scores use."""
        if not arity_fits(geometry, len(bins)):
            self.drop("wrong_arity", *span)
            return
        points: tuple[tuple[float, float], ...] = ()
        if geometry != "box":
            points = tuple(zip(unit[::2], unit[1::2], strict=True))
            unit = _enclosing_box(points)
        self.add_box(
            desc,
            bins,
            unit,
            span,
            first_coord_index=first_coord_index,
            start_index=start_index,
            repairs=repairs,
            partial=partial,
            geometry=geometry,
            points=points,
        )

    def _to_unit(
        self, numbers: Sequence[float], repairs: tuple[str, ...]
    ) -> tuple[list[float] | None, tuple[str, ...]]:
        """Divide alternating x and y by the scale; None when one lies outside the picture."""
        assert self.scale is not None
        unit = [n / (self.scale.y if i % 2 else self.scale.x) for i, n in enumerate(numbers)]
        if not all(math.isfinite(u) and -OVERSHOOT <= u <= 1 + OVERSHOOT for u in unit):
            return None, repairs
        clipped = [min(max(u, 0.0), 1.0) for u in unit]
        return clipped, repairs if clipped == unit else (*repairs, "clipped")

    def _append(self, item: ParsedObject) -> None:
        key = (item.desc, item.bins)
        if key in self._seen:
            self.repeats += 1
        self._seen.add(key)
        self.objects.append(item)

    def build(self, text: str) -> Answer:
        """Return the finished answer."""
        status: Status
        if self.objects:
            status = "partial" if self.dropped else "ok"
        elif not self.dropped and (self.explicit_empty or not text.strip()):
            status = "empty"
        else:
            status = "failed"
        scale = self.scale if self.numbers_read else None
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
