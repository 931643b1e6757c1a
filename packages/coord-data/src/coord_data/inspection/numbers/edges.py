"""Evidence from pixels: measures whether the sides of boxes lie on image edges.

For each box the mean rank of the gradient along its four sides is compared with that of the same box moved by 4 to
15 % of the image. The same difference on other images is subtracted, so that boxes unrelated to their images give zero
on average, whatever the typical positions of objects are. Decisions use all images of a set together; loose boxes give
no significant evidence, and lead to no finding.

Shapes: I images, N boxes, n boxes of a sample, K moves; boxes are corners in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
from PIL import Image

SIDE = 320
"""Longer side of the thumbnails that are compared with boxes, in pixels."""
SIGNIFICANT = 3.0
"""z from which evidence is significant."""
_REACH = 0.01  # distance up to which an edge counts, as a fraction of the longer side; at least one pixel
_LEVELS = 200  # number of ranks: their sums along a side of 320 pixels fit into 16 bits
_BORDER = 0.01  # distance from the image border up to which a side is ignored, as a fraction of the image
_AT_ONCE = 4000  # boxes of several moves that are measured together: more would leave the processor's cache
_LEAST = 5  # images from which evidence can be significant
_MOVES, _OTHERS = 8, 4  # random moves of each box, and other images, to compare with


Corners = tuple[np.ndarray, ...]
"""Four arrays of one shape: x and y of the upper left, then of the lower right corner."""


@dataclass(frozen=True)
class EdgeMaps:
    """Cumulative sums of ranked gradients of several images, concatenated.

    Attributes:
        starts_I: index of the first sum of each image
        widths_I: widths of the thumbnails in pixels
        heights_I: heights of the thumbnails in pixels
        down: sums of horizontal gradients from the top
        across: sums of vertical gradients from the left
    """

    starts_I: np.ndarray
    widths_I: np.ndarray
    heights_I: np.ndarray
    down: np.ndarray
    across: np.ndarray

    @classmethod
    def of(cls, images: Iterable[Image.Image]) -> EdgeMaps:
        """Return the maps of images; images with a side of more than `SIDE` pixels are downsampled."""
        sizes, down, across = [], [], []
        for image in images:
            zoom = min(1.0, SIDE / max(image.size))
            size = (max(8, round(image.width * zoom)), max(8, round(image.height * zoom)))
            small = image.resize(size, Image.Resampling.BOX, reducing_gap=2.0) if size != image.size else image
            pixels_HWC = np.asarray(small.convert("RGB"))
            sizes.append(size)
            down.append(_running_sum(pixels_HWC, across=False))
            across.append(_running_sum(pixels_HWC, across=True))
        widths_I, heights_I = np.array(sizes).reshape(-1, 2).T
        areas_I = (widths_I + 1) * (heights_I + 1)
        starts_I = np.cumsum(areas_I) - areas_I
        flat = [np.concatenate([m.ravel() for m in maps] or [np.zeros(0, np.uint16)]) for maps in (down, across)]
        return cls(starts_I, widths_I, heights_I, *flat)

    def __len__(self) -> int:
        return len(self.starts_I)

    @cached_property
    def is_of_one_size(self) -> bool:
        """Whether all thumbnails have the same size, of which places on them are computed once for all."""
        return bool((self.widths_I == self.widths_I[0]).all() and (self.heights_I == self.heights_I[0]).all())

    def along(self, boxes: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Return the mean rank of the gradient along the sides of boxes [..., 4], in [0, 1].

        The result is NaN where no side lies inside the image. `images` are indices that broadcast against the boxes.
        """
        return self._along(tuple(np.moveaxis(boxes, -1, 0)), np.asarray(images))

    def _along(self, corners: Corners, images: np.ndarray) -> np.ndarray:
        """Return what `along` does; arrays of each corner are several times as fast as one with a last axis of four."""
        x1, y1, x2, y2 = corners
        shape = np.broadcast_shapes(x1.shape, images.shape)
        if not len(self):
            return np.full(shape, np.nan)
        start = self.starts_I[images]
        width, height = (
            sides[:1] if self.is_of_one_size else sides[images] for sides in (self.widths_I, self.heights_I)
        )
        stride = width + 1
        x1, x2, y1, y2 = x1 * width, x2 * width, y1 * height, y2 * height
        left, right = _segment(x1, x2, width)
        upper, lower = _segment(y1, y2, height)
        start_upper, start_lower = start + upper * stride, start + lower * stride
        start_left, start_right = start + left, start + right
        down, across = lower - upper, right - left
        total, count = np.zeros(shape), np.zeros(shape, np.int8)
        for x in (x1, x2):
            column = _nearest(x, width)
            rise = self.down.take(start_lower + column).astype(np.int32) - self.down.take(start_upper + column)
            inside = (x > _BORDER * width) & (x < (1 - _BORDER) * width)
            total += rise / down * inside
            count += inside
        for y in (y1, y2):
            row = _nearest(y, height) * stride
            rise = self.across.take(start_right + row).astype(np.int32) - self.across.take(start_left + row)
            inside = (y > _BORDER * height) & (y < (1 - _BORDER) * height)
            total += rise / across * inside
            count += inside
        return np.where(count > 0, total / np.maximum(count, 1) / _LEVELS, np.nan)

    def contrast(self, boxes: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Return the edge strength along each box minus that of moved copies of the box; NaN for impossible boxes.

        Args:
            boxes: the boxes [N, 4], or several moves of them [..., N, 4]
            images: index of the image of each box [N], or several images of each [..., N]
        """
        corners = tuple(np.ascontiguousarray(corner) for corner in np.moveaxis(boxes, -1, 0))
        own, images = self._along(corners, images), np.asarray(images)
        moves_2KN = _moves(boxes.shape[-2])
        others = list[np.ndarray]()
        for move_2N in moves_2KN.swapaxes(0, 1):
            moved = tuple(corner + move_2N[k % 2] for k, corner in enumerate(corners))
            low, high = (reduce(end, moved) for end in (np.minimum, np.maximum))
            others.append(np.where((low < 0) | (high > 1), np.nan, self._along(moved, images)))
        return np.where(is_inside(boxes), own - _nan_mean(np.stack(others, axis=-1), -1), np.nan)

    def evidence(self, boxes_N4: np.ndarray, image_N: np.ndarray) -> np.ndarray:
        """Return the contrast of each image's boxes minus their contrast on other images; NaN without boxes."""
        own_I = self.by_image(self.contrast(boxes_N4, image_N), image_N)
        if len(self) < 2:
            return own_I
        rng = np.random.default_rng(1)
        steps = rng.integers(1, len(self), _OTHERS)
        others_SI = self.by_image(self.contrast(boxes_N4, (image_N + steps[:, None]) % len(self)), image_N)
        above_I: np.ndarray = own_I - _nan_mean(others_SI, 0)
        return above_I

    def by_image(self, values: np.ndarray, image_N: np.ndarray) -> np.ndarray:
        """Return the mean of the finite values [..., N] of each image [..., I]; NaN where there is none."""
        shape = (*values.shape[:-1], len(self))
        size, finite = math.prod(shape), np.isfinite(values)
        rows = np.arange(math.prod(shape[:-1])).reshape(*shape[:-1], 1)
        cells = (rows * len(self) + image_N)[finite]
        sums, counts = np.bincount(cells, values[finite], size), np.bincount(cells, minlength=size)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(shape)


@dataclass(frozen=True)
class Sample:
    """Boxes to compare with pixels; its methods take the corners of these boxes, in [0, 1].

    Attributes:
        maps: edge maps of the images of the sample
        rows_n: indices of the boxes of these images, of all boxes of the set
        image_n: index in `maps` of the image of each box
        group_I: group of look-alikes of each image of `maps`, such as frames of one camera; None if all are independent
    """

    maps: EdgeMaps
    rows_n: np.ndarray
    image_n: np.ndarray
    group_I: np.ndarray | None = None

    def z_of_groups(self, values_I: np.ndarray) -> float:
        """Return `z_value` with each group of look-alikes counted once, by its mean."""
        if self.group_I is None:
            return z_value(values_I)
        finite_I = np.isfinite(values_I)
        sums, counts = (np.bincount(self.group_I[finite_I], weights_I) for weights_I in (values_I[finite_I], None))
        return z_value(sums[counts > 0] / counts[counts > 0])

    @property
    def says_nothing(self) -> bool:
        """Whether there are so few images that no evidence is significant, see `z_value`."""
        return len(self.maps) < _LEAST

    @property
    def size_n2(self) -> np.ndarray:
        """Width and height in pixels of the thumbnail of each box."""
        sizes_n2: np.ndarray = np.stack([self.maps.widths_I, self.maps.heights_I], axis=1)[self.image_n]
        return sizes_n2

    def spread(self, count: int) -> np.ndarray:
        """Return the positions of at most `count` boxes, evenly spaced."""
        return np.unique(np.linspace(0, len(self.rows_n) - 1, min(count, len(self.rows_n))).astype(np.int64))

    def take(self, kept: np.ndarray) -> Sample:
        """Return the sample with some of its boxes, by position or mask."""
        return replace(self, rows_n=self.rows_n[kept], image_n=self.image_n[kept])

    def evidence(self, boxes_n4: np.ndarray) -> np.ndarray:
        """Return the evidence of each image."""
        return self.maps.evidence(boxes_n4, self.image_n)

    def contrast(self, boxes: np.ndarray) -> np.ndarray:
        """Return the mean contrast of each image, which is cheaper than `evidence`; see `EdgeMaps.contrast`.

        Several moves of the boxes may be given at once, [..., n, 4], which gives [..., I].
        """
        return self.maps.by_image(self.maps.contrast(boxes, self.image_n), self.image_n)

    def several(
        self, moves: Sequence[Any], boxes_of: Callable[[Any], np.ndarray], measure: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Return the `contrast` or `onset` of the boxes after several moves, [K, I], of as many at once as is fast."""
        at_once = max(1, _AT_ONCE // max(1, len(self.rows_n)))
        groups = (moves[k : k + at_once] for k in range(0, len(moves), at_once))
        found = [measure(np.stack([boxes_of(move) for move in group])) for group in groups]
        return np.concatenate(found) if found else np.zeros((0, len(self.maps)))

    def onset(self, boxes: np.ndarray, clear: bool = False) -> np.ndarray:
        """Return for each image the edge strength along its boxes minus that a tenth of the box size outside them.

        Several moves of the boxes may be given at once, [..., n, 4], which gives [..., I].

        It is largest if boxes are neither too large nor too small, for round objects too. For small objects a tenth is
        less than the width of an edge, so that larger boxes seem to fit better; `clear` measures outside the edge.
        """
        distance = 0.1 * (boxes[..., 2:] - boxes[..., :2])
        if clear:
            distance = np.maximum(distance, (_reach(self.size_n2.max(axis=1, keepdims=True)) + 2) / self.size_n2)
        outside = boxes + np.concatenate([-distance, distance], axis=-1)
        own, beyond = self.maps.along(np.stack([boxes, outside]).clip(0, 1), self.image_n)
        return self.maps.by_image(own - beyond, self.image_n)


def is_inside(boxes: np.ndarray, margin: float = 0.01) -> np.ndarray:
    """Return which boxes [..., 4] have a positive area and lie inside the image."""
    x1, y1, x2, y2 = np.moveaxis(boxes, -1, 0)
    inside: np.ndarray = is_inside_along(x1, x2, margin) & is_inside_along(y1, y2, margin)
    return inside


def is_inside_along(low: np.ndarray, high: np.ndarray, margin: float = 0.01) -> np.ndarray:
    """Return which boxes have a positive length along one axis of the image, and lie inside it."""
    inside: np.ndarray = (low < high) & (low >= -margin) & (high <= 1 + margin)
    return inside


def z_value(values_I: np.ndarray) -> float:
    """Return the significance of the mean being different from 0, as a z value; 0 for fewer than 5 values.

    Student's t is converted to z by Wallace's approximation (1959), so that few images need a larger t.
    """
    values = values_I[np.isfinite(values_I)]
    if len(values) < _LEAST or not values.std():
        return 0.0
    freedom = len(values) - 1
    t = float(values.mean() / (values.std(ddof=1) / math.sqrt(len(values))))
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return math.copysign(z, t)


def _running_sum(pixels_HWC: np.ndarray, *, across: bool) -> np.ndarray:
    """Sum the ranks of the gradient along x from the top down, or of that along y from the left: [H + 1, W + 1].

    Column or row k is the edge before pixel k.
    """

    def pair(values: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the values that have one `by` steps before them, and these earlier ones."""
        return (values[by:], values[:-by]) if across else (values[:, by:], values[:, :-by])

    after, before = pair(pixels_HWC, 1)
    red, green, blue = np.moveaxis(np.maximum(after, before) - np.minimum(after, before), 2, 0)
    step = np.maximum(np.maximum(red, green), blue)  # a seventh of the time of `max(axis=2)`
    wide = step.copy()
    for reach in range(1, int(_reach(np.array(max(pixels_HWC.shape[:2])))) + 1):
        (wide_after, wide_before), (step_after, step_before) = pair(wide, reach), pair(step, reach)
        np.maximum(wide_after, step_before, out=wide_after)
        np.maximum(wide_before, step_after, out=wide_before)
    counts = np.bincount(wide.ravel(), minlength=256)
    ranks = ((np.cumsum(counts) - counts / 2) / wide.size * _LEVELS).astype(np.uint16)
    height, width, _ = pixels_HWC.shape
    sums = np.zeros((height + 1, width + 1), np.uint16)
    inner = sums[1:-1, 1:] if across else sums[1:, 1:-1]
    np.cumsum(ranks[wide], axis=int(across), dtype=np.uint16, out=inner)
    return sums


def _reach(longer_sides: np.ndarray) -> np.ndarray:
    """Return the distance in pixels up to which an edge counts."""
    return np.maximum(1, np.rint(_REACH * longer_sides)).astype(np.int64)


@lru_cache(maxsize=4)
def _moves(count: int) -> np.ndarray:
    """Return `_MOVES` random offsets in x and y of `count` boxes, [2, K, N]: the same at each call."""
    rng = np.random.default_rng(0)
    moves_NK2 = rng.uniform(0.04, 0.15, (count, _MOVES, 2)) * rng.choice([-1, 1], (count, _MOVES, 2))
    return np.ascontiguousarray(moves_NK2.transpose(2, 1, 0))


def _nearest(position: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Round to the nearest pixel from 0 to `end`; `np.clip` is slower for small arrays."""
    nearest: np.ndarray = np.minimum(np.maximum(np.rint(position).astype(np.int64), 0), end)
    return nearest


def _segment(low: np.ndarray, high: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return integer bounds inside the image that are at least two pixels apart."""
    first = _nearest(low, end - 2)
    return first, np.minimum(np.maximum(np.rint(high).astype(np.int64), first + 2), end)


def _nan_mean(values: np.ndarray, axis: int) -> np.ndarray:
    finite = np.isfinite(values)
    total = np.where(finite, values, 0).sum(axis)
    return np.where(finite.any(axis), total / np.maximum(finite.sum(axis), 1), np.nan)
