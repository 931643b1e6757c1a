"""Similarity and mean of shapes other than boxes, for fusion.

Shapes: K groups; coordinates are fractions of the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coord_codec import Geometry
from coord_codec.geometry.base import flat, pairs
from coord_eval.shapes.similarity import Points, TrueShapes, similarity_of

Coordinates = tuple[float, ...]


class Shapes:
    """The shapes of one label, compared by the measure of their geometry."""

    def __init__(
        self, kind: Geometry, shapes: Sequence[Coordinates], score_N: np.ndarray, size: tuple[float, float]
    ) -> None:
        self._kind, self._shapes, self._size = kind, shapes, size
        self._score_N = np.maximum(score_N, 1e-12)
        self._measure = similarity_of(kind)

    def compare(self, one: Sequence[int], others: Sequence[Sequence[int]]) -> np.ndarray:
        """Return the similarity [K] of the mean shape of some members to the mean shapes of K groups."""
        result_K = np.zeros(len(others))
        present = [k for k, members in enumerate(others) if members]
        if present:
            true = [self.mean(others[k]) for k in present]
            points = [self._points(shape) for shape in true]
            width, height = self._size
            boxes = np.array([self._kind.to_box(shape) for shape in true])
            area = (boxes[:, 2] - boxes[:, 0]) * width * (boxes[:, 3] - boxes[:, 1]) * height
            placed = [np.array([self._kind.is_placed(p) for p in self._kind.outline(shape)]) for shape in true]
            found = [self._points(self.mean(one))]
            result_K[present] = self._measure.compare(found, TrueShapes(points, placed, area, self._size))[0]
        return result_K

    def _points(self, shape: Coordinates) -> Points:
        width, height = self._size
        return [(x * width, y * height) for x, y in self._kind.outline(shape)]

    def mean(self, members: Sequence[int], cut: Sequence[int] = ()) -> Coordinates:
        """Return the mean of shapes, weighted by score, point by point.

        Shapes whose points have no counterparts (outlines of any number of vertices, lengths and angles) have none: of
        these, the shape of the highest score stands for all.

        Args:
            members: indices of the shapes, that of the highest score first
            cut: those of them that an edge has cut; they count only if all members are cut
        """
        whole = [n for n in members if n not in cut] or list(members)
        first = self._shapes[whole[0]]
        if len(whole) == 1 or not (self._kind.has_points and (self._kind.fixed or self._kind.named)):
            return first
        alike = [n for n in whole if len(self._shapes[n]) == len(first)]
        points = [_aligned(pairs(self._shapes[n]), pairs(first), self._kind.closed) for n in alike]
        placed = np.array([[self._kind.is_placed(point) for point in row] for row in points])
        weight = placed * self._score_N[alike][:, None]
        total = weight.sum(axis=0)
        mean = (np.array(points) * weight[:, :, None]).sum(axis=0) / np.where(total > 0, total, 1)[:, None]
        coordinates = flat([(x, y) for x, y in mean.tolist()])
        try:
            return self._kind.arrange(coordinates)
        except ValueError:  # the mean of two convex outlines need not be one
            return first


def _aligned(points: list[tuple[float, float]], first: list[tuple[float, float]], closed: bool) -> Points:
    """Return an outline that starts where another does: the topmost corner of almost equal boxes may be another one."""
    if not closed:
        return points
    turns = [points[i:] + points[:i] for i in range(len(points))]
    return min(turns, key=lambda turn: float(np.square(np.subtract(turn, first)).sum()))
