"""Keypoints: named points in a fixed order, some of which may be unlabelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coord_codec.boxes import SmallBoxError
from coord_codec.geometry.base import Box, Coordinates, Geometry, GeometryName, flat, pairs
from coord_codec.grid import CoordGrid

_MOST_POINTS = 64


@dataclass(frozen=True)
class KeypointsGeometry(Geometry):
    """Named points in the order of their names, each as x, y; unlabelled points are written as bins 0, 0.

    A labelled point whose bins are 0, 0 is written as 0, 1. The text does not distinguish visible points from points
    that are labelled but hidden.
    """

    name: ClassVar[GeometryName] = "keypoints"
    least: ClassVar[int] = 2
    most: ClassVar[int] = 2 * _MOST_POINTS
    keys: ClassVar[tuple[str, str]] = ("keypoints", "keypoints_2d")

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the points unchanged.

        Raises:
            ValueError: if there are too many points, or none is labelled
        """
        self.check_count(coordinates)
        if not any(coordinates):
            raise SmallBoxError("none of the keypoints is labelled, so that there is nothing to show")
        return coordinates

    def from_box(self, bbox: Box) -> None:
        """Return None: keypoints cannot be derived from a box."""
        return

    def to_box(self, coordinates: Coordinates) -> Box:
        """Return the box around the labelled points; if there are none, an empty box at 0, 0."""
        labelled = flat([point for point in pairs(coordinates) if any(point)])
        return super().to_box(labelled or (0.0, 0.0))

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the points, with labelled points at bins 0, 0 moved to bins 0, 1."""
        moved = (0.0, grid.dequantize(1))
        points = [moved if any(point) and not any(map(grid.quantize, point)) else point for point in pairs(coordinates)]
        return flat(points)

    def flip(self, coordinates: Coordinates) -> Coordinates:
        """Return the points in the mirrored image; `Shape.flip` also swaps left and right keypoints."""
        return flat([(1 - x, y) if (x, y) != (0, 0) else (x, y) for x, y in pairs(coordinates)])
