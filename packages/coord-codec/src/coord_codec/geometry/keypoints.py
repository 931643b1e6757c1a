"""Keypoints: named points in a fixed order, of which some may not be labelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coord_codec.boxes import SmallBoxError
from coord_codec.geometry.base import Box, Coordinates, Geometry, GeometryName, flat, pairs
from coord_codec.grid import CoordGrid

_MOST_POINTS = 64


@dataclass(frozen=True)
class KeypointsGeometry(Geometry):
    """Named points in the order of their names, x and y of each; one without a label is written as bin 0, 0.

    A labelled point that falls into bin 0, 0 is written as 0, 1. The text does not tell a visible point from one that
    is hidden and labelled.
    """

    name: ClassVar[GeometryName] = "keypoints"
    least: ClassVar[int] = 2
    most: ClassVar[int] = 2 * _MOST_POINTS
    keys: ClassVar[tuple[str, str]] = ("keypoints", "keypoints_2d")

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the points as they are.

        Raises:
            ValueError: there are too many, or none is labelled.
        """
        self.check_count(coordinates)
        if not any(coordinates):
            raise SmallBoxError("none of the keypoints is labelled, so that there is nothing to show")
        return coordinates

    def from_box(self, bbox: Box) -> None:
        """Return None: a box says nothing of keypoints."""
        return

    def to_box(self, coordinates: Coordinates) -> Box:
        """Return the box around the labelled points; around none it is empty at 0, 0."""
        labelled = flat([point for point in pairs(coordinates) if any(point)])
        return super().to_box(labelled or (0.0, 0.0))

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the points, the labelled ones moved out of bin 0, 0."""
        moved = (0.0, grid.dequantize(1))
        points = [moved if any(point) and not any(map(grid.quantize, point)) else point for point in pairs(coordinates)]
        return flat(points)

    def flip(self, coordinates: Coordinates) -> Coordinates:
        """Return the points in the mirrored image; `Shape.flip` lets left and right change places."""
        return flat([(1 - x, y) if (x, y) != (0, 0) else (x, y) for x, y in pairs(coordinates)])
