"""Where boxes lie in their images, at the borders of what is refused and clipped."""

from itertools import product

import numpy as np

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
