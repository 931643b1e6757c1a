"""The plain box: x1, y1, x2, y2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coord_codec.boxes import SmallBoxError
from coord_codec.files import InputError
from coord_codec.geometry.base import Box, Coordinates, Geometry, GeometryName


@dataclass(frozen=True)
class BoxGeometry(Geometry):
    """Two corners, x1 < x2 and y1 < y2."""

    name: ClassVar[GeometryName] = "box"
    least: ClassVar[int] = 4
    most: ClassVar[int] = 4
    keys: ClassVar[tuple[str, str]] = ("bbox", "bbox_2d")

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the corners unchanged.

        Raises:
            ValueError: if corners are swapped, or the box has no area
        """
        self.check_count(coordinates)
        x1, y1, x2, y2 = coordinates
        if not (x1 < x2 and y1 < y2):
            error_type = InputError if x1 > x2 or y1 > y2 else SmallBoxError
            raise error_type(
                f"expected x1 < x2 and y1 < y2, found {list(coordinates)!r}: the box has no area or swapped corners"
            )
        return coordinates

    def from_box(self, bbox: Box) -> Coordinates:
        """Return the box."""
        return bbox

    def flip(self, coordinates: Coordinates) -> Coordinates:
        """Return the box in the image mirrored left to right."""
        x1, y1, x2, y2 = coordinates
        return 1 - x2, y1, 1 - x1, y2
