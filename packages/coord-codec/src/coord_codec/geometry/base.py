"""The base class of all geometries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from coord_codec.grid import CoordGrid

GeometryName = Literal["box", "point", "polygon", "oriented", "keypoints"]
"""Names of the geometries."""
Coordinates = tuple[float, ...]
"""Alternating x and y, as fractions of the image's width and height."""
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Geometry(ABC):
    """A kind of shape.

    Attributes:
        name: key in `GEOMETRIES`, and `type` in instance files
        least: minimum number of coordinates
        most: maximum number of coordinates
        keys: keys of the coordinates in JSON targets, for tokens and for numbers

    Example:
        >>> from coord_codec.geometry import geometry_of
        >>> polygon = geometry_of("polygon")
        >>> polygon.fits(8), polygon.fits(7), polygon.to_box((0.5, 0.1, 0.9, 0.5, 0.1, 0.5))
        (True, False, (0.1, 0.1, 0.9, 0.5))
    """

    name: ClassVar[GeometryName]
    least: ClassVar[int]
    most: ClassVar[int]
    keys: ClassVar[tuple[str, str]]

    def fits(self, count: int) -> bool:
        """Return whether a shape of this kind can have this number of coordinates."""
        return self.least <= count <= self.most and count % 2 == 0

    @property
    def longest(self) -> int:
        """Maximum number of coordinates per object in a target text."""
        return self.most

    def check_count(self, coordinates: Coordinates) -> None:
        """Check the number of coordinates.

        Raises:
            ValueError: if no shape of this kind can have this number of coordinates
        """
        if not self.fits(len(coordinates)):
            count = str(self.least) if self.least == self.most else f"an even number from {self.least} to {self.most}"
            raise ValueError(f"expected {count} coordinates of a {self.name}, found {len(coordinates)}")

    @abstractmethod
    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the coordinates in canonical order.

        Raises:
            ValueError: if they are not a valid shape of this kind
        """

    @abstractmethod
    def from_box(self, bbox: Box) -> Coordinates | None:
        """Return the coordinates derived from a box, or None if this geometry cannot be derived from one."""

    def to_box(self, coordinates: Coordinates) -> Box:
        """Return the box around a shape (x1, y1, x2, y2), which may have zero area."""
        xs, ys = coordinates[::2], coordinates[1::2]
        return min(xs), min(ys), max(xs), max(ys)

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the coordinates that a target text contains, before quantisation and in the order of the text.

        Args:
            coordinates: coordinates in canonical order
            grid: the grid on which they are quantised

        Raises:
            SmallBoxError: if the shape is too small for this grid
        """
        return coordinates

    def to_bins(self, coordinates: Coordinates, grid: CoordGrid) -> list[int]:
        """Return the bins that a target text contains.

        Raises:
            SmallBoxError: if the shape is too small for this grid
        """
        return [grid.quantize(c) for c in self.written(coordinates, grid)]

    def from_bins(self, bins: list[int], grid: CoordGrid) -> Coordinates:
        """Return the coordinates of bins.

        Raises:
            ValueError: if the number of bins is wrong, or a bin is not on the grid
        """
        coordinates = tuple(grid.dequantize(k) for k in bins)
        self.check_count(coordinates)
        return coordinates

    def flip(self, coordinates: Coordinates) -> Coordinates:
        """Return the shape in the image mirrored left to right, in canonical order."""
        return self.arrange(tuple(c if i % 2 else 1 - c for i, c in enumerate(coordinates)))


def pairs(coordinates: Coordinates) -> list[tuple[float, float]]:
    """Return coordinates as a list of (x, y) points."""
    return list(zip(coordinates[::2], coordinates[1::2], strict=True))


def flat(points: list[tuple[float, float]]) -> Coordinates:
    """Return points as a flat tuple of coordinates."""
    return tuple(c for point in points for c in point)
