"""Shapes: canonical order, what is refused, bins and back, the box around them, mirrored images."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coord_codec import GEOMETRIES, CoordGrid, Object, geometry_of, shape_of
from coord_codec.boxes import SmallBoxError
from coord_codec.geometry import polygon
from coord_codec.geometry.base import MIRROR, QUARTER_TURN, Affine
from coord_codec.geometry.polygon import PolygonGeometry, find_crossing, signed_area, simplify
from coord_codec.geometry.shape import InBins, read_shape

GRID = CoordGrid()
# A star of six vertices around the centre: simple whatever the radii are.
ANGLES = [(0, -1), (0.87, -0.5), (0.87, 0.5), (0, 1), (-0.87, 0.5), (-0.87, -0.5)]


def star(radii):
    return [(0.5 + 0.45 * r * dx, 0.5 + 0.45 * r * dy) for r, (dx, dy) in zip(radii, ANGLES, strict=True)]


def flat(points):
    return tuple(c for point in points for c in point)


def naive_meet(a, b, c, d):
    """Two segments share a point: solved exactly in fractions, by parameters instead of signs of turns."""
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = (tuple(map(Fraction, p)) for p in (a, b, c, d))
    r, s = (bx - ax, by - ay), (dx - cx, dy - cy)
    cross = r[0] * s[1] - r[1] * s[0]
    offset = (cx - ax, cy - ay)
    if cross:
        t = (offset[0] * s[1] - offset[1] * s[0]) / cross
        u = (offset[0] * r[1] - offset[1] * r[0]) / cross
        return 0 <= t <= 1 and 0 <= u <= 1
    if offset[0] * r[1] - offset[1] * r[0]:
        return False
    axis = 0 if r[0] else 1
    lo, hi = sorted((Fraction((a, b)[0][axis]), Fraction((a, b)[1][axis])))
    low, high = sorted((Fraction((c, d)[0][axis]), Fraction((c, d)[1][axis])))
    return lo <= high and low <= hi


def naive_crosses(points):
    n = len(points)
    return any(
        naive_meet(points[i], points[(i + 1) % n], points[j], points[(j + 1) % n])
        for i in range(n)
        for j in range(i + 2, n)
        if (j + 1) % n != i
    )


@given(st.lists(st.floats(0.2, 1), min_size=6, max_size=6), st.integers(0, 5), st.booleans())
def test_polygon_order_does_not_depend_on_start_or_direction(radii, start, backwards):
    points = star(radii)
    turned = points[start:] + points[:start]
    arranged = PolygonGeometry().arrange(flat(turned[::-1] if backwards else turned))
    assert arranged == PolygonGeometry().arrange(flat(points))
    vertices = list(zip(arranged[::2], arranged[1::2], strict=True))
    assert vertices[0] == min(points, key=lambda p: (p[1], p[0]))
    assert signed_area(vertices) > 0  # y points down: clockwise as one sees it


def test_clockwise_is_right_then_down():
    clockwise = (0.1, 0.1, 0.5, 0.1, 0.5, 0.5, 0.1, 0.5)
    assert PolygonGeometry().arrange((0.1, 0.1, 0.1, 0.5, 0.5, 0.5, 0.5, 0.1)) == clockwise


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=4, max_size=7, unique=True))
def test_crossing_is_found_as_by_exact_fractions(points):
    points = [(x / 8, y / 8) for x, y in points]  # exact in binary
    found = find_crossing(points)
    if naive_crosses(points):
        assert found is not None
    elif found is not None:  # neighbours that run back on each other, which the naive way does not look at
        assert found[1] == (found[0] + 1) % len(points)
    assert (found is None) == (not naive_crosses(points) and not any(runs_back(points)))


def runs_back(points):
    """Whether each side runs back on the one before it, by exact fractions."""
    for (ax, ay), (bx, by), (cx, cy) in zip(points[-1:] + points[:-1], points, points[1:] + points[:1], strict=True):
        one, other = (
            (Fraction(bx) - Fraction(ax), Fraction(by) - Fraction(ay)),
            (Fraction(cx) - Fraction(bx), Fraction(cy) - Fraction(by)),
        )
        yield one[0] * other[1] == one[1] * other[0] and one[0] * other[0] + one[1] * other[1] < 0


@pytest.mark.parametrize(
    ("coordinates", "fault"),
    [
        ((0.1, 0.1, 0.5, 0.5), "at least 3"),
        ((0.1, 0.1, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1), "at least 3"),
        ((0.1, 0.1, 0.5, 0.5, 0.9), "x and y"),
        ((0.1, 0.1, 0.5, 0.5, 0.5, 0.1, 0.1, 0.6), "cross"),
        ((0.1, 0.1, 0.9, 0.1, 0.5, 0.1, 0.5, 0.9), "cross"),
        ((0.1, 0.9, 0.1, 0.2, 0.1, 0.5, 0.6, 0.6), "cross"),  # back along a side that leads up
    ],
)
def test_polygon_refuses(coordinates, fault):
    with pytest.raises(ValueError, match=fault):
        PolygonGeometry().arrange(coordinates)


def test_polygon_may_have_a_vertex_within_a_straight_side():
    for points in ([(0.1, 0.9), (0.1, 0.5), (0.1, 0.2), (0.8, 0.5)], [(0.9, 0.1), (0.5, 0.1), (0.2, 0.1), (0.5, 0.8)]):
        assert find_crossing(points) is None


def test_polygon_repeated_vertices_are_written_once():
    once = (0.5, 0.1, 0.9, 0.5, 0.1, 0.5)
    assert PolygonGeometry().arrange((0.5, 0.1, 0.9, 0.5, 0.9, 0.5, 0.1, 0.5, 0.5, 0.1)) == once
    # Apart in the file, in one bin on the grid.
    near = PolygonGeometry().arrange((0.5, 0.1, 0.9, 0.5, 0.9001, 0.5002, 0.1, 0.5))
    assert GEOMETRIES["polygon"].to_bins(near, GRID) == [500, 100, 900, 500, 100, 500]


def test_polygon_first_vertex_is_topmost_by_its_bins():
    # The left vertex is lower by less than a bin: in the text both lie equally high, and the left one comes first.
    arranged = PolygonGeometry().arrange((0.8, 0.1, 0.9, 0.5, 0.1, 0.1003))
    assert arranged[:2] == (0.8, 0.1)
    assert GEOMETRIES["polygon"].to_bins(arranged, GRID)[:2] == [100, 100]


def test_polygon_below_a_bin_is_small():
    with pytest.raises(SmallBoxError):
        GEOMETRIES["polygon"].written((0.5, 0.5, 0.5001, 0.5001, 0.5, 0.5001), GRID)


def test_simplified_outline_keeps_the_vertices_that_matter():
    square = [(0.0, 0.0), (0.5, 0.001), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    assert simplify(square, 4) == [square[i] for i in (0, 2, 3, 4)]
    assert len(PolygonGeometry(max_vertices=4).to_bins(flat(square), GRID)) == 8


def test_simplified_outline_is_that_of_computing_every_area_again(monkeypatch):
    draw = random.Random(0)
    points = [(draw.randrange(9) / 8, draw.randrange(9) / 8) for _ in range(200)]  # many areas are equal
    expected = list(points)
    while len(expected) > 5:
        corners = zip([expected[-1], *expected[:-1]], expected, [*expected[1:], expected[0]], strict=True)
        areas = [abs(signed_area(list(corner))) for corner in corners]
        del expected[areas.index(min(areas))]
    calls = []
    monkeypatch.setattr(polygon, "signed_area", lambda corner: calls.append(corner) or signed_area(corner))
    assert simplify(points, 5) == expected
    assert len(calls) <= 3 * len(points)  # outlines of masks have thousands of vertices


def test_oriented_box_is_convex_and_starts_at_the_top():
    corners = [(0.3, 0.1), (0.6, 0.3), (0.5, 0.6), (0.2, 0.4)]
    expected = flat(corners)
    for turn in range(4):
        turned = corners[turn:] + corners[:turn]
        assert GEOMETRIES["oriented"].arrange(flat(turned)) == expected
        assert GEOMETRIES["oriented"].arrange(flat(turned[::-1])) == expected
    with pytest.raises(ValueError, match="convex"):
        GEOMETRIES["oriented"].arrange((0.1, 0.1, 0.9, 0.1, 0.3, 0.3, 0.1, 0.9))


@pytest.mark.parametrize("point", [(0.0, 0.5), (0.5, 0.0), (0.0, 0.0001), (0.0001, 0.0)])
def test_keypoint_on_the_left_or_upper_edge_is_labelled_and_written_so(point):
    kind = GEOMETRIES["keypoints"]
    assert kind.is_placed(point)
    assert any(map(GRID.quantize, kind.written(point, GRID)))


def test_keypoints_without_a_label_are_bin_zero_and_no_others():
    points = {"coordinates": [0.2, 0.3, 0.0001, 0.0002, 0.7, 0.7], "visibility": [2, 1, 0]}
    shape = read_shape({"type": "keypoints", "names": ["left_eye", "right_eye", "nose"], **points})
    kind = geometry_of("keypoints")
    assert shape.coordinates[4:] == (0.0, 0.0)
    assert kind.to_bins(shape.coordinates, GRID) == [200, 300, 0, 1, 0, 0]
    assert shape.box == (0.0001, 0.0002, 0.2, 0.3)
    mirrored = shape.flip()
    assert mirrored.coordinates == (1 - 0.0001, 0.0002, 1 - 0.2, 0.3, 0.0, 0.0)
    assert mirrored.visibility == (1, 2, 0)


@pytest.mark.parametrize("name", ["box", "point", "polygon", "oriented"])
def test_bins_are_read_back_within_half_a_bin(name):
    rng = random.Random(0)
    kind = geometry_of(name)
    for _ in range(200):
        x, y = sorted(rng.uniform(0, 0.99) for _ in range(2)), sorted(rng.uniform(0, 0.99) for _ in range(2))
        if x[1] - x[0] < 0.01 or y[1] - y[0] < 0.01:
            continue
        shape = shape_of(Object(desc="a", bbox=(x[0], y[0], x[1], y[1])), name)
        written = kind.written(shape.coordinates, GRID)
        back = tuple(map(GRID.dequantize, kind.to_bins(shape.coordinates, GRID)))
        assert max(abs(a - b) for a, b in zip(written, back, strict=True)) <= 0.5 / GRID.scale + 1e-12
        # What is read back is in canonical order already.
        assert kind.arrange(back) == back
        assert shape.flip().flip().coordinates == pytest.approx(shape.coordinates)


def test_shape_of_object_without_one_comes_from_its_box():
    cat = Object(desc="cat", bbox=(0.1, 0.2, 0.5, 0.4))
    assert shape_of(cat, "point").coordinates == pytest.approx((0.3, 0.3))
    assert shape_of(cat, "box").coordinates == cat.bbox
    with pytest.raises(ValueError, match="keypoints"):
        shape_of(cat, "keypoints")


def test_moved_into_a_window_is_clipped_at_its_edge():
    shape = read_shape({"type": "polygon", "coordinates": [0.2, 0.2, 0.6, 0.2, 0.6, 0.6]})
    assert shape.moved(0.2, 0.2, 0.4, 0.4).coordinates == pytest.approx((0, 0, 1, 0, 1, 1))
    assert shape.moved(0.2, 0.2, 0.8, 0.8).coordinates == pytest.approx((0, 0, 0.5, 0, 0.5, 0.5))


@pytest.mark.parametrize(
    ("name", "coordinates"),
    [
        ("oriented", (0.1, 0.1, 0.9, 0.1, 0.9, 0.9, 0.1, 0.1)),  # three corners
        ("oriented", (0.1, 0.1, 0.9, 0.1, 0.5, 0.1, 0.1, 0.1)),
        ("polygon", (0.1, 0.1, 0.5, 0.5, 0.9, 0.9)),
        ("keypoints", (0.0,) * 4),
    ],
)
def test_shape_without_an_area_or_a_point_is_small(name, coordinates):
    with pytest.raises(SmallBoxError):
        GEOMETRIES[name].arrange(coordinates)


@pytest.mark.parametrize("corner", [(0.9, 0.1), (0.9001, 0.1002), (0.1, 0.9), (0.1001, 0.8999)])
def test_oriented_box_of_three_corners_in_bins_is_small(corner):
    corners = [(0.1, 0.1), (0.9, 0.1), (0.9, 0.9), (0.1, 0.9)]
    near = [c for c in corners if abs(c[0] - corner[0]) + abs(c[1] - corner[1]) < 0.01]
    fourth = flat([(0.1, 0.1), near[0], (0.9, 0.9), corner])
    with pytest.raises(SmallBoxError):
        GEOMETRIES["oriented"].written(fourth, GRID)


def test_last_vertex_in_the_bin_of_the_first_is_written_once():
    assert GEOMETRIES["polygon"].to_bins((0.5, 0.1, 0.9, 0.5, 0.1, 0.5, 0.4999, 0.1002), GRID) == [
        500,
        100,
        900,
        500,
        100,
        500,
    ]


def test_answer_may_have_a_longer_outline_than_a_target_and_no_other_length():
    reads = [count for count in (4, 5, 6, 7, 8, 256, 258, 1001, 1002) if GEOMETRIES["polygon"].reads(count)]
    assert reads == [6, 8, 256, 258, 1002] and not GEOMETRIES["polygon"].fits(258)
    assert [count for count in range(9) if GEOMETRIES["box"].reads(count)] == [4]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"names": ["a", "a"]}, "2 different names"),
        ({"names": ["a"]}, "2 different names"),
        ({"visibility": [2]}, "visibility"),
        ({"coordinates": [0.1, 0.2, True, 0.5]}, "expected numbers"),
        ({"coordinates": [[0.1, 0.2, 0.3], [0.5]]}, "pairs"),
        ({"coordinates": []}, "expected a list"),
    ],
)
def test_keypoints_are_refused_by_the_field(change, fault):
    shape = {"type": "keypoints", "coordinates": [0.1, 0.2, 0.3, 0.5], "names": ["a", "b"], "visibility": [2, 1]}
    assert read_shape(shape).coordinates == (0.1, 0.2, 0.3, 0.5)
    with pytest.raises(ValueError, match=fault):
        read_shape({**shape, **change})


def test_bins_of_a_shape_are_whole():
    shape = {"type": "point", "coordinates": [10, 20.0]}
    assert read_shape(InBins(shape)).coordinates == (0.01, 0.02)
    with pytest.raises(ValueError, match="whole numbers"):
        read_shape(InBins({**shape, "coordinates": [10, 20.5]}))


def test_shape_of_another_geometry_than_asked_for_comes_from_the_box():
    cat = Object(desc="cat", geometry={"type": "polygon", "coordinates": [0.5, 0.1, 0.9, 0.5, 0.1, 0.5]})
    assert shape_of(cat, "point").coordinates == pytest.approx((0.5, 0.3)) and shape_of(cat, "polygon") is cat.geometry
    assert shape_of(cat, "box").coordinates == cat.bbox == (0.1, 0.1, 0.9, 0.5)


def test_named_points_of_a_mirrored_image_change_sides_and_those_of_a_turned_one_do_not():
    names = ("left_eye", "nose", "right_eye", "left_ear")  # the last has no other side
    points = {"type": "keypoints", "coordinates": [0.1, 0.2, 0.5, 0.5, 0.8, 0.3, 0.2, 0.1], "visibility": [1, 2, 2, 1]}
    shape = read_shape({**points, "names": names})
    flipped = shape.flip()
    assert flipped.names == names and flipped.visibility == (2, 2, 1, 1)
    assert flipped.coordinates == pytest.approx((0.2, 0.3, 0.5, 0.5, 0.9, 0.2, 0.8, 0.1))
    turned = shape.transform(Affine(-1, 0, 0, -1, 1, 1))
    assert turned.visibility == (1, 2, 2, 1) and turned.coordinates[:2] == (0.9, 0.8)


@pytest.mark.parametrize(
    ("change", "mirrors", "is_similarity"),
    [
        (Affine(), False, True),
        (MIRROR, True, True),
        (Affine(yy=-1, y0=1), True, True),
        (Affine(0, 1, 1, 0), True, True),
        (QUARTER_TURN, False, True),
        (Affine(-1, 0, 0, -1, 1, 1), False, True),
        (Affine(0.5, 0, 0, 0.5), False, True),
        (Affine(0.5, 0, 0, 0.51), False, False),
        (Affine(-1, 0, 0, 0.9, 1), True, False),
        (Affine(1, 0.1, 0, 1), False, False),
        (Affine(1, 0.1, -0.1, 1), False, True),
        (Affine.window(0.1, 0.2, 0.5, 0.25), False, False),
    ],
)
def test_change_of_an_image_mirrors_it_and_keeps_its_angles_or_not(change, mirrors, is_similarity):
    assert (change.mirrors, change.is_similarity) == (mirrors, is_similarity)


def test_box_that_leaves_the_image_ends_with_it_and_visible_is_what_is_not_stated():
    box = read_shape({"type": "box", "coordinates": [0.1, 0.2, 0.6, 0.9]})
    assert box.moved(0.2, 0.1, 0.5, 0.5).coordinates == pytest.approx((0, 0.2, 0.8, 1))
    assert box.transform(QUARTER_TURN).coordinates == pytest.approx((0.1, 0.1, 0.8, 0.6))
    points = read_shape({"type": "keypoints", "coordinates": [0.1, 0.2, 0.3, 0.5], "names": ["a", "b"]})
    assert points.visibility == (2, 2) and read_shape(points.to_json()) == points
    assert points.to_json()["names"] == ["a", "b"] and points.to_json()["visibility"] == [2, 2]


@pytest.mark.parametrize(("most", "fits"), [(2, False), (3, True), (128, True), (129, False)])
def test_limit_of_vertices_is_three_at_least(most, fits):
    if fits:
        assert PolygonGeometry().with_max_vertices(most).longest == 2 * most
        assert PolygonGeometry(max_vertices=most).max_vertices == most
    else:
        with pytest.raises(ValueError, match="max_vertices: expected 3 to 128"):
            PolygonGeometry(max_vertices=most)


def test_outline_of_the_largest_area_is_chosen_whatever_its_number_of_vertices():
    small = (0.0, 0.0, 0.1, 0.0, 0.1, 0.1, 0.05, 0.2, 0.0, 0.1)
    large, odd = (0.0, 0.0, 1.0, 0.0, 1.0, 1.0), (0.5,) * 13
    for outlines in ([small, large, odd], [odd, large, small]):
        assert PolygonGeometry().choose_outline(outlines) == large
    assert PolygonGeometry().choose_outline([]) is None
    assert (
        GEOMETRIES["oriented"].choose_outline([large]) is GEOMETRIES["oriented"].choose_outline([small[:8]] * 2) is None
    )
    assert GEOMETRIES["oriented"].choose_outline([small[:8]]) == small[:8]
