"""All geometries and their registry by name: box, point, oriented box, keypoints, and the polygon of `polygon.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from coord_codec.boxes import SmallBoxError, check_corners
from coord_codec.files import InputError
from coord_codec.geometry.base import Box, Coordinates, Geometry, GeometryName, flat, pairs
from coord_codec.geometry.polygon import PolygonGeometry, clockwise_from_top, signed_area
from coord_codec.grid import CoordGrid

_MOST_POINTS = 64
"""Maximum number of keypoints of an object."""


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
        check_corners(coordinates, coordinates)
        return coordinates

    def from_box(self, bbox: Box) -> Coordinates:
        """Return the box."""
        return bbox

    def flip(self, coordinates: Coordinates) -> Coordinates:
        """Return the box in the image mirrored left to right."""
        x1, y1, x2, y2 = coordinates
        return 1 - x2, y1, 1 - x1, y2


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


_ALL = (BoxGeometry(), PointGeometry(), PolygonGeometry(), OrientedGeometry(), KeypointsGeometry())
GEOMETRIES: Mapping[str, Geometry] = MappingProxyType({kind.name: kind for kind in _ALL})
"""Geometries by name: `box` x1, y1, x2, y2; `point` x, y; `polygon` x and y of each vertex; `oriented` four corners;
`keypoints` x and y of each name."""


def geometry_of(name: str | Geometry) -> Geometry:
    """Return the geometry with this name; a `Geometry` is returned unchanged.

    Raises:
        ValueError: for an unknown name

    Example:
        >>> geometry_of("point").most
        2
    """
    if isinstance(name, Geometry):
        return name
    if not isinstance(name, str) or name not in GEOMETRIES:
        raise ValueError(f"geometry: expected one of {', '.join(GEOMETRIES)}, found {name!r:.80}")
    return GEOMETRIES[name]
