"""Finds what plain numbers were divided by when nobody says, and shows why.

One scale for the whole set: a single answer can look right on a wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coord_codec import CoordGrid, MarkerFamily
from coord_eval.building import OVERSHOOT
from coord_eval.errors import InputError
from coord_eval.matching import iou_xywh
from coord_eval.parsing import parse_answer
from coord_eval.predictions import Prediction
from coord_eval.truth import GroundTruth

ScaleName = float | Literal["pixels", "input_pixels"]
# Large enough that no number a model writes falls outside the picture while the raw numbers are read.
_RAW = 1e12
#: A scale under which more than this share of the boxes falls outside the picture is out.
_OUTSIDE_ALLOWED = 0.02
_CLOSE = 0.005


@dataclass(frozen=True)
class ScaleEvidence:
    """How one scale fares on the whole set.

    Attributes:
        scale: ``1000``, ``999``, ``pixels`` or ``input_pixels``, as ``score`` takes it.
        boxes: Boxes in plain numbers whose picture is known.
        outside: Share of them with a number beyond the picture.
        mean_iou: Mean over them of the best IoU with any object of the picture, whatever its label.
    """

    scale: ScaleName
    boxes: int
    outside: float
    mean_iou: float


@dataclass(frozen=True)
class ScaleChoice:
    """The scale that was taken.

    Attributes:
        scale: The scale; None when no answer holds plain numbers.
        certain: False when another scale does as well, within .005 of mean IoU.
        evidence: Every scale that could be tried, best first.
    """

    scale: ScaleName | None
    certain: bool
    evidence: tuple[ScaleEvidence, ...]

    def lines(self) -> list[str]:
        """Return the choice and its evidence in words."""
        if self.scale is None:
            return ["no plain numbers in the answers: nothing to scale"]
        sure = "" if self.certain else ", but another one does as well"
        return [
            f"scale {self.scale} inferred from {self.evidence[0].boxes} boxes{sure}",
            *(
                f"scale {e.scale}: mean best IoU {e.mean_iou:.4f}, {100 * e.outside:.1f} % of the boxes outside"
                for e in self.evidence
            ),
        ]


def infer_scale(
    truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> ScaleChoice:
    """Try every scale on the whole set and take the one whose boxes fit the objects best.

    Scales under which more than 2 % of the boxes leave the picture are out. The labels take no part. Where two are
    within .005 of mean IoU the first of grid, /999, pixels is taken and the choice called uncertain.

    Args:
        truth: The objects.
        predictions: The answers.
        images: Image index of each, -1 for unknown ones.
        format: Format of the answers.
        grid: Grid whose scale is tried first.

    Raises:
        InputError: When no scale keeps the boxes inside their pictures.
    """
    rows = _raw_boxes(truth, predictions, images, format, grid)
    if not rows:
        return ScaleChoice(None, True, ())
    image_B = np.array([row[0] for row in rows])
    raw_B4 = np.array([row[1] for row in rows])
    pixels_B2 = np.array([row[2] for row in rows])
    seen_B2 = np.array([row[3] for row in rows])
    divisors: dict[ScaleName, np.ndarray] = {
        float(grid.scale): np.full_like(pixels_B2, grid.scale),
        float(grid.scale - 1): np.full_like(pixels_B2, grid.scale - 1),
        "pixels": pixels_B2,
        "input_pixels": seen_B2,
    }
    tried = []
    for scale, sides_B2 in divisors.items():
        if np.isfinite(sides_B2).all():
            unit_B4 = raw_B4 / np.tile(sides_B2, 2)
            outside = float((unit_B4 > 1 + OVERSHOOT).any(axis=1).mean())
            tried.append(ScaleEvidence(scale, len(rows), outside, _mean_best_iou(truth, image_B, unit_B4)))
    possible = [e for e in tried if e.outside <= _OUTSIDE_ALLOWED]
    if not possible:
        shares = ", ".join(f"{e.scale}: {100 * e.outside:.0f} %" for e in tried)
        raise InputError(f"scale: no scale keeps the boxes inside their pictures ({shares}); name the scale")
    top = max(e.mean_iou for e in possible)
    near = [e for e in possible if e.mean_iou >= top - _CLOSE]
    ranked = sorted(tried, key=lambda e: (e.outside > _OUTSIDE_ALLOWED, -e.mean_iou))
    return ScaleChoice(near[0].scale, len(near) == 1, tuple(ranked))


def _raw_boxes(
    truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> list[tuple[int, list[float], Sequence[float], Sequence[float]]]:
    """Return image, raw box, picture size and size the model saw of each box in plain numbers."""
    rows: list[tuple[int, list[float], Sequence[float], Sequence[float]]] = []
    for prediction, image in zip(predictions, images, strict=True):
        if image < 0:
            continue
        size = truth.sizes_I2[image] if truth.sizes_known else (np.nan, np.nan)
        if prediction.width and prediction.height:
            size = (prediction.width, prediction.height)
        seen = prediction.input_size or (np.nan, np.nan)
        answer = parse_answer(prediction.text, format, scale=_RAW, grid=grid)
        rows += [
            (image, [c * _RAW for c in item.box], size, seen)
            for item in answer
            if answer.scale is not None and item.geometry == "box"
        ]
    return rows


def _mean_best_iou(truth: GroundTruth, image_B: np.ndarray, unit_B4: np.ndarray) -> float:
    """Return the mean over boxes of the best IoU with any object, in pictures of one by one."""
    total = 0.0
    sizes_I4 = np.tile(truth.sizes_I2, 2)
    regular = np.nonzero(~truth.crowd_N)[0]
    for image in np.unique(image_B):
        objects = regular[truth.image_N[regular] == image]
        if len(objects):
            chosen = unit_B4[image_B == image]
            boxes = np.concatenate([chosen[:, :2], chosen[:, 2:] - chosen[:, :2]], axis=1)
            iou = iou_xywh(boxes, truth.boxes_N4[objects] / sizes_I4[image])
            total += float(iou.max(axis=1).sum())
    return total / len(image_B)
