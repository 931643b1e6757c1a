"""Expected IoU of a box, given the mean and the standard deviation of each of its sides.

The true sides are modelled as independent normal variables, clipped to the image. IoU has a kink where a true side
crosses the predicted one, so Gauss-Legendre quadrature is applied on both sides of the kink; for the probability of an
IoU above .5 the last side is integrated in closed form. The nodes are fixed, so that scores have no sampling noise.

Shapes: D boxes, Q nodes of a side, P = Q * Q pairs of nodes along one axis.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_HALF_NODES = 5
_REACH = 3.6
"""Range of integration on either side of the mean in standard deviations; .03 % of the probability lie beyond it."""
_LEGENDRE, _WEIGHTS = np.polynomial.legendre.leggauss(_HALF_NODES)
_CHUNK = 256
"""Number of boxes that are computed together."""


def box_quality(boxes_D4: ArrayLike, means_D4: ArrayLike, spreads_D4: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected IoU [D] of predicted boxes and the probability [D] that their IoU is above .5.

    Args:
        boxes_D4: predicted `x1, y1, x2, y2` in [0, 1]
        means_D4: mean of the distribution of each side; swapped corners are sorted
        spreads_D4: standard deviation of each side

    Example:
        >>> iou, hit = box_quality([(0.2, 0.2, 0.6, 0.6)], [(0.2, 0.2, 0.6, 0.6)], [(0.0, 0.0, 0.0, 0.0)])
        >>> round(float(iou[0]), 6), round(float(hit[0]), 6)
        (1.0, 1.0)
    """
    tables = _widest_last(*(np.asarray(table, np.float64).reshape(-1, 4) for table in (boxes_D4, means_D4, spreads_D4)))
    parts = [_chunk(*(table[i : i + _CHUNK] for table in tables)) for i in range(0, len(tables[0]), _CHUNK)]
    if not parts:
        return np.zeros(0), np.zeros(0)
    expected, hit = (np.concatenate(column) for column in zip(*parts, strict=True))
    return expected, hit


def _widest_last(box_D4: np.ndarray, mean_D4: np.ndarray, spread_D4: np.ndarray) -> list[np.ndarray]:
    """Mirror and transpose the image so that the side with the largest spread relative to the box is the bottom one.

    IoU is invariant under this. The bottom side is integrated in closed form, and a large spread needs that most.
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
    """One axis: nodes of the two true sides, and the lengths [D, P] of intersection and true box for each node pair."""

    def __init__(self, box_D2: np.ndarray, mean_D2: np.ndarray, spread_D2: np.ndarray) -> None:
        self.mean_D2, self.spread_D2 = mean_D2, np.maximum(spread_D2, 1e-9)
        self.box_D2 = box_D2
        kink_D2 = np.clip((box_D2 - self.mean_D2) / self.spread_D2, -_REACH, _REACH)[:, :, None]
        # The two intervals on either side of the kink.
        half_D2 = np.concatenate([kink_D2 + _REACH, _REACH - kink_D2], axis=2) / 2
        middle_D2 = np.concatenate([kink_D2 - half_D2[:, :, :1], kink_D2 + half_D2[:, :, 1:]], axis=2)
        z_D2Q = (middle_D2[..., None] + half_D2[..., None] * _LEGENDRE).reshape(len(box_D2), 2, -1)
        weight_D2Q = (half_D2[..., None] * _WEIGHTS).reshape(z_D2Q.shape) * np.exp(-(z_D2Q**2) / 2)
        self.weight_D2Q = weight_D2Q / weight_D2Q.sum(axis=2, keepdims=True)
        self.side_D2Q = np.clip(self.mean_D2[:, :, None] + self.spread_D2[:, :, None] * z_D2Q, 0.0, 1.0)
        low_DQ1, high_D1Q = self.side_D2Q[:, 0, :, None], self.side_D2Q[:, 1, None, :]
        common_DQQ = np.minimum(high_D1Q, box_D2[:, 1:, None]) - np.maximum(low_DQ1, box_D2[:, :1, None])
        self.common_DP = np.maximum(common_DQQ, 0.0).reshape(len(box_D2), -1)
        self.true_DP = np.maximum(high_D1Q - low_DQ1, 0.0).reshape(len(box_D2), -1)
        self.weight_DP = (self.weight_D2Q[:, 0, :, None] * self.weight_D2Q[:, 1, None, :]).reshape(len(box_D2), -1)


def _chunk(box_D4: np.ndarray, mean_D4: np.ndarray, spread_D4: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, y = (_Axis(box_D4[:, i::2], mean_D4[:, i::2], spread_D4[:, i::2]) for i in (0, 1))
    area_D = (box_D4[:, 2] - box_D4[:, 0]) * (box_D4[:, 3] - box_D4[:, 1])
    common_DPP = x.common_DP[:, :, None] * y.common_DP[:, None, :]
    union_DPP = area_D[:, None, None] + x.true_DP[:, :, None] * y.true_DP[:, None, :] - common_DPP
    iou_DPP = common_DPP / np.maximum(union_DPP, 1e-300)
    expected_D = np.einsum("dp,dpq,dq->d", x.weight_DP, iou_DPP, y.weight_DP)
    return expected_D, _hit_probability(x, y, area_D)


def _hit_probability(x: _Axis, y: _Axis, area_D: np.ndarray) -> np.ndarray:
    """Return P(IoU > .5) [D].

    Given the other three sides, 3 * common > predicted + true area is a concave, piecewise linear condition on the
    bottom true side: it holds on at most one interval, which contains the predicted side.
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
    interval_probability = np.where(possible, np.maximum(below[1] - below[0], 0.0), 0.0)
    probability_D: np.ndarray = np.einsum("dp,dpq,dq->d", x.weight_DP, interval_probability, y.weight_D2Q[:, 0])
    return probability_D.clip(0.0, 1.0)


def _normal_cdf(z: np.ndarray) -> np.ndarray:
    """Return the normal distribution function within 1e-7 (Abramowitz and Stegun 1964, 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-(np.minimum(np.abs(z), 40.0) ** 2) / 2) / np.sqrt(2 * np.pi) * poly
    below: np.ndarray = np.where(z > 0, 1 - tail, tail)
    return below
