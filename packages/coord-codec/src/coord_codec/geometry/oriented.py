"""The oriented box: its four corners, clockwise in the image from the topmost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coord_codec.boxes import SmallBoxError
from coord_codec.files import InputError
from coord_codec.geometry.base import Box, Coordinates, Geometry, GeometryName, flat, pairs
from coord_codec.geometry.polygon import clockwise_from_top, signed_area
from coord_codec.grid import CoordGrid


@dataclass(frozen=True)
class OrientedGeometry(Geometry):
    """Four corners of a convex quadrilateral, eight coordinates.

    An angle would be discontinuous: it jumps by a full turn, or by 90° where width and height swap, for boxes that are
    almost the same. Right angles are not checked, since fractions of width and height do not preserve them.

    Example:
        >>> OrientedGeometry().arrange((0.1, 0.5, 0.5, 0.9, 0.9, 0.5, 0.5, 0.1))
        (0.5, 0.1, 0.9, 0.5, 0.5, 0.9, 0.1, 0.5)
    """

    name: ClassVar[GeometryName] = "oriented"
    least: ClassVar[int] = 8
    most: ClassVar[int] = 8
    keys: ClassVar[tuple[str, str]] = ("obb", "obb_2d")

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the corners clockwise, starting with the topmost; of two topmost corners the left one is first.

        Raises:
            ValueError: if they are not the four corners of a convex quadrilateral in order
        """
        self.check_count(coordinates)
        points = pairs(coordinates)
        if abs(signed_area(points)) < 1e-12 or len(set(points)) < 4:
            raise SmallBoxError("the oriented box has no area")
        points = clockwise_from_top(points)
        turns = [signed_area([points[i - 1], points[i], points[(i + 1) % 4]]) for i in range(4)]
        if min(turns) < 0:
            raise InputError(
                f"expected the four corners of a convex box in order, found {list(coordinates)!r}: it bends inwards or "
                "crosses itself"
            )
        return flat(points)

    def from_box(self, bbox: Box) -> Coordinates:
        """Return the four corners."""
        x1, y1, x2, y2 = bbox
        return x1, y1, x2, y1, x2, y2, x1, y2

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the corners, starting with the one that is topmost after quantisation.

        Raises:
            SmallBoxError: if two corners lie in one bin, or the quantised box has no area
        """
        points = pairs(coordinates)
        bins = [(grid.quantize(x), grid.quantize(y)) for x, y in points]
        if len(set(bins)) < 4 or not signed_area([(float(x), float(y)) for x, y in bins]):
            raise SmallBoxError("the oriented box is thinner than a bin, which no answer can show")
        first = min(range(4), key=lambda i: (bins[i][1], bins[i][0]))
        return flat(points[first:] + points[:first])
