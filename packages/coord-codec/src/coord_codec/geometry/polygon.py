"""The polygon: one outline of at least three vertices, clockwise in the image from the topmost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from coord_codec.boxes import SmallBoxError
from coord_codec.files import InputError
from coord_codec.geometry.base import Box, Coordinates, Geometry, Point, flat, pairs
from coord_codec.grid import CoordGrid

_MOST_VERTICES = 128


@dataclass(frozen=True)
class PolygonGeometry(Geometry):
    """One closed outline without holes; the first vertex is not repeated at the end.

    The topmost vertex comes first (the leftmost of several), and the others follow clockwise in the image. Target texts
    contain at most `max_vertices`: the vertex whose triangle with its neighbours has the smallest area is removed
    first (Visvalingam and Whyatt 1993).

    Attributes:
        max_vertices: maximum number of vertices in a target text, 3 to 128

    Example:
        >>> PolygonGeometry().arrange((0.9, 0.5, 0.5, 0.1, 0.1, 0.5))
        (0.5, 0.1, 0.9, 0.5, 0.1, 0.5)
    """

    max_vertices: int = 32

    name = "polygon"
    about = "x and y of each vertex, clockwise from the topmost"
    least = 6
    most = 2 * _MOST_VERTICES
    keys = ("polygon", "polygon_2d")
    example = (0.5, 0.125, 0.875, 0.5, 0.25, 0.625)
    similarity = "mask_iou"
    coco_field = "segmentation"
    from_box_words = "the corners of the box are"

    def __post_init__(self) -> None:
        if not 3 <= self.max_vertices <= _MOST_VERTICES:
            raise ValueError(f"max_vertices: expected 3 to {_MOST_VERTICES}, found {self.max_vertices!r}")

    @property
    def longest(self) -> int:
        """Maximum number of coordinates per outline in a target text."""
        return 2 * self.max_vertices

    def with_max_vertices(self, max_vertices: int) -> PolygonGeometry:
        """Return the geometry with another limit on the vertices in a target text."""
        return replace(self, max_vertices=max_vertices)

    def reads(self, count: int) -> bool:
        """Return whether an answer can have an outline of this length; those of other models may be longer."""
        return count >= self.least and count % 2 == 0

    def arrange(self, coordinates: Coordinates) -> Coordinates:
        """Return the outline clockwise, starting with the topmost vertex; repeated neighbours are removed.

        The outline may have more vertices than a target text contains.
        """
        if len(coordinates) % 2:
            raise InputError(f"expected x and y of each vertex of a polygon, found {len(coordinates)} coordinates")
        points = pairs(coordinates)
        points = [point for i, point in enumerate(points) if point != points[i - 1]]
        if len(set(points)) < 3:
            raise InputError(f"expected at least 3 different vertices of a polygon, found {len(set(points))}")
        if all(abs(_cross_product(points[0], points[1], point)) < 1e-12 for point in points):
            raise SmallBoxError("the polygon has no area: its vertices lie on one line")
        crossing = find_crossing(points)
        if crossing is not None:
            a, b = crossing
            raise InputError(
                f"expected a polygon that does not cross or touch itself, found that the sides from vertex {a} and "
                f"from vertex {b} do"
            )
        return flat(clockwise_from_top(points))

    def from_box(self, bbox: Box) -> Coordinates:
        """Return the four corners."""
        x1, y1, x2, y2 = bbox
        return x1, y1, x2, y1, x2, y2, x1, y2

    def choose_outline(self, outlines: Sequence[Coordinates]) -> Coordinates | None:
        """Return the outline with the largest area, without holes that it reaches by a bridge; see `outer_ring`."""

        def area(outline: Coordinates) -> float:
            return abs(signed_area(pairs(outline))) if len(outline) % 2 == 0 else 0.0  # `arrange` refuses the latter

        chosen = max(outlines, key=area, default=None)
        if chosen is None or len(chosen) % 2:
            return chosen
        points = pairs(chosen)
        points = [point for i, point in enumerate(points) if point != points[i - 1]]
        ring = outer_ring(points)
        return chosen if len(ring) == len(points) else flat(ring)

    def written(self, coordinates: Coordinates, grid: CoordGrid) -> Coordinates:
        """Return the simplified outline without vertices in the bin of a neighbour, from the topmost bin on."""
        points = simplify(pairs(coordinates), self.max_vertices)
        bins = [(grid.quantize(x), grid.quantize(y)) for x, y in points]
        kept = [i for i, at in enumerate(bins) if at != bins[i - 1]]
        if len({bins[i] for i in kept}) < 3 or not signed_area([bins[i] for i in kept]):
            raise SmallBoxError("the polygon is smaller than a bin, which no answer can show")
        # The vertex that is topmost after quantisation comes first, since the text contains only bins.
        return flat(topmost_first([points[i] for i in kept], [bins[i] for i in kept]))


def signed_area(points: Sequence[Point]) -> float:
    """Return the area of an outline, positive if it is clockwise with y pointing down (shoelace formula)."""
    closed = [*points, points[0]]
    return sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairwise(closed)) / 2


def outer_ring(points: list[Point]) -> list[Point]:
    """Return an outline without the smaller rings that it closes on its way, as where a bridge joins it to a hole.

    Example:
        >>> square, hole = [(0, 0), (9, 0), (9, 9), (0, 9)], [(2, 2), (2, 4), (4, 4), (4, 2)]
        >>> outer_ring([*square, (0, 0), *hole, (2, 2)])
        [(0, 0), (9, 0), (9, 9), (0, 9)]
    """
    while len(set(points)) < len(points):
        place: dict[Point, int] = {}
        first, last = next((place[point], i) for i, point in enumerate(points) if place.setdefault(point, i) < i)
        rings = points[first:last], points[:first] + points[last:]
        points = max(rings, key=lambda ring: abs(signed_area(ring)))
    return points


def clockwise_from_top(points: list[Point]) -> list[Point]:
    """Return the outline clockwise, starting with the topmost vertex (the leftmost of several)."""
    points = points if signed_area(points) > 0 else points[::-1]
    return topmost_first(points, points)


def topmost_first(points: list[Point], places: Sequence[Point]) -> list[Point]:
    """Return the outline starting with the vertex whose place is topmost (the leftmost of several)."""
    first = min(range(len(points)), key=lambda i: (places[i][1], places[i][0]))
    return points[first:] + points[:first]


def simplify(points: list[Point], max_vertices: int) -> list[Point]:
    """Return an outline of at most `max_vertices`; the vertex of the triangle with the least area is removed first."""
    points = list(points)
    areas = [_corner_area(points, i) for i in range(len(points))]
    while len(points) > max_vertices:
        removed = areas.index(min(areas))
        del points[removed], areas[removed]
        for i in (removed - 1, removed % len(points)):  # only the corners of its neighbours change
            areas[i] = _corner_area(points, i)
    return points


def _corner_area(points: list[Point], i: int) -> float:
    """Return the area of the triangle of a vertex with its neighbours."""
    return abs(signed_area([points[i - 1], points[i], points[(i + 1) % len(points)]]))


def find_crossing(points: list[Point]) -> tuple[int, int] | None:
    """Return the indices of two sides that intersect without being neighbours, or of neighbours that overlap."""
    count = len(points)
    sides = [(points[i], points[(i + 1) % count]) for i in range(count)]
    # Sorted by their left ends, so that a side is compared only with sides that overlap it in x.
    order = sorted(range(count), key=lambda i: min(sides[i][0][0], sides[i][1][0]))
    for position, i in enumerate(order):
        right = max(sides[i][0][0], sides[i][1][0])
        for j in order[position + 1 :]:
            if min(sides[j][0][0], sides[j][1][0]) > right:
                break
            gap = abs(i - j)
            first, second = (i, j) if i < j else (j, i)
            if gap in (1, count - 1):
                # Neighbours share a vertex; they overlap if the second runs back along the first.
                if gap != 1:
                    first, second = second, first
                (a, b), (_, c) = sides[first], sides[second]
                if _cross_product(a, b, c) == 0 and (b[0] - a[0]) * (c[0] - b[0]) + (b[1] - a[1]) * (c[1] - b[1]) < 0:
                    return first, second
            elif _intersect(*sides[i], *sides[j]):
                return first, second
    return None


def _cross_product(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _intersect(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Return whether the segments ab and cd share a point."""
    turns = _cross_product(a, b, c), _cross_product(a, b, d), _cross_product(c, d, a), _cross_product(c, d, b)
    if turns[0] * turns[1] < 0 and turns[2] * turns[3] < 0:
        return True
    corners = zip(turns, ((a, b, c), (a, b, d), (c, d, a), (c, d, b)), strict=True)
    on_line = (points for turn, points in corners if turn == 0)
    return any(sorted((a[0], b[0], p[0]))[1] == p[0] and sorted((a[1], b[1], p[1]))[1] == p[1] for a, b, p in on_line)
