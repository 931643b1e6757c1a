"""The scale of plain numbers, inferred from how well the boxes of the whole set fit the objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_eval.data.ground_truth import GroundTruth
from coord_eval.data.predictions import Prediction
from coord_eval.match.overlaps import box_iou
from coord_eval.parse.answer import OVERSHOOT
from coord_eval.parse.parser import parse_answer

ScaleName = float | Literal["pixels", "input_pixels"]
RAW_SCALE = 1e12
"""Large enough that no number of an answer lies outside the image while the raw numbers are parsed."""
_FLOOR = 0.1
"""Mean best IoU that the chosen scale must reach; boxes outside their images count as 0."""
_CLOSE = 0.005


@dataclass(frozen=True)
class ScaleEvidence:
    """How well one scale fits the whole set.

    Attributes:
        scale: a number, `pixels` or `input_pixels`, as `score` takes it
        boxes: number of boxes in plain numbers whose image is known
        outside: share of them with a number beyond the image
        mean_iou: mean over them of the best IoU with any object of the image, whatever its label, 0 for those outside
    """

    scale: ScaleName
    boxes: int
    outside: float
    mean_iou: float


@dataclass(frozen=True)
class ScaleChoice:
    """The scale that was chosen.

    Attributes:
        scale: the scale; None if no answer holds plain numbers
        certain: False if another scale fits as well, within .005 of mean IoU
        evidence: every scale that could be tried, best first
    """

    scale: ScaleName | None
    certain: bool
    evidence: tuple[ScaleEvidence, ...]

    def lines(self) -> list[str]:
        """Return the choice and its evidence as notes."""
        if self.scale is None:
            return ["no plain numbers in the answers: nothing to scale"]
        sure = "" if self.certain else ", but another one fits as well"
        return [
            f"scale {self.scale} inferred from {self.evidence[0].boxes} boxes{sure}",
            *(
                f"scale {e.scale}: mean best IoU {e.mean_iou:.4f}, {100 * e.outside:.1f} % of the boxes outside"
                for e in self.evidence[:4]
            ),
        ]


def infer_scale(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> ScaleChoice:
    """Try every scale on the whole set and choose the one whose boxes fit the objects best.

    A box outside its image counts as an IoU of 0. Labels play no part. Where two scales are within .005 of mean IoU,
    the first of grid, /999, fractions, per cent, /1024, pixels is chosen and the choice is called uncertain.

    The other arguments are those of `parse_all`.

    Raises:
        InputError: if no scale makes the boxes find objects, or answers are about tiles
    """
    rows = _raw_boxes(ground_truth, predictions, images, format, grid)
    if not rows:
        return ScaleChoice(None, True, ())
    image_B, raw_B4, pixels_B2, seen_B2 = (np.array(column) for column in zip(*rows, strict=True))
    divisors: dict[ScaleName, np.ndarray] = {
        float(grid.scale): np.full_like(pixels_B2, grid.scale),
        **{float(n): np.full_like(pixels_B2, n) for n in (grid.scale - 1, 1, 100, 1024)},
        "pixels": pixels_B2,
        "input_pixels": seen_B2,
    }
    tried = []
    for scale, sides_B2 in divisors.items():
        if np.isfinite(sides_B2).all():
            unit_B4 = raw_B4 / np.tile(sides_B2, 2)
            outside_B = (unit_B4 > 1 + OVERSHOOT).any(axis=1)
            fit = mean_best_iou(ground_truth, image_B, np.where(outside_B[:, None], 0, unit_B4))
            tried.append(ScaleEvidence(scale, len(rows), float(outside_B.mean()), fit))
    ranked = sorted(tried, key=lambda e: -e.mean_iou)
    top = ranked[0].mean_iou
    if top < _FLOOR:
        found = ", ".join(f"{e.scale}: {e.mean_iou:.3f}" for e in ranked[:3])
        raise InputError(
            f"scale: none fits (mean best IoU {found}); this looks like a resized input: give input_width and "
            "input_height, or name the scale; `coord-eval score --diagnose` tries orders and shifts as well"
        )
    near = [e for e in tried if e.mean_iou >= top - _CLOSE]
    return ScaleChoice(near[0].scale, len(near) == 1, tuple(ranked))


def _raw_boxes(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> list[tuple[int, list[float], Sequence[float], Sequence[float]]]:
    """Return image, raw box, image size and size of the model input of each box in plain numbers."""
    rows: list[tuple[int, list[float], Sequence[float], Sequence[float]]] = []
    for prediction, image in zip(predictions, images, strict=True):
        if prediction.tile:
            raise InputError(f"{prediction.where}, tile: the scale of numbers within tiles cannot be inferred; name it")
        if image < 0:
            continue
        size = ground_truth.sizes_I2[image] if ground_truth.sizes_known else (np.nan, np.nan)
        if prediction.width and prediction.height:
            size = (prediction.width, prediction.height)
        seen = prediction.input_size or (np.nan, np.nan)
        answer = parse_answer(prediction.text, format, scale=RAW_SCALE, grid=grid)
        rows += [
            (image, [c * RAW_SCALE for c in item.box], size, seen)
            for item in answer
            if answer.scale is not None and item.geometry == "box"
        ]
    return rows


def mean_best_iou(ground_truth: GroundTruth, image_B: np.ndarray, unit_B4: np.ndarray) -> float:
    """Return the mean over boxes of the best IoU with any object, in unit coordinates."""
    total = 0.0
    sizes_I4 = np.tile(ground_truth.sizes_I2, 2)
    regular = np.nonzero(~ground_truth.crowd_N)[0]
    for image in np.unique(image_B):
        objects = regular[ground_truth.image_N[regular] == image]
        if len(objects):
            chosen = unit_B4[image_B == image]
            boxes = np.concatenate([chosen[:, :2], chosen[:, 2:] - chosen[:, :2]], axis=1)
            iou = box_iou(boxes[:, None], ground_truth.boxes_N4[objects] / sizes_I4[image])
            total += float(iou.max(axis=1).sum())
    return total / len(image_B)
