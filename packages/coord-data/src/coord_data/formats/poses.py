"""Tells poses, which need `kpt_shape` in data.yaml, from outlines: both are rows of YOLO with many numbers.

Shapes: N rows, V vertices.
"""

from __future__ import annotations

from collections.abc import Sequence

from coord_codec.geometry.polygon import find_crossing

SLACK = 0.02
"""How far a box may leave its image, as a fraction of it."""
_SHORTEST = 4
"""Vertices of the shortest pose: a box and two keypoints of two numbers."""
_VERTEX_REACH = 0.6
"""How far a vertex of an outline lies outside the box around all others, as a fraction of that box."""
_CORNER_REACH = 1.5
"""The same for the corner of a rotated box; that of a square turned by 45 degrees is 1."""
_MOST = 0.8
"""Share of rows that have to look like poses."""
_FEW = 10
"""Number of rows from which points that all lie in the box tell a pose."""
_NOT_CONVEX = 0.3
"""Share of rows that as outlines are not convex, from which such rows are poses; rotated boxes always are."""


def begin_with_boxes(rows: Sequence[Sequence[float]]) -> bool:
    """Return whether all rows begin with the centre and the size of a box inside the image."""
    import numpy as np  # with the file's first rows: commands that read no data start without it

    centre_N2, size_N2 = np.split(np.array([row[:4] for row in rows]), 2, axis=1)
    low, high = (centre_N2 - size_N2 / 2).min(), (centre_N2 + size_N2 / 2).max()
    return bool(size_N2.min() > 0 and low >= -SLACK and high <= 1 + SLACK)


def _repeats_a_vertex(points: Sequence[Sequence[float]]) -> bool:
    """Return whether an outline comes back to a vertex, as one with a hole or one that is closed does.

    A pose repeats none but the point of keypoints that are not labelled, its corner at 0, 0.
    """
    placed = [tuple(point) for point in points if any(point)]
    return len(set(placed)) < len(placed)


def are_poses(rows: Sequence[Sequence[float]]) -> bool:
    """Return whether rows that could be outlines are poses without `kpt_shape`: centre, size and keypoints.

    All have the same count of numbers and begin with a box inside the image. As outlines most of them cross themselves,
    leave the image, or have a second vertex far from all others, where a pose has its size; or all further points lie
    in the box, of at least a few rows, and too many of the outlines are not convex (a triangle always is).
    """
    import numpy as np

    if len({len(row) for row in rows}) != 1 or not begin_with_boxes(rows):
        return False
    points_NV2 = np.array(rows).reshape(len(rows), -1, 2)
    if sum(_repeats_a_vertex(points) for points in points_NV2.tolist()) >= _MOST * len(rows):
        return False
    centre_N2, size_N2, vertices = points_NV2[:, 0], points_NV2[:, 1], points_NV2.shape[1]
    others_NV2 = np.delete(points_NV2, 1, axis=1)
    low_N2, high_N2 = others_NV2.min(axis=1), others_NV2.max(axis=1)
    reach_N2 = (_CORNER_REACH if vertices == _SHORTEST else _VERTEX_REACH) * (high_N2 - low_N2)
    is_none_N = (np.maximum(low_N2 - size_N2, size_N2 - high_N2) > reach_N2).any(axis=1)
    is_none_N |= points_NV2.max(axis=(1, 2)) > 1 + SLACK
    is_none_N |= [find_crossing([(x, y) for x, y in points]) is not None for points in points_NV2.tolist()]
    if vertices >= _SHORTEST and is_none_N.sum() >= _MOST * len(rows):
        return True
    in_box_NV2 = np.abs(points_NV2[:, 2:] - centre_N2[:, None]) <= size_N2[:, None] / 2 + SLACK
    if len(rows) < _FEW or not in_box_NV2.all():
        return False
    side_NV2 = np.roll(points_NV2, -1, axis=1) - points_NV2
    next_NV2 = np.roll(side_NV2, -1, axis=1)
    turn_NV = side_NV2[..., 0] * next_NV2[..., 1] - side_NV2[..., 1] * next_NV2[..., 0]
    is_convex_N = (turn_NV.min(axis=1) >= 0) | (turn_NV.max(axis=1) <= 0)
    return vertices < _SHORTEST or bool((~is_convex_N).sum() >= _NOT_CONVEX * len(rows))
