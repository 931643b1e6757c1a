"""The scale of plain numbers, inferred from how well the boxes of the whole set fit the objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_eval.data.ground_truth import GroundTruth
from coord_eval.data.predictions import Prediction
from coord_eval.intake.transforms import COMMON_INPUTS, COMMON_SQUARES, LAYOUTS, TURNS, resized_sizes
from coord_eval.match.overlaps import box_iou
from coord_eval.parse.answer import OVERSHOOT, corners
from coord_eval.parse.parser import parse_answer

ScaleName = float | Literal["pixels", "input_pixels"]
RAW_SCALE = 1e12
"""Large enough that no number of an answer lies outside the image while the raw numbers are parsed."""
_FLOOR = 0.2
"""Mean best IoU that the chosen scale must reach; chance reaches .1, and boxes outside their images count as 0."""
_CLOSE = 0.005
_WEAK, _AHEAD = 0.4, 1.5
"""Mean best IoU below which the chosen scale must be ahead of every different one, and by which factor."""
_DIFFERENT = 0.05
"""Logarithm of the ratio of two scales from which they are different; those of 999, 1000 and 1024 are not."""
_CLEARLY, _RESIZED_CLEARLY = 1.25, 1.05
"""Factor by which another reading of the numbers, and a resized input, must fit better for every scale to be refused.

A resized input has nearly the size of its image, so that inexact boxes fit the one hardly less than the other.
"""
_PLAUSIBLE = 0.5
"""Mean best IoU that another reading must reach: shifted boxes fit a larger copy by .4."""
_IMAGES = 300
"""Number of images on which other readings are tried."""


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
        if self.evidence[0].mean_iou < _WEAK:
            sure += "; it fits weakly, as shifted boxes do: `coord-eval score --diagnose` tries more"
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

    No scale is chosen where the numbers fit clearly better as those of a resized input, in another order or on a turned
    image, and where the best fit is weak and a different scale fits nearly as well.

    The other arguments are those of `parse_all`.

    Raises:
        InputError: if no scale makes the boxes find objects and is clearly the best, or answers are about tiles
    """
    rows = _raw_boxes(ground_truth, predictions, images, format, grid)
    if not rows:
        return ScaleChoice(None, True, ())
    image_B, written_B4, raw_B4, pixels_B2, seen_B2 = (np.array(column) for column in zip(*rows, strict=True))
    divisors: dict[ScaleName, np.ndarray] = {
        float(grid.scale): np.full_like(pixels_B2, grid.scale),
        **{float(n): np.full_like(pixels_B2, n) for n in (grid.scale - 1, 1, 100, 1024)},
        "pixels": pixels_B2,
        "input_pixels": seen_B2,
    }
    divisors = {scale: sides_B2 for scale, sides_B2 in divisors.items() if np.isfinite(sides_B2).all()}
    tried = []
    for scale, sides_B2 in divisors.items():
        outside_B, fit = _fit(ground_truth, image_B, raw_B4 / np.tile(sides_B2, 2))
        tried.append(ScaleEvidence(scale, len(rows), float(outside_B.mean()), fit))
    ranked = sorted(tried, key=lambda e: -e.mean_iou)
    top = ranked[0].mean_iou
    if problem := _problem(ground_truth, image_B, written_B4, raw_B4, pixels_B2, divisors, ranked):
        found = ", ".join(f"{e.scale}: {e.mean_iou:.3f}" for e in ranked[:3])
        raise InputError(f"scale: none fits (mean best IoU {found}); {problem}")
    near = [e for e in tried if e.mean_iou >= top - _CLOSE]
    return ScaleChoice(near[0].scale, len(near) == 1, tuple(ranked))


