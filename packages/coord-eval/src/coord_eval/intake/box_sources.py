"""Boxes from the distributions of the coordinate tokens that a prediction gives, instead of from the tokens.

The quantiles of a side are equally probable and independent of the other sides. No shape of the distribution is
assumed, since mean and spread describe a distribution with two peaks badly.

Shapes: D boxes, Q quantiles of a side, P = Q * Q pairs of quantiles along one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from coord_codec import InputError
from coord_eval.parse.answer import Answer, Drop, corners

if TYPE_CHECKING:
    from coord_eval.intake.prediction import Prediction

STATED_IN = {"expected": "coord_expected", "median": "coord_quantiles", "best_iou": "coord_quantiles"}
"""The field of a prediction that each source other than `tokens` uses."""


def with_boxes_from(source: str, answer: Answer, prediction: Prediction) -> Answer:
    """Return the answer with the box of each object taken from the distributions of its coordinates.

    Softmax over the coordinate tokens gives each side a distribution in [0, 1]; the prediction contains its mean,
    standard deviation and quantiles, which do not lie on the grid. Swapped corners are sorted without counting as a
    repair, since the corners in the text may be in order; a box without area is dropped.

    Raises:
        InputError: if the prediction does not have one value for each coordinate token of its text
    """
    if not answer.objects:
        return answer
    sides_by_object = _sides(answer, prediction, STATED_IN[source])
    boxes: list[Sequence[float]] = sides_by_object
    if source == "best_iou":
        boxes = best_boxes(sides_by_object).tolist()
    elif source == "median":
        boxes = [[side[len(side) // 2] for side in sides] for sides in sides_by_object]
    objects, dropped = [], list(answer.dropped)
    for item, (x1, y1, x2, y2) in zip(answer.objects, boxes, strict=True):
        box = (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
        if box[0] < box[2] and box[1] < box[3]:
            objects.append(item._replace(box=box, scale=None))
        else:
            dropped.append(Drop("no_area", item.span))
    dropped.sort(key=lambda drop: drop.span)
    status = "failed" if not objects else "partial" if dropped else answer.status
    return replace(answer, objects=tuple(objects), dropped=tuple(dropped), status=status)


def _sides(answer: Answer, prediction: Prediction, name: str) -> list[Any]:
    """Return the values of a field at the four sides of each object, as `x1, y1, x2, y2`."""
    values = getattr(prediction, name)
    if values is None or len(values) != answer.coord_count:
        found = "nothing" if values is None else f"{len(values)} values"
        raise InputError(
            f"{prediction.where}, {name}: expected one value for each of {answer.coord_count} coordinate tokens, "
            f"found {found}"
        )
    rows = []
    for item in answer.objects:
        sides = [values[i] for i in item.coord_indices]
        if not sides or not item.order or not item.is_box:
            raise InputError(
                f"{prediction.where}: an object without four coordinate tokens has no distribution to take its box from"
            )
        rows.append(corners(item.order, sides))
    return rows


_SWEEPS = 3
_CHUNK = 64
"""Number of boxes that are computed together."""


def best_boxes(quantiles_D4Q: ArrayLike) -> np.ndarray:
    """Return the boxes [D, 4] of the highest expected IoU, by coordinate ascent from the medians.

    Of `x1, y1, x2, y2` each has Q ascending quantiles in [0, 1], the midpoints of equal shares of its distribution; Q
    is odd. Swapped corners of a sampled true box are sorted.

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
    sides_D22Q = np.take_along_axis(sides_D4Q.reshape(count, 2, 2, -1), order_D22[..., None], axis=1)
    sides_D4Q = sides_D22Q.reshape(count, 4, -1)
    low_DAQ1, high_DA1Q = sides_D4Q[:, :2, :, None], sides_D4Q[:, 2:, None, :]
    true_DAQQ2 = np.stack([np.minimum(low_DAQ1, high_DA1Q), np.maximum(low_DAQ1, high_DA1Q)], axis=-1)
    true_DAP2 = true_DAQQ2.reshape(count, 2, -1, 2)
    true_DAP = true_DAP2[..., 1] - true_DAP2[..., 0]
    area_D1PP = (true_DAP[:, 0, :, None] * true_DAP[:, 1, None, :])[:, None]
    box_D4 = sides_D4Q[:, :, middle].copy()
    best_D = _expected_iou(true_DAP2, area_D1PP, box_D4[:, None])[:, 0]
    for _ in range(_SWEEPS):
        before_D4 = box_D4.copy()
        for side in range(4):
            candidate_DQ4 = np.repeat(box_D4[:, None], sides_D4Q.shape[2], axis=1)
            candidate_DQ4[:, :, side] = sides_D4Q[:, side]
            iou_DQ = _expected_iou(true_DAP2, area_D1PP, candidate_DQ4)
            choice_D = iou_DQ.argmax(axis=1)
            iou_D = iou_DQ[np.arange(count), choice_D]
            is_better_D = iou_D > best_D
            box_D4[is_better_D] = candidate_DQ4[np.arange(count), choice_D][is_better_D]
            best_D = np.maximum(best_D, iou_D)
        if (box_D4 == before_D4).all():
            break
    return box_D4


def _expected_iou(true_DAP2: np.ndarray, area_D1PP: np.ndarray, box_DC4: np.ndarray) -> np.ndarray:
    """Return the mean IoU [D, C] of C candidate boxes with all possible true boxes; 0 for a box without area."""
    low_DCA1, high_DCA1 = box_DC4[:, :, :2, None], box_DC4[:, :, 2:, None]
    true_D1AP2 = true_DAP2[:, None]
    common_DCAP = np.minimum(high_DCA1, true_D1AP2[..., 1]) - np.maximum(low_DCA1, true_D1AP2[..., 0])
    common_DCAP = np.maximum(common_DCAP, 0.0)
    size_DC = np.maximum(box_DC4[:, :, 2:] - box_DC4[:, :, :2], 0.0).prod(axis=2)
    common_DCPP = common_DCAP[:, :, 0, :, None] * common_DCAP[:, :, 1, None, :]
    union_DCPP = np.maximum(size_DC, 1e-300)[..., None, None] + area_D1PP
    union_DCPP -= common_DCPP
    common_DCPP /= union_DCPP
    return np.asarray(common_DCPP.mean(axis=(2, 3)))
