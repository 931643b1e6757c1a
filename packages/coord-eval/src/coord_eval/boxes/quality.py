"""Expected IoU of a box, given the mean and the standard deviation of each of its sides.

The true sides are modelled as independent normal variables, clipped to the image. IoU has a kink where a true side
crosses a predicted one, and clipping puts probability mass on the border of the image, so each side is integrated by
Gauss-Legendre quadrature between these points; for the probability of an IoU above .5 the last side is integrated in
closed form. The nodes are fixed, so that scores have no sampling noise. Compared with Monte Carlo samples, the expected
IoU differs by at most .004 and the probability by at most .03 over 120 unusual boxes; on average both differ by < .001.

Shapes: D boxes, Q nodes of a side, P = Q * Q pairs of nodes along one axis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

_IOU_NODES, _HIT_NODES = 4, 8
"""Nodes between two cuts of a side: of the expected IoU, which is smooth there, and of the probability, which jumps."""


@cache
def _quadrature(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of Gauss-Legendre quadrature; the module is slow to import."""
    nodes: tuple[np.ndarray, np.ndarray] = np.polynomial.legendre.leggauss(count)
    return nodes


_REACH = 3.6
"""Range of integration on either side of the mean in standard deviations; .03 % of the probability lie beyond it."""
_CHUNK = 256
"""Number of boxes that are computed together."""


def expected_iou(boxes_D4: ArrayLike, means_D4: ArrayLike, spreads_D4: ArrayLike) -> np.ndarray:
    """Return the expected IoU [D] of predicted boxes.

    Args:
        boxes_D4: predicted `x1, y1, x2, y2` in [0, 1]
        means_D4: mean of the distribution of each side; swapped corners are sorted
        spreads_D4: standard deviation of each side

    Example:
        >>> found = expected_iou([(0.2, 0.2, 0.6, 0.6)], [(0.2, 0.2, 0.6, 0.6)], [(0.0, 0.0, 0.0, 0.0)])
        >>> round(float(found[0]), 6)
        1.0
    """
    return _in_chunks(_expected_iou, _IOU_NODES, boxes_D4, means_D4, spreads_D4)


def hit_probability(boxes_D4: ArrayLike, means_D4: ArrayLike, spreads_D4: ArrayLike) -> np.ndarray:
    """Return the probability [D] that the IoU of predicted boxes is above .5; see `expected_iou`."""
    return _in_chunks(_hit_probability, _HIT_NODES, boxes_D4, means_D4, spreads_D4)


def _in_chunks(
    integrate: Callable[[_Axis, _Axis, np.ndarray], np.ndarray], nodes: int, *given: ArrayLike
) -> np.ndarray:
    tables = _widest_last(*(np.asarray(table, np.float64).reshape(-1, 4) for table in given))
    parts = []
    for start in range(0, len(tables[0]), _CHUNK):
        box_D4, mean_D4, spread_D4 = (table[start : start + _CHUNK] for table in tables)
        x, y = (_Axis(box_D4[:, i::2], mean_D4[:, i::2], spread_D4[:, i::2], nodes) for i in (0, 1))
        parts.append(integrate(x, y, (box_D4[:, 2] - box_D4[:, 0]) * (box_D4[:, 3] - box_D4[:, 1])))
    return np.concatenate(parts) if parts else np.zeros(0)


def _widest_last(box_D4: np.ndarray, mean_D4: np.ndarray, spread_D4: np.ndarray) -> list[np.ndarray]:
    """Mirror and transpose the image so that the side of the largest spread, relative to the box, is the lower one.

    IoU stays the same, and the side that is integrated in closed form is the one that needs the finest nodes.
    """
    sorted_D4 = np.argsort(mean_D4.reshape(-1, 2, 2), axis=1, kind="stable")
    mean_D22, spread_D22 = (np.take_along_axis(t.reshape(-1, 2, 2), sorted_D4, axis=1) for t in (mean_D4, spread_D4))
    box_D22 = box_D4.reshape(-1, 2, 2).copy()
    for axis in (0, 1):
        mirrored_D = spread_D22[:, 0, axis] > spread_D22[:, 1, axis]
        for table, flip in ((box_D22, True), (mean_D22, True), (spread_D22, False)):
            other_D2 = table[:, ::-1, axis]
            table[:, :, axis] = np.where(mirrored_D[:, None], 1 - other_D2 if flip else other_D2, table[:, :, axis])
    relative_D2 = spread_D22[:, 1] / np.maximum(box_D22[:, 1] - box_D22[:, 0], 1e-9)
    swapped_D = relative_D2[:, 0] > relative_D2[:, 1]
    tables = (np.where(swapped_D[:, None, None], t[:, :, ::-1], t) for t in (box_D22, mean_D22, spread_D22))
    return [table.reshape(-1, 4) for table in tables]