def _problem(
    ground_truth: GroundTruth,
    image_B: np.ndarray,
    written_B4: np.ndarray,
    raw_B4: np.ndarray,
    pixels_B2: np.ndarray,
    divisors: Mapping[ScaleName, np.ndarray],
    ranked: Sequence[ScaleEvidence],
) -> str:
    """Return why the best scale is not to be trusted and what to do, nothing where it is."""
    best, top = divisors[ranked[0].scale], ranked[0].mean_iou
    images = np.unique(image_B)
    few_B = np.isin(image_B, images[:: -(-len(images) // _IMAGES)])

    def fit(unit_B4: np.ndarray) -> float:
        return _fit(ground_truth, image_B[few_B], unit_B4[few_B])[1]

    if top * _RESIZED_CLEARLY <= 1:  # otherwise nothing can be clearly better
        own = fit(raw_B4 / np.tile(best, 2))
        resized = (resized_sizes(pixels_B2, *limits) for limits in COMMON_INPUTS if np.isfinite(pixels_B2).all())
        squares = {side: fit(raw_B4 / side) for side in COMMON_SQUARES}
        side = max(COMMON_SQUARES, key=squares.__getitem__)
        others = [layout for name, layout in LAYOUTS.items() if name != "xyxy"]
        turns = [turn for orientation, turn in TURNS.items() if orientation > 1]
        moved = (
            boxes_B4
            for sides_B2 in divisors.values()
            for boxes_B4 in (
                *(layout(written_B4) / np.tile(sides_B2, 2) for layout in others),
                *(turn(raw_B4 / np.tile(sides_B2, 2)) for turn in turns),
            )
        )
        # Several may fit better, and only the best of them is the reason: an order fits a little by chance.
        reached, clearly, reason = max(
            (
                max((fit(raw_B4 / np.tile(sides_B2, 2)) for sides_B2 in resized), default=0.0),
                _RESIZED_CLEARLY,
                "this looks like a resized input: give input_width and input_height",
            ),
            (squares[side], _CLEARLY, f"this looks like a copy of about {side} x {side} pixels: pass scale {side}"),
            (
                max(map(fit, moved)),
                _CLEARLY,
                "the numbers fit in another order or on a turned image: name the scale, and "
                "`coord-eval score --diagnose` says which",
            ),
        )
        if reached >= max(_PLAUSIBLE, clearly * own):
            return reason
    different = [e.mean_iou for e in ranked if np.abs(np.log(divisors[e.scale] / best)).max() > _DIFFERENT]
    if top < _FLOOR or (top < _WEAK and different and top < _AHEAD * max(different)):
        return "name the scale; `coord-eval score --diagnose` tries orders, resized inputs and shifts as well"
    return ""


def _fit(ground_truth: GroundTruth, image_B: np.ndarray, unit_B4: np.ndarray) -> tuple[np.ndarray, float]:
    """Return which boxes lie outside their images, and the mean best IoU in which these count as 0."""
    outside_B: np.ndarray = unit_B4.max(axis=1) > 1 + OVERSHOOT
    return outside_B, mean_best_iou(ground_truth, image_B, np.where(outside_B[:, None], 0, unit_B4))


def _raw_boxes(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> list[tuple[int, Sequence[float], list[float], Sequence[float], Sequence[float]]]:
    """Return image, numbers as written, raw box, image size and size of the model input of each plain box."""
    rows: list[tuple[int, Sequence[float], list[float], Sequence[float], Sequence[float]]] = []
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
            (image, corners(item.order, item.bins), [c * RAW_SCALE for c in item.box], size, seen)
            for item in answer
            if answer.scale is not None and item.geometry == "box" and len(item.bins) == 4
        ]
    return rows


def mean_best_iou(ground_truth: GroundTruth, image_B: np.ndarray, unit_B4: np.ndarray) -> float:
    """Return the mean over boxes of the best IoU with any object, in unit coordinates."""
    total = 0.0
    sizes_I4 = np.tile(ground_truth.sizes_I2, 2)
    images = np.unique(image_B)
    objects = _rows_by_image(ground_truth.image_N, images, ~ground_truth.crowd_N)
    for image, rows, mine in zip(images, _rows_by_image(image_B, images), objects, strict=True):
        if len(mine):
            chosen = unit_B4[rows]
            boxes = np.concatenate([chosen[:, :2], chosen[:, 2:] - chosen[:, :2]], axis=1)
            iou = box_iou(boxes[:, None], ground_truth.boxes_N4[mine] / sizes_I4[image])
            total += float(iou.max(axis=1).sum())
    return total / len(image_B)


def _rows_by_image(image_R: np.ndarray, images: np.ndarray, kept_R: np.ndarray | None = None) -> list[np.ndarray]:
    """Return the rows of each image, in their order, without those that are not kept."""
    order = np.argsort(image_R, kind="stable")
    if kept_R is not None:
        order = order[kept_R[order]]
    low, high = (np.searchsorted(image_R[order], images, side=side) for side in ("left", "right"))
    return [order[a:b] for a, b in zip(low, high, strict=True)]
