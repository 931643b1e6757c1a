"""The point: x, y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coord_codec.geometry.base import Box, Coordinates, Geometry, GeometryName


@dataclass(frozen=True)
class PointGeometry(Geometry):
    """One point; it is derived from a box as the centre."""

    name: ClassVar[GeometryName] = "point"
    least: ClassVar[int] = 2
    most: ClassVar[int] = 2
    keys: ClassVar[tuple[str, str]] = ("point", "point_2d")

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the point unchanged.

        Raises:
            ValueError: if there are not two coordinates
        """
        self.check_count(coordinates)
        return coordinates

    def from_box(self, bbox: Box) -> Coordinates:
        """Return the centre of the box."""
        x1, y1, x2, y2 = bbox
        return (x1 + x2) / 2, (y1 + y2) / 2