class _Axis:
    """One axis: the nodes of the two true sides, and common and true length [D, P] of each pair of nodes."""

    def __init__(self, box_D2: np.ndarray, mean_D2: np.ndarray, spread_D2: np.ndarray, nodes: int) -> None:
        self.box_D2, self.mean_D2, self.spread_D2 = box_D2, mean_D2, np.maximum(spread_D2, 1e-9)
        border_D2 = np.broadcast_to([0.0, 1.0], box_D2.shape)
        # Beyond the other answered side the IoU is 0: the lower side counts up to there, the upper one from there on.
        cut_D23 = np.sort(np.stack([border_D2, box_D2, box_D2[:, ::-1]], axis=2), axis=2)
        z_D23 = (cut_D23 - self.mean_D2[:, :, None]) / self.spread_D2[:, :, None]
        below_D23 = _normal_cdf(z_D23)
        side_D22N, weight_D22N = _nodes(z_D23, nodes)
        side_D22N = self.mean_D2[:, :, None, None] + self.spread_D2[:, :, None, None] * side_D22N
        side_D22N = np.clip(side_D22N, cut_D23[:, :, :-1, None], cut_D23[:, :, 1:, None])
        weight_D22N = weight_D22N * np.diff(below_D23, axis=2)[..., None]
        # What lies outside of the image lies on its border.
        outside_D2 = np.stack([below_D23[:, 0, 0], 1 - below_D23[:, 1, 2]], axis=1)
        count = len(box_D2)
        self.side_D2Q = np.concatenate([side_D22N.reshape(count, 2, -1), border_D2[:, :, None]], axis=2)
        self.weight_D2Q = np.concatenate([weight_D22N.reshape(count, 2, -1), outside_D2[:, :, None]], axis=2)
        low_DQ1, high_D1Q = self.side_D2Q[:, 0, :, None], self.side_D2Q[:, 1, None, :]
        common_DQQ = np.minimum(high_D1Q, box_D2[:, 1:, None]) - np.maximum(low_DQ1, box_D2[:, :1, None])
        self.common_DP = np.maximum(common_DQQ, 0.0).reshape(count, -1)
        self.true_DP = np.maximum(high_D1Q - low_DQ1, 0.0).reshape(count, -1)
        self.weight_DP = (self.weight_D2Q[:, 0, :, None] * self.weight_D2Q[:, 1, None, :]).reshape(count, -1)


def _nodes(z_D23: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes [D, 2, 2, N] of a standard normal variable between cuts, and weights that add up to 1."""
    place_N, weight_N = _quadrature(count)
    near_D23 = np.clip(z_D23, -_REACH, _REACH)
    middle_D22, half_D22 = (near_D23[:, :, 1:] + near_D23[:, :, :-1]) / 2, np.diff(near_D23, axis=2) / 2
    z_D22N = middle_D22[..., None] + half_D22[..., None] * place_N
    weight_D22N = weight_N * np.exp(-(z_D22N**2) / 2)
    return z_D22N, weight_D22N / weight_D22N.sum(axis=3, keepdims=True)


def _expected_iou(x: _Axis, y: _Axis, area_D: np.ndarray) -> np.ndarray:
    common_DPP = x.common_DP[:, :, None] * y.common_DP[:, None, :]
    union_DPP = area_D[:, None, None] + x.true_DP[:, :, None] * y.true_DP[:, None, :] - common_DPP
    iou_DPP = common_DPP / np.maximum(union_DPP, 1e-300)
    found: np.ndarray = np.einsum("dp,dpq,dq->d", x.weight_DP, iou_DPP, y.weight_DP)
    return found


def _hit_probability(x: _Axis, y: _Axis, area_D: np.ndarray) -> np.ndarray:
    """Return P(IoU > .5) [D].

    Given the other three sides, 3 * common > answered + true area is a concave, piecewise linear condition on the
    lower true side: it holds on one interval, if at all around the answered side.
    """
    common_DP1, true_DP1 = x.common_DP[:, :, None], x.true_DP[:, :, None]
    top_D1Q, area_D11 = y.side_D2Q[:, None, 0, :], area_D[:, None, None]
    begin_D1Q = np.maximum(top_D1Q, y.box_D2[:, :1, None])
    bottom_D11 = y.box_D2[:, 1:, None]
    at_bottom = 3 * common_DP1 * (bottom_D11 - begin_D1Q) - area_D11
    with np.errstate(divide="ignore", invalid="ignore"):
        from_ = (area_D11 + 3 * common_DP1 * begin_D1Q - true_DP1 * top_D1Q) / (3 * common_DP1 - true_DP1)
        to = top_D1Q + at_bottom / true_DP1
    possible = (bottom_D11 > begin_D1Q) & (at_bottom > true_DP1 * (bottom_D11 - top_D1Q))
    mean, spread = y.mean_D2[:, 1, None, None], y.spread_D2[:, 1, None, None]
    # A side beyond the border of the image lies on the border.
    below = [np.where(v >= 1, 1.0, np.where(v <= 0, 0.0, _normal_cdf((v - mean) / spread))) for v in (from_, to)]
    given = np.where(possible, np.maximum(below[1] - below[0], 0.0), 0.0)
    found: np.ndarray = np.einsum("dp,dpq,dq->d", x.weight_DP, given, y.weight_D2Q[:, 0])
    return found.clip(0.0, 1.0)


def _normal_cdf(z: np.ndarray) -> np.ndarray:
    """Return the normal distribution function within 1e-7 (Abramowitz and Stegun 1964, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-(np.minimum(np.abs(z), 40.0) ** 2) / 2) / np.sqrt(2 * np.pi) * poly
    below: np.ndarray = np.where(z > 0, 1 - tail, tail)
    return below
