"""Infers the scale of plain numbers from the IoU of the boxes with the objects, over the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from coord_codec import CoordGrid, InputError, MarkerFamily
from coord_codec.counts import counted
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.interpretations import RAW_SCALE, BestIou, RawNumbers, interpretations_by_fit
from coord_eval.intake.prediction import Prediction
from coord_eval.parse.answer import OVERSHOOT, corners
from coord_eval.parse.parser import parse_answer

ScaleName = float | Literal["pixels", "input_pixels"]
_FLOOR = 0.2
"""Mean best IoU that the chosen scale must reach; random boxes reach .1, and boxes outside their images count as 0."""
_CLOSE = 0.005  # difference of mean best IoU up to which scales count as equally good
_WEAK, _AHEAD = 0.4, 1.5
"""Mean best IoU below which the chosen scale must exceed every different one by a factor, and this factor."""
_DIFFERENT = 0.05
"""Logarithm of the ratio of two scales from which they are different; 999, 1000 and 1024 are not."""
_CLEARLY, _RESIZED_CLEARLY = 1.25, 1.05
"""Factors of mean best IoU by which another interpretation, and a resized input, must be better to refuse all scales.

The factor is lower for resized inputs: their size is close to that of the image, so that the IoU differs little.
"""
_PLAUSIBLE = 0.5
"""Mean best IoU that another interpretation must reach; shifted boxes reach .4 on a larger copy."""
_IMAGES = 300
"""Number of images on which other interpretations are tried."""


class _Evidence(NamedTuple):
    """How a scale fits the whole set: mean best IoU, 0 for boxes outside their image, and the share of these boxes."""

    scale: ScaleName
    fit: float
    outside: float


def infer_scale(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> tuple[ScaleName | None, list[str]]:
    """Try every scale on the whole set and choose the one whose boxes have the largest mean best IoU with objects.

    A box outside its image counts as an IoU of 0. Labels are ignored. If the mean IoU of two scales differs by at most
    .005, the first of grid, /999, fractions, per cent, /1024, pixels is chosen, and the choice is marked as uncertain.

    All scales are refused if the numbers fit clearly better as those of a resized input, in another order or on a
    rotated image, or if the best fit is weak and a different scale fits nearly as well.

    The arguments are those of `parse_all`.

    Returns:
        The scale, None if no answer contains plain numbers, and the choice and its evidence as notes.

    Raises:
        InputError: if no scale fits clearly best, or answers are about tiles
    """
    rows = _raw_boxes(ground_truth, predictions, images, format, grid)
    if not rows:
        return None, ["no plain numbers in the answers: nothing to scale"]
    image_B, raw_B4, pixels_B2, input_B2 = (np.array(column) for column in zip(*rows, strict=True))
    divisors: dict[ScaleName, np.ndarray] = {
        float(grid.scale): np.full_like(pixels_B2, grid.scale),
        **{float(n): np.full_like(pixels_B2, n) for n in (grid.scale - 1, 1, 100, 1024)},
        "pixels": pixels_B2,
        "input_pixels": input_B2,
    }
    divisors = {scale: sides_B2 for scale, sides_B2 in divisors.items() if np.isfinite(sides_B2).all()}
    fit = BestIou(ground_truth, image_B)
    evidence = [_evidence(scale, fit, raw_B4 / np.tile(sides_B2, 2)) for scale, sides_B2 in divisors.items()]
    ranked = sorted(evidence, key=lambda e: -e.fit)
    top = ranked[0].fit
    best_B2, none_B = divisors[ranked[0].scale], np.zeros(len(rows), np.int64)
    rivals = [e.fit for e in ranked if np.abs(np.log(divisors[e.scale] / best_B2)).max() > _DIFFERENT]
    boxes = Detections.of(ground_truth, image_B, none_B, raw_B4, none_B, none_B)
    raw = RawNumbers(boxes, raw_B4, input_B2, "xyxy", "plain")
    if problem := _problem(ground_truth, raw, best_B2, top, rivals):
        values = ", ".join(f"{e.scale}: {e.fit:.3f}" for e in ranked[:3])
        raise InputError(f"scale: none fits (mean best IoU {values}); {problem}")
    candidates = [e for e in evidence if e.fit >= top - _CLOSE]
    remarks = "" if len(candidates) == 1 else ", but another one fits as well"
    if top < _WEAK:
        remarks += "; it fits weakly, as shifted boxes do: `coord-eval score --diagnose` tries more"
    return candidates[0].scale, [
        f"scale {candidates[0].scale} inferred from {counted(len(rows), 'box', 'boxes')}{remarks}",
        *(
            f"scale {e.scale}: mean best IoU {e.fit:.4f}, {100 * e.outside:.1f} % of the boxes outside"
            for e in ranked[:4]
        ),
    ]


def _problem(truth: GroundTruth, raw: RawNumbers, best_B2: np.ndarray, top: float, rivals: Sequence[float]) -> str:
    """Return why the best scale is unreliable and what to do; empty if it is reliable.

    Its divisors are `best_B2` and its mean best IoU is `top`; `rivals` are those of the scales that differ from it.
    """
    if top * _RESIZED_CLEARLY <= 1:  # otherwise no interpretation can be clearly better
        image_B = raw.detections.image_D
        images = np.flatnonzero(np.bincount(image_B))
        few_B = np.isin(image_B, images[:: -(-len(images) // _IMAGES)])
        boxes, numbers_b4, input_b2 = raw.detections.take(few_B), raw.numbers_B4[few_B], raw.input_B2[few_B]
        some = replace(raw, detections=boxes, numbers_B4=numbers_b4, input_B2=input_b2)
        own = _evidence("pixels", BestIou(truth, image_B[few_B]), numbers_b4 / np.tile(best_B2[few_B], 2)).fit
        for found in interpretations_by_fit(truth, some, fitted=False):
            if found.fit >= max(_PLAUSIBLE, own * (_RESIZED_CLEARLY if found.is_resized else _CLEARLY)):
                return f"this looks like {found.text}, of a mean best IoU of {found.fit:.3f}; name the scale"
    if top < _FLOOR or (top < _WEAK and top < _AHEAD * max(rivals, default=0)):
        return "name the scale; `coord-eval score --diagnose` tries orders, resized inputs and shifts as well"
    return ""


def _evidence(scale: ScaleName, fit: BestIou, unit_B4: np.ndarray) -> _Evidence:
    outside_B = unit_B4.max(axis=1) > 1 + OVERSHOOT
    return _Evidence(scale, fit(np.where(outside_B[:, None], 0, unit_B4)), float(outside_B.mean()))


def _raw_boxes(
    ground_truth: GroundTruth,
    predictions: Sequence[Prediction],
    images: Sequence[int],
    format: str | MarkerFamily,
    grid: CoordGrid,
) -> list[tuple[int, Sequence[float], Sequence[float], Sequence[float]]]:
    """Return image, corners as stated, image size and model input size of each plain box."""
    rows: list[tuple[int, Sequence[float], Sequence[float], Sequence[float]]] = []
    unknown = (np.nan, np.nan)
    for prediction, image in zip(predictions, images, strict=True):
        if prediction.tile:
            raise InputError(f"{prediction.where}, tile: the scale of numbers within tiles cannot be inferred; name it")
        answer = parse_answer(prediction.text, format, scale=RAW_SCALE, grid=grid) if image >= 0 else None
        if answer is None or answer.scale is None:
            continue
        size = ground_truth.sizes_I2[image] if ground_truth.sizes_known else unknown
        if prediction.width and prediction.height:
            size = (prediction.width, prediction.height)
        boxes = (corners(item.order, item.bins) for item in answer if item.is_box)
        rows += [(image, box, size, prediction.input_size or unknown) for box in boxes]
    return rows
