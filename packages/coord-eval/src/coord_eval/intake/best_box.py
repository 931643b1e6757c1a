"""The box of the highest expected IoU, given quantiles of the distribution of each of its sides.

The quantiles of a side are equally probable and independent of the other sides. No shape of the distribution is
assumed, since mean and spread describe a distribution with two peaks badly.

Shapes: D boxes, Q quantiles of a side, P = Q * Q pairs of quantiles along one axis.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_SWEEPS = 3
_CHUNK = 64
"""Number of boxes that are computed together."""


def best_boxes(quantiles_D4Q: ArrayLike) -> np.ndarray:
    """Return the boxes [D, 4] of the highest expected IoU, by coordinate ascent from the medians.

    Args:
        quantiles_D4Q: ascending values in [0, 1], the midpoints of Q equal shares of the distribution of `x1, y1, x2,
            y2`; Q is odd. Swapped corners of a sampled true box are sorted.

    Example:
        >>> best_boxes([[[0.1, 0.2, 0.9], [0.2] * 3, [0.95] * 3, [0.6] * 3]])[0].tolist()
        [0.2, 0.2, 0.95, 0.6]
    """
    sides_D4Q = np.asarray(quantiles_D4Q, np.float64)
    chunks = [_best(sides_D4Q[i : i + _CHUNK]) for i in range(0, len(sides_D4Q), _CHUNK)]
    return np.concatenate(chunks) if chunks else np.zeros((0, 4))


def _best(sides_D4Q: np.ndarray) -> np.ndarray:
    count, middle = len(sides_D4Q), sides_D4Q.shape[2] // 2
    order_D22 = np.argsort(sides_D4Q[:, :, middle].reshape(-1, 2, 2), axis=1, kind="stable")
    sides_D4Q = np.take_along_axis(sides_D4Q.reshape(count, 2, 2, -1), order_D22[..., None], axis=1).reshape(
        count, 4, -1
    )
    low_DAQ1, high_DA1Q = sides_D4Q[:, :2, :, None], sides_D4Q[:, 2:, None, :]
    true_DAP2 = np.stack([np.minimum(low_DAQ1, high_DA1Q), np.maximum(low_DAQ1, high_DA1Q)], axis=-1).reshape(
        count, 2, -1, 2
    )
    box_D4 = sides_D4Q[:, :, middle].copy()
    best_D = _expected_iou(true_DAP2, box_D4[:, None])[:, 0]
    for _ in range(_SWEEPS):
        before_D4 = box_D4.copy()
        for side in range(4):
            candidate_DQ4 = np.repeat(box_D4[:, None], sides_D4Q.shape[2], axis=1)
            candidate_DQ4[:, :, side] = sides_D4Q[:, side]
            iou_DQ = _expected_iou(true_DAP2, candidate_DQ4)
            choice_D = iou_DQ.argmax(axis=1)
            iou_D = iou_DQ[np.arange(count), choice_D]
            is_better_D = iou_D > best_D
            box_D4[is_better_D] = candidate_DQ4[np.arange(count), choice_D][is_better_D]
            best_D = np.maximum(best_D, iou_D)
        if (box_D4 == before_D4).all():
            break
    return box_D4


def _expected_iou(true_DAP2: np.ndarray, box_DC4: np.ndarray) -> np.ndarray:
    """Return the mean IoU [D, C] of C candidate boxes with all possible true boxes; 0 for a box without area."""
    low_DCA1, high_DCA1 = box_DC4[:, :, :2, None], box_DC4[:, :, 2:, None]
    true_D1AP2 = true_DAP2[:, None]
    common_DCAP = np.minimum(high_DCA1, true_D1AP2[..., 1]) - np.maximum(low_DCA1, true_D1AP2[..., 0])
    common_DCAP = np.maximum(common_DCAP, 0.0)
    true_D1AP = true_D1AP2[..., 1] - true_D1AP2[..., 0]
    size_DCA = np.maximum(box_DC4[:, :, 2:] - box_DC4[:, :, :2], 0.0)
    common_DCPP = common_DCAP[:, :, 0, :, None] * common_DCAP[:, :, 1, None, :]
    union_DCPP = size_DCA.prod(axis=2)[..., None, None] + true_D1AP[:, :, 0, :, None] * true_D1AP[:, :, 1, None, :]
    union_DCPP = union_DCPP - common_DCPP
    iou_DC: np.ndarray = (common_DCPP / np.maximum(union_DCPP, 1e-300)).mean(axis=(2, 3))
    return iou_DC
