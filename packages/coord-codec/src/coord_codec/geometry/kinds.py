"""The built-in geometries: box, point, oriented box, keypoints, and the polygon of `polygon.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coord_codec.boxes import SmallBoxError, check_corners
from coord_codec.files import InputError
from coord_codec.geometry.base import Affine, Box, Coordinates, Geometry, Point, flat, pairs
from coord_codec.geometry.polygon import PolygonGeometry, clockwise_from_top, signed_area, topmost_first
from coord_codec.grid import CoordGrid

_MOST_POINTS = 64
"""Maximum number of keypoints of an object."""


@dataclass(frozen=True)
class BoxGeometry(Geometry):
    """Two corners, x1 < x2 and y1 < y2."""

    name = "box"
    about = "x1, y1, x2, y2: two corners"
    least = most = 4
    keys = ("bbox", "bbox_2d")
    example = (0.25, 0.125, 0.75, 0.5)
    is_box = True
    coco_field = "bbox"
    above = (None, None, 0, 1)
    similarity = "box_iou"
    loss = "box"

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the corners unchanged."""
        self.check_count(coordinates)
        check_corners(coordinates, coordinates)
        return coordinates

    def from_box(self, bbox: Box) -> Coordinates:
        """Return the box."""
        return bbox

    def outline(self, coordinates: Coordinates) -> tuple[Point, ...]:
        """Return the four corners, clockwise from the upper left one."""
        x1, y1, x2, y2 = coordinates
        return (x1, y1), (x2, y1), (x2, y2), (x1, y2)

    def transform(self, coordinates: Coordinates, change: Affine) -> Coordinates:
        """Return the upright box around the changed box."""
        return self.arrange(self.to_box(flat([self._move(corner, change) for corner in self.outline(coordinates)])))


@dataclass(frozen=True)
class PointGeometry(Geometry):
    """One point; it is derived from a box as the centre."""

    name = "point"
    about = "x, y"
    least = most = 2
    keys = ("point", "point_2d")
    example = (0.25, 0.5)
    closed = False
    has_extent = False
    similarity = "nearness"
    from_box_words = "the centre of the box is"

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

    name = "oriented"
    about = "x and y of the four corners of a rotated box, clockwise from the topmost"
    least = most = 8
    keys = ("obb", "obb_2d")
    example = (0.5, 0.125, 0.875, 0.5, 0.75, 0.625, 0.375, 0.25)
    similarity = "outline_iou"
    coco_field = "segmentation"
    from_box_words = "the corners of the box are"

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the corners clockwise from the topmost; of two topmost corners the left one is first."""
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

    def choose_outline(self, outlines: Sequence[Coordinates]) -> Coordinates | None:
        """Return the outline of an annotation that has only one, of four vertices."""
        return outlines[0] if [len(outline) for outline in outlines] == [self.least] else None

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the corners, starting with the one that is topmost after quantisation."""
        points = pairs(coordinates)
        bins = [(grid.quantize(x), grid.quantize(y)) for x, y in points]
        if len(set(bins)) < 4 or not signed_area(bins):
            raise SmallBoxError("the oriented box is thinner than a bin, which no answer can show")
        return flat(topmost_first(points, bins))


@dataclass(frozen=True)
class KeypointsGeometry(Geometry):
    """Named points in the order of their names, each as x, y; unlabelled points are written as bins 0, 0.

    A labelled point whose bins are 0, 0 is written as 0, 1. The text does not distinguish visible points from points
    that are labelled but hidden.
    """

    name = "keypoints"
    about = "x, y of each name; 0, 0 for a point that is not labelled"
    least = 2
    most = 2 * _MOST_POINTS
    keys = ("keypoints", "keypoints_2d")
    example = (0.25, 0.125, 0.75, 0.5)
    closed = False
    named = True
    similarity = "oks"
    coco_field = "keypoints"

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the points unchanged."""
        self.check_count(coordinates)
        if not any(coordinates):
            raise SmallBoxError("none of the keypoints is labelled, so that there is nothing to show")
        return coordinates

    def from_box(self, bbox: Box) -> None:
        """Return None: keypoints cannot be derived from a box."""
        return

    def is_placed(self, point: Point) -> bool:
        """Return whether a point is labelled."""
        return any(point)

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the points, with labelled points at bins 0, 0 moved to bins 0, 1."""
        moved = (0.0, grid.dequantize(1))
        points = [moved if any(point) and not any(map(grid.quantize, point)) else point for point in pairs(coordinates)]
        return flat(points)


BUILT_IN = (BoxGeometry(), PointGeometry(), PolygonGeometry(), OrientedGeometry(), KeypointsGeometry())
"""The rows that the table begins with."""
