"""Where boxes lie in their images, at the borders of what is refused and clipped."""

from itertools import product

import numpy as np
import pytest

from coord_codec import CoordGrid
from coord_codec.boxes import SmallBoxError
from coord_codec.placing import place

SIZE = (100, 50)
BORDERS = (-np.inf, -1, 0, 20, 20.0001)
"""Ends of a side: more than a pixel beyond, a pixel beyond, on the border, and inside; mirrored at the far border."""


def ends(size):
    near = [np.nextafter(-1, -2) if np.isinf(v) else v for v in BORDERS]
    return [*near, *(np.nextafter(size + 1, 999) if np.isinf(v) else size - v for v in BORDERS)]


def test_box_is_refused_clipped_or_neither_at_every_border():
    """At most a pixel beyond is clipped, and what is refused is not counted as clipped."""
    boxes = list(product(ends(SIZE[0]), ends(SIZE[1]), ends(SIZE[0]), ends(SIZE[1])))
    placed = place(np.array(boxes), np.array([SIZE] * len(boxes)))
    for n, (x1, y1, x2, y2) in enumerate(boxes):
        swapped, outside = x1 > x2 or y1 > y2, min(x1, y1) < -1 or x2 > SIZE[0] + 1 or y2 > SIZE[1] + 1
        inside = (max(x1, 0), max(y1, 0), min(x2, SIZE[0]), min(y2, SIZE[1]))
        empty = inside[0] >= inside[2] or inside[1] >= inside[3]
        assert (n in placed.faults) == (swapped or outside or empty), boxes[n]
        assert isinstance(placed.faults.get(n), SmallBoxError) == (empty and not swapped and not outside), boxes[n]
        assert placed.clipped_N[n] == (n not in placed.faults and inside != (x1, y1, x2, y2)), boxes[n]
        if n not in placed.faults:
            assert placed.fractions_N4[n].tolist() == [v / s for v, s in zip(inside, SIZE * 2, strict=True)]


@pytest.mark.parametrize(("slack", "refused"), [(0, [0, 1, 2]), (0.5, [1, 2]), (2, []), (np.array([[2.0, 0.5]]), [1])])
def test_slack_is_how_far_a_box_may_lie_beyond_each_border(slack, refused):
    boxes = np.array([[-0.25, 10, 100.5, 50.25], [-0.5, 9, 60, 50.75], [99, 10, 101, 40], [0, 0, 100, 50]])
    assert sorted(place(boxes, np.array([SIZE] * 4), slack).faults) == refused


@pytest.mark.parametrize(
    ("size", "unit"), [((100, 50), "pixels"), ((1, 50), "pixels"), ((50, 1), "pixels"), ((1, 1), "in these fractions")]
)
def test_refusal_names_the_unit_of_the_image(size, unit):
    message = str(place(np.array([[0, 0, 300, 300]]), np.array([size])).faults[0])
    assert message == f"(0, 0) to (300, 300) lies outside its image, which is {size[0]} x {size[1]} {unit}"


def test_thin_box_is_small_on_the_grid_alone_and_an_even_thinner_one_without_it():
    boxes = np.array([[10, 10, 10.04, 40], [10.06, 10, 10.2, 40], [10, 10, 40, 10.01], [10, 10, 10, 40]])
    sizes = np.array([SIZE] * 4)
    assert [*place(boxes, sizes).faults] == [3] and [*place(boxes, sizes, grid=CoordGrid()).faults] == [0, 2, 3]
    assert [*place(boxes, sizes, grid=CoordGrid(100, 100)).faults] == [0, 1, 2, 3]
