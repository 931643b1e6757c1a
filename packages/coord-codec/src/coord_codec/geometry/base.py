"""The base class of all geometries: everything that the other modules and packages ask a geometry."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from coord_codec.boxes import SmallBoxError
from coord_codec.files import InputError
from coord_codec.grid import CoordGrid

Coordinates = tuple[float, ...]
"""The numbers of a shape, each in [0, 1]: alternating x and y, if the geometry does not say otherwise."""
Box = tuple[float, float, float, float]
Point = tuple[float, float]
Number = Literal["x", "y", "length", "angle"]
"""What a number of a geometry is.

`x` and `y` are fractions of the image's width and height. `length` is a length in the unit square, into which the image
is stretched. `angle` is a clockwise angle in the unit square as a fraction of its period, after which the shape is the
same again: it wraps, so that 0.999 and 0 are neighbours.
"""


@dataclass(frozen=True)
class Affine:
    """A change of an image that moves the point x, y of the unit square to `xx·x + xy·y + x0`, `yx·x + yy·y + y0`.

    Example:
        >>> MIRROR(0.25, 0.5), Affine.window(0.5, 0.5, 0.5, 0.5)(0.75, 0.5), QUARTER_TURN(0.25, 0.0)
        ((0.75, 0.5), (0.5, 0.0), (1.0, 0.25))
    """

    xx: float = 1.0
    xy: float = 0.0
    yx: float = 0.0
    yy: float = 1.0
    x0: float = 0.0
    y0: float = 0.0

    def __call__(self, x: float, y: float) -> Point:
        """Return where a point is moved to."""
        return self.xx * x + self.xy * y + self.x0, self.yx * x + self.yy * y + self.y0

    @classmethod
    def window(cls, left: float, top: float, width: float, height: float) -> Affine:
        """Return the change by which a window of the image, given in fractions, becomes the image."""
        return cls(xx=1 / width, yy=1 / height, x0=-left / width, y0=-top / height)

    @property
    def mirrors(self) -> bool:
        """Whether left and right are swapped."""
        return self.xx * self.yy - self.xy * self.yx < 0

    @property
    def is_similarity(self) -> bool:
        """Whether angles between lines stay the same, and all lengths change by one factor."""
        sign = -1 if self.mirrors else 1
        return max(abs(self.xx - sign * self.yy), abs(self.xy + sign * self.yx)) <= 1e-9 * max(1.0, abs(self.xx))


MIRROR = Affine(xx=-1.0, x0=1.0)
"""The image mirrored left to right."""
QUARTER_TURN = Affine(xx=0.0, xy=-1.0, yx=1.0, yy=0.0, x0=1.0)
"""The image turned clockwise by 90 degrees."""


@dataclass(frozen=True)
class Geometry(ABC):
    """A kind of shape: one row of the table `GEOMETRIES`, which `register_geometry` extends.

    Targets, records, losses, parsers, scores, drawings, grammars and exports ask the row and know no names. A subclass
    states the class attributes and overrides the methods whose default does not fit; `from_box` and, unless all numbers
    are x and y, `outline` and `box_of` are required.

    Attributes:
        name: key in `GEOMETRIES`, and `type` in instance files
        about: the numbers in words, for documentation and messages
        least: minimum number of coordinates
        most: maximum number of coordinates
        numbers: what each number is, repeated up to the number of coordinates of a shape; the number of coordinates
            grows in steps of its length
        keys: keys of the coordinates in JSON targets, for tokens and for numbers
        example: a valid shape, for documentation and tests
        is_box: whether the `bbox` of a record is the shape itself, so that no `geometry` is stored
        closed: whether `outline` is the closed outline of an area, otherwise separate points
        has_extent: whether the box around a shape has an area, so that scores of boxes mean something
        named: whether each point has a name and a visibility
        above: for each number the index of an earlier one that it has to exceed, or None; empty if there is no order
        similarity: the measure by which shapes are compared: a name of `coord_eval.shapes.similarity.SIMILARITIES`, or
            a `Similarity` of your own
        loss: the regression loss of expected coordinates: a name of `coord_losses.terms.shape.SHAPE_LOSSES`, a function
            of your own, or None for none
        coco_field: the field of a COCO annotation that states the shape; None if it is always derived from the box
        from_box_words: what `from_box` uses, for the note that counts such objects

    Example:
        >>> from coord_codec.geometry import geometry_of
        >>> polygon = geometry_of("polygon")
        >>> polygon.fits(8), polygon.fits(7), polygon.to_box((0.5, 0.1, 0.9, 0.5, 0.1, 0.5))
        (True, False, (0.1, 0.1, 0.9, 0.5))
    """

    name: ClassVar[str]
    about: ClassVar[str]
    least: ClassVar[int]
    most: ClassVar[int]
    numbers: ClassVar[tuple[Number, ...]] = ("x", "y")
    keys: ClassVar[tuple[str, str]]
    example: ClassVar[Coordinates]
    is_box: ClassVar[bool] = False
    closed: ClassVar[bool] = True
    has_extent: ClassVar[bool] = True
    named: ClassVar[bool] = False
    above: ClassVar[tuple[int | None, ...]] = ()
    similarity: ClassVar[Any] = "outline_iou"
    loss: ClassVar[str | Callable[..., Any] | None] = "l1"
    coco_field: ClassVar[str | None] = None
    from_box_words: ClassVar[str] = "the shape that fills the box is"

    # How many numbers, and what each of them is.

    @property
    def step(self) -> int:
        """By how many the number of coordinates grows, and how many of them plain text puts in one bracket."""
        return len(self.numbers)

    @property
    def fixed(self) -> bool:
        """Whether all shapes have the same number of coordinates."""
        return self.least == self.longest

    @property
    def longest(self) -> int:
        """Maximum number of coordinates per object in a target text."""
        return self.most

    @property
    def has_points(self) -> bool:
        """Whether the numbers are the x and y of points."""
        return self.numbers == ("x", "y")

    def number_at(self, index: int) -> Number:
        """Return what the number at an index is."""
        return self.numbers[index % self.step]

    def fits(self, count: int) -> bool:
        """Return whether a shape of this kind can have this number of coordinates."""
        return self.least <= count <= self.most and (count - self.least) % self.step == 0

    def reads(self, count: int) -> bool:
        """Return whether an answer, also of another model, can have a shape with this number of coordinates."""
        return self.fits(count)

    @property
    def counts(self) -> str:
        """The possible numbers of coordinates in words."""
        if self.least == self.most:
            return str(self.least)
        parity = "an even number" if self.step == 2 and self.least % 2 == 0 else f"a number in steps of {self.step}"
        return f"{parity} from {self.least} to {self.most}"

    def check_count(self, coordinates: Sequence[object]) -> None:
        """Check the number of coordinates.

        Raises:
            ValueError: no shape of this kind can have this number of coordinates.
        """
        if not self.fits(len(coordinates)):
            raise ValueError(
                f"expected {self.counts} coordinates of the geometry {self.name} ({self.about}), found "
                f"{len(coordinates)}"
            )

    # Validation, and what other annotations give.

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the coordinates in canonical order; by default they are in any order of the right number.

        Raises:
            ValueError: if they are not a valid shape of this kind
        """
        self.check_count(coordinates)
        return coordinates

    @abstractmethod
    def from_box(self, bbox: Box) -> Coordinates | None:
        """Return the coordinates derived from a box, or None if this geometry cannot be derived from one."""

    @property
    def derives_from_box(self) -> bool:
        """Whether a shape can be derived from a box."""
        return self.from_box((0.0, 0.0, 1.0, 1.0)) is not None

    def choose_outline(self, outlines: Sequence[Coordinates]) -> Coordinates | None:
        """Return the outline of an annotation that is a shape of this kind, or None if none is."""
        return None

    # What a shape looks like.

    def outline(self, coordinates: Coordinates) -> tuple[Point, ...]:
        """Return the points that draw a shape: the vertices of a closed outline, or separate points."""
        return tuple(pairs(coordinates))

    def is_placed(self, point: Point) -> bool:
        """Return whether a point of `outline` exists; keypoints without a label do not."""
        return True

    def placed(self, points: Sequence[Point]) -> Sequence[Point]:
        """Return the points that exist."""
        return [point for point in points if self.is_placed(point)]

    def box_of(self, numbers: Sequence[Any], lib: Any = math) -> tuple[Any, Any, Any, Any]:
        """Return the box around a shape (x1, y1, x2, y2) as a formula of its numbers.

        It is required if the numbers are not all x and y, and used for floats as well as tensors, so that the loss of
        the box around a shape has a gradient.

        Args:
            numbers: one value for each number of the geometry: floats, arrays or tensors
            lib: the library of `sin`, `cos` and `sqrt`: math, numpy or torch
        """
        raise NotImplementedError(f"geometry {self.name}: override box_of, since not all of its numbers are x and y")

    def to_box(self, coordinates: Coordinates) -> Box:
        """Return the box around a shape (x1, y1, x2, y2) within the image, which may have zero area."""
        if self.has_points:
            xs, ys = zip(*self.placed(pairs(coordinates)) or [(0.0, 0.0)], strict=True)
            return min(xs), min(ys), max(xs), max(ys)
        x1, y1, x2, y2 = map(clamp, self.box_of(coordinates))
        return x1, y1, x2, y2

    # Changes of the image.

    def transform(self, coordinates: Coordinates, change: Affine) -> Coordinates:
        """Return the shape in a changed image, in canonical order; points outside the image are clamped to it.

        Raises:
            InputError: if lengths or angles do not survive the change, and the geometry does not override this method
        """
        if self.has_points:
            moved = [self._move(point, change) if self.is_placed(point) else point for point in pairs(coordinates)]
            return self.arrange(flat(moved))
        if not self.survives_crops and not change.is_similarity:
            raise InputError(
                f"geometry {self.name}: lengths and angles differ in an image that is cropped or scaled unevenly: "
                "override transform, or leave such changes of the image out"
            )
        return self.arrange(tuple(self._changed(coordinates, change)))

    @property
    def survives_crops(self) -> bool:
        """Whether a shape stays one of its kind in an image that is cropped or scaled unevenly."""
        return self.has_points or type(self).transform is not Geometry.transform

    def _move(self, point: Point, change: Affine) -> Point:
        x, y = change(*point)
        return clamp(x), clamp(y)

    def _changed(self, coordinates: Coordinates, change: Affine) -> Iterator[float]:
        """Yield the numbers of a shape after a change that keeps angles: points move, lengths scale, angles turn."""
        factor = math.hypot(change.xx, change.yx)
        for index, value in enumerate(coordinates):
            number = self.number_at(index)
            if number == "x":
                yield self._move((value, coordinates[index + 1]), change)[0]
            elif number == "y":
                yield self._move((coordinates[index - 1], value), change)[1]
            elif number == "length":
                yield clamp(value * factor)
            else:
                turn = math.atan2(change.yx, change.xx) / self.period
                yield wrap(turn - value if change.mirrors else turn + value)

    period: ClassVar[float] = 2 * math.pi
    """Angle in radians after which the shape is the same again."""

    def flip(self, coordinates: Coordinates) -> Coordinates:
        """Return the shape in the image mirrored left to right, in canonical order."""
        return self.transform(coordinates, MIRROR)

    # Target texts.

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the coordinates that a target text contains, before quantisation and in the order of the text.

        Angles that would be rounded to a whole period become 0.

        Args:
            coordinates: coordinates in canonical order
            grid: the grid on which they are quantised

        Raises:
            SmallBoxError: if the shape is too small for this grid
        """
        if self.has_points:
            return coordinates
        written = []
        for index, value in enumerate(coordinates):
            number = self.number_at(index)
            if number == "length" and not grid.quantize(value):
                raise SmallBoxError(f"the {self.name} is thinner than a bin, which no answer can show")
            rounds_up = number == "angle" and round(value * grid.scale) >= grid.scale
            written.append(0.0 if rounds_up else value)
        return tuple(written)

    def to_bins(self, coordinates: Coordinates, grid: CoordGrid) -> list[int]:
        """Return the bins that a target text contains.

        Raises:
            SmallBoxError: the shape is too small for this grid.
        """
        return [grid.quantize(c) for c in self.written(coordinates, grid)]

    def with_max_vertices(self, max_vertices: int) -> Geometry:
        """Return the geometry with a limit on the vertices in a target text; unchanged if it has no such limit."""
        return self

    # Constraints on answers while they are generated.

    def next_bins(self, prefix: Sequence[int], bins: int) -> tuple[int, int]:
        """Return the first bin that may follow the bins of a begun shape, and the end of the range (exclusive).

        Args:
            prefix: the bins of the shape so far
            bins: number of bins of the grid
        """
        place = len(prefix)
        lower = self.above[place] if place < len(self.above) else None
        return 0 if lower is None else prefix[lower] + 1, bins - (place in self.above)

    def num_shapes(self, prefix: Sequence[int], bins: int) -> int:
        """Return the number of shapes that begin with some bins."""
        if not self.above:
            lengths = range(len(prefix), self.longest + 1)
            return sum(bins ** (n - len(prefix)) for n in lengths if self.fits(n))
        total = 1
        for place in range(self.least):
            lower, upper = self.above[place], place in self.above
            if upper:
                continue  # counted with the number above it
            if lower is None:
                total *= 1 if place < len(prefix) else bins
            elif lower >= len(prefix):
                total *= bins * (bins - 1) // 2
            elif place >= len(prefix):
                total *= bins - 1 - prefix[lower]
        return total


def pairs(coordinates: Coordinates) -> list[Point]:
    """Return coordinates as a list of (x, y) points."""
    return list(zip(coordinates[::2], coordinates[1::2], strict=True))


def flat(points: Sequence[Point]) -> Coordinates:
    """Return points as a flat tuple of coordinates."""
    return tuple(c for point in points for c in point)


def clamp(value: float) -> float:
    """Return the nearest value in [0, 1]."""
    return min(max(value, 0.0), 1.0)


def wrap(angle: float) -> float:
    """Return an angle, a fraction of its period, in [0, 1)."""
    return angle % 1.0 % 1.0  # a small negative angle gives 1.0 once
