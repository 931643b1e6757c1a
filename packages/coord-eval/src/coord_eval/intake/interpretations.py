"""Interpretations of the numbers of all answers, and how well the boxes of each match objects.

Every order, scale, resized, rotated and mirrored input is tried on the whole set, then one affine map for all boxes in
each order, fitted on labels that occur once in the image and in its answer, and on ranked coordinates whatever their
labels.

Shapes: B boxes, I images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from coord_codec.box_transforms import COMMON_INPUTS, COMMON_SQUARES, FIELDS, LAYOUTS, TURNS, resized_sizes
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.iou import BoxColumns

RAW_SCALE = 1e12
"""Scale for parsing raw numbers, so large that no number of an answer lies outside the image."""
_FITTED, _CLEARER = (
    1.03,
    0.01,
)  # ratio, and gain of mean best IoU, from which a fitted one, or another size, is preferred
_IMAGES = 300  # number of images on which common input sizes are tried
_PAIRS = 8  # smallest number of objects to fit an affine map on
_RESIZED = ((28, 56 * 56, 28 * 28 * 1280), (28, 56 * 56, 28 * 28 * 16384), (32, 256 * 256, 4096 * 4096))
"""Pixels per side of a token, and limits of pixels, of the processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""
_TIMES = (2.0, 4.0, 0.5, 0.25)
"""How many times larger the image is than copies that common tools make."""

_TURNED = {
    2: "mirrored left to right",
    3: "turned upside down",
    4: "mirrored top to bottom",
    6: "turned clockwise",
    7: "mirrored along the rising diagonal",
    8: "turned counter-clockwise",
}
"""EXIF orientations, without the first, which changes nothing, and the fifth, which is the order y, x."""


@dataclass(frozen=True)
class Interpretation:
    """One interpretation of the numbers of all answers: corners in [0, 1], and their mean best IoU with objects.

    After the change that `advice` names, the numbers are interpreted so; `is_fitted` ones have parameters that were
    fitted on the ground truth.
    """

    name: str
    unit_B4: np.ndarray
    fit: float
    advice: str = ""
    is_fitted: bool = False

    @property
    def is_resized(self) -> bool:
        """Whether the image was resized in between, to a size that is close to its own."""
        return "an input resized" in self.name

    @property
    def text(self) -> str:
        """Name with the advice."""
        return f"{self.name} ({self.advice})" if self.advice else self.name


@dataclass(frozen=True)
class RawNumbers:
    """The four numbers of each box as the answers state them, in the order of their format, a key of `LAYOUTS`.

    `input_B2` are the sizes of the model input, NaN where they are not stated. `view_B4` are x, y, width and height in
    pixels of the part of the image that the model was given, None if all were given whole images. Interpretations are
    of all boxes and judged by those of `judged_B`, all of them if it is None.
    """

    detections: Detections
    numbers_B4: np.ndarray
    input_B2: np.ndarray
    order: str
    kind: Literal["tokens", "plain", "results"]
    judged_B: np.ndarray | None = None
    view_B4: np.ndarray | None = None

    def advice(self, layout: str, option: str) -> str:
        """Return the change after which the numbers are interpreted in that order, or the option for it."""
        if self.kind == "results" and layout == self.order:
            return f"bbox holds {FIELDS[layout]} on another scale; COCO's results have pixels of the image"
        if self.kind == "results":
            return f"bbox holds {FIELDS[layout]}; COCO's results have x, y, width, height in pixels of the image"
        if layout != self.order:
            return (
                f"answers hold {FIELDS[layout]} and are read as {FIELDS[self.order]}: the model learned that order "
                "from the prompt or the training data; change it there, or in these answers"
            )
        return option if self.kind == "plain" else ""


def interpretations_by_fit(truth: GroundTruth, raw: RawNumbers, fitted: bool = True) -> list[Interpretation]:
    """Return the interpretations of the numbers, best first; a `fitted` map must be better than all others."""
    truth = truth.take(np.isin(truth.image_N, raw.detections.image_D))  # few answers of a large set are looked at
    trials = _Trials(truth, raw)
    found = [*trials.orders(), *trials.padded(), *(trials.affine_maps() if fitted else ())]
    ranked = sorted(found, key=lambda candidate: -candidate.fit)
    # A fitted map that is hardly better is one of the others with rounded parameters.
    best_fixed = max(candidate.fit for candidate in ranked if not candidate.is_fitted)
    return [item for item in ranked if not item.is_fitted or item.fit >= best_fixed * _FITTED]


class _Trials:
    """Reads the numbers in every way and compares the boxes with the objects.

    `j` are the boxes that interpretations are judged by, `b` those of a few images.
    """

    def __init__(self, truth: GroundTruth, raw: RawNumbers) -> None:
        self.truth, self.raw, self.image_B = truth, raw, raw.detections.image_D
        self.image_size_B2 = truth.sizes_I2[self.image_B]
        self.size_B2 = self.image_size_B2 if raw.view_B4 is None else raw.view_B4[:, 2:]
        self.is_sized = truth.sizes_known and bool(np.isfinite(self.size_B2).all())
        self.judged_j = np.arange(len(self.image_B)) if raw.judged_B is None else np.flatnonzero(raw.judged_B)
        self.best_iou = BestIou(truth, self.image_B[self.judged_j])
        self.read_B4 = LAYOUTS[raw.order](raw.numbers_B4)
        images = np.flatnonzero(np.bincount(self.image_B))
        is_few_j = np.isin(self.image_B[self.judged_j], images[:: -(-len(images) // _IMAGES) or 1])
        self.few_b = self.judged_j[is_few_j]
        self.read_b4 = self.read_B4[self.few_b]
        self.best_iou_of_few = BestIou(truth, self.image_B[self.few_b])

    def reading(self, name: str, view_B4: np.ndarray, advice: str, is_fitted: bool = False) -> Interpretation:
        """Return the interpretation with these corners in [0, 1] of what the model was given."""
        unit_B4 = self.in_image(view_B4, np.arange(len(view_B4)))
        return Interpretation(name, unit_B4, self.best_iou(unit_B4[self.judged_j]), advice, is_fitted)

    def fit_of_few(self, view_b4: np.ndarray) -> float:
        """Return the mean best IoU of the boxes of a few images, from corners in [0, 1] of what the model was given."""
        return self.best_iou_of_few(self.in_image(view_b4, self.few_b))

    def in_image(self, view_b4: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return corners in [0, 1] of the image of some rows, from those in [0, 1] of what the model was given."""
        if self.raw.view_B4 is None:
            return view_b4
        start_b2, size_b2 = self.raw.view_B4[rows, :2], self.image_size_B2[rows]
        image_b4: np.ndarray = (view_b4 * np.tile(self.size_B2[rows], 2) + np.tile(start_b2, 2)) / np.tile(size_b2, 2)
        return image_b4

    def in_view(self, unit_b4: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return corners in [0, 1] of what the model was given: the inverse of `in_image`."""
        if self.raw.view_B4 is None:
            return unit_b4
        start_b2, size_b2 = self.raw.view_B4[rows, :2], self.image_size_B2[rows]
        view_b4: np.ndarray = (unit_b4 * np.tile(size_b2, 2) - np.tile(start_b2, 2)) / np.tile(self.size_B2[rows], 2)
        return view_b4

    @cached_property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        rows, objects = _unambiguous_pairs(self.truth, self.raw.detections.take(self.judged_j))
        return self.judged_j[rows], objects

    def orders(self) -> Iterator[Interpretation]:
        """Yield the boxes in each order and orientation, with each divisor."""
        for divisor, option, divisor_B2 in self._divisors():
            for layout, to_corners in LAYOUTS.items():
                unit_B4 = to_corners(self.raw.numbers_B4) / np.tile(divisor_B2, 2)
                advice = self.raw.advice(layout, option)
                yield self.reading(f"numbers{_as(layout)} {divisor}", unit_B4, advice)
            for orientation, turned in _TURNED.items():
                # From the sixth orientation on, the axes are exchanged, and with them width and height of the image.
                sides_B2 = divisor_B2[:, ::-1] if orientation > 4 else divisor_B2
                unit_B4 = TURNS[orientation](self.read_B4 / np.tile(sides_B2, 2))
                advice = f"the images that the model saw or learned from were {turned}, and their boxes were not"
                yield self.reading(f"numbers {divisor}, {turned}", unit_B4, advice)

    def _divisors(self) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yield possible divisors of the numbers: description, option for it, and the divisors of x and y."""
        for number in (1000, 999, 1, 100, 1024):
            yield f"divided by {number}", f"--scale {number}", np.full_like(self.size_B2, number)
        if not self.is_sized:
            return
        yield "in pixels of the image", "--scale pixels", self.size_B2
        if np.isfinite(self.raw.input_B2).all():
            yield "in pixels of the model's input", "--scale input_pixels", self.raw.input_B2
        side = max(COMMON_SQUARES, key=lambda side: self.fit_of_few(self.read_b4 / side))
        copy = f"in pixels of a copy of {side} x {side} pixels"
        yield copy, f"--scale {side}", np.full_like(self.size_B2, side)
        times = max(_TIMES, key=lambda n: self.fit_of_few(n * self.read_b4 / np.tile(self.size_B2[self.few_b], 2)))
        option = "give input_width and input_height, --scale input_pixels"
        yield (
            f"as fractions of the image's size, x times {times:.3f}, y times {times:.3f}",
            option,
            self.size_B2 / times,
        )
        fit_by_limits = {
            limits: self.fit_of_few(self.read_b4 / np.tile(resized_sizes(self.size_B2[self.few_b], *limits), 2))
            for limits in (*_RESIZED, *COMMON_INPUTS)
        }
        usual = max(fit_by_limits, key=fit_by_limits.__getitem__)
        is_clearer = fit_by_limits[usual] >= max(map(fit_by_limits.__getitem__, _RESIZED)) + _CLEARER
        for factor, low, high in (*_RESIZED, *([usual] if is_clearer else [])):
            name = f"in pixels of an input resized to multiples of {factor} and at most {high} pixels"
            yield name, option, resized_sizes(self.size_B2, factor, low, high)

    def padded(self) -> Iterator[Interpretation]:
        """Yield the boxes as those of a square that holds the image in its centre or at its top left."""
        if not self.is_sized:
            return
        share_B2 = self.size_B2 / self.size_B2.max(axis=1, keepdims=True)
        advice = "the model saw padded images: take the border off the boxes"
        for where, low_B2 in (("in the centre", (1 - share_B2) / 2), ("at the top left", np.zeros_like(share_B2))):
            low_B4, share_B4 = np.tile(low_B2, 2), np.tile(share_B2, 2)
            fit_by_side = {
                side: self.fit_of_few((self.read_b4 / side - low_B4[self.few_b]) / share_B4[self.few_b])
                for side in (1000, 1, 100, *COMMON_SQUARES)
            }
            side = max(fit_by_side, key=fit_by_side.__getitem__)
            for layout, to_corners in LAYOUTS.items():
                unit_B4 = (to_corners(self.raw.numbers_B4) / side - low_B4) / share_B4
                name = f"numbers{_as(layout)} divided by {side} in a padded square with the image {where}"
                yield self.reading(name, unit_B4, advice)

    def affine_maps(self) -> Iterator[Interpretation]:
        """Yield the boxes in each order after an affine map, of fractions and of thousandths."""
        for suffix, divisor_B2 in (("", np.full_like(self.size_B2, 1000)), (" of the image's size", self.size_B2)):
            if not np.isfinite(divisor_B2).all():
                continue
            for layout, to_corners in LAYOUTS.items():
                unit_B4 = to_corners(self.raw.numbers_B4) / np.tile(divisor_B2, 2)
                # The ranks of an image do not hold in its tiles.
                ways = (False, True) if self.raw.view_B4 is None else (False,)
                tried = (self._affine(layout, unit_B4, suffix, ranked) for ranked in ways)
                fitted = [found for found in tried if found is not None]
                if fitted:
                    yield max(fitted, key=lambda candidate: candidate.fit)

    def _affine(self, layout: str, unit_B4: np.ndarray, suffix: str, ranked: bool) -> Interpretation | None:
        """Return the boxes after one map `a x + b` per axis, fitted on unambiguous pairs or on ranks of any label."""
        truth, moved_B4, parts = self.truth, unit_B4.copy(), []
        corners_N4 = LAYOUTS["xywh"](truth.boxes_N4) / np.tile(truth.sizes_I2[truth.image_N], 2)
        for axis, name in enumerate("xy"):
            sides_B2, sides_N2 = unit_B4[:, axis::2], corners_N4[:, axis::2]
            if ranked:
                x, y = _ranked_sides(truth, self.image_B[self.judged_j], sides_B2[self.judged_j], sides_N2)
            else:
                rows, objects = self._pairs
                x, y = sides_B2[rows].ravel(), self.in_view(corners_N4[objects], rows)[:, axis::2].ravel()
            if len(x) < 2 * _PAIRS:
                return None
            a, b = robust_line(x, y)
            moved_B4[:, axis::2] = a * sides_B2 + b
            parts.append(f"{name} times {a:.3f}" + (f" {b:+.3f}" if abs(b) >= 5e-4 else ""))
        unit = f"as fractions{suffix}" if suffix else "divided by 1000"
        advice = self.raw.advice(layout, "") if layout != self.raw.order else ""
        name = f"numbers{_as(layout)} {unit}, {', '.join(parts)}"
        return self.reading(name, moved_B4, advice, is_fitted=True)


def _as(layout: str) -> str:
    return "" if layout == "xyxy" else f" as {layout}"


def _ranked_sides(
    truth: GroundTruth, image_B: np.ndarray, sides_B2: np.ndarray, sides_N2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pair coordinates of boxes and objects by rank, on images with as many of both; no map changes the ranks."""
    images = len(truth.sizes_I2)
    not_crowd = np.flatnonzero(~truth.crowd_N)
    image_N = truth.image_N[not_crowd]
    same_I = np.bincount(image_B, minlength=images) == np.bincount(image_N, minlength=images)
    chosen_B, chosen_N = np.flatnonzero(same_I[image_B]), np.flatnonzero(same_I[image_N])

    def ranked(image: np.ndarray, sides: np.ndarray) -> np.ndarray:
        return np.concatenate([sides[np.lexsort((sides[:, k], image)), k] for k in (0, 1)])

    return ranked(image_B[chosen_B], sides_B2[chosen_B]), ranked(image_N[chosen_N], sides_N2[not_crowd][chosen_N])


def _unambiguous_pairs(truth: GroundTruth, detections: Detections) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and objects that are the only one of their label in their image."""
    width = len(truth.categories) + len(detections.unknown) + 1
    key_D, key_N = detections.image_D * width + detections.category_D, truth.image_N * width + truth.category_N
    unique = [keys[counts == 1] for keys, counts in (np.unique(k, return_counts=True) for k in (key_D, key_N))]
    shared = np.intersect1d(*unique)
    order_D, order_N = np.argsort(key_D, kind="stable"), np.argsort(key_N, kind="stable")
    return (order_D[np.searchsorted(key_D[order_D], shared)], order_N[np.searchsorted(key_N[order_N], shared)])


def robust_line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Fit y = a x + b, and repeat the fit three times without outliers."""
    inlier = np.ones(len(x), bool)
    a, b = 1.0, 0.0
    for _ in range(4):
        if inlier.sum() < _PAIRS or np.ptp(x[inlier]) == 0:
            break
        a, b = np.polyfit(x[inlier], y[inlier], 1).tolist()
        error = np.abs(a * x + b - y)
        inlier = error <= 2.5 * np.median(error[inlier]) + 1e-9
    return a, b


class BestIou:
    """The mean over boxes, in [0, 1], of the best IoU with any object of their image, for boxes of the same images.

    A reading after the other is tried on the same boxes, so that all that objects say of their pairs is kept, a number
    a column.
    """

    def __init__(self, truth: GroundTruth, image_B: np.ndarray) -> None:
        regular_R = np.flatnonzero(~truth.crowd_N & np.isin(truth.image_N, image_B))
        regular_R = regular_R[np.argsort(truth.image_N[regular_R], kind="stable")]
        image_R = truth.image_N[regular_R]
        first_B, stop_B = (np.searchsorted(image_R, image_B, side=side) for side in ("left", "right"))
        self._count_B = stop_B - first_B
        self._begin_B = np.cumsum(self._count_B) - self._count_B
        self._has_B = self._count_B > 0
        within_P = np.arange(self._count_B.sum()) - np.repeat(self._begin_B, self._count_B)
        objects_R4 = truth.boxes_N4[regular_R] / np.tile(truth.sizes_I2, 2)[image_R]
        self._objects = BoxColumns.of(objects_R4).take(np.repeat(first_B, self._count_B) + within_P)

    def __call__(self, unit_B4: np.ndarray) -> float:
        """Return the mean; 0 without boxes."""
        return float(self.of_each(unit_B4).mean()) if len(unit_B4) else 0.0

    def of_each(self, unit_B4: np.ndarray) -> np.ndarray:
        """Return the best IoU [B] of each box, 0 where its image has no object."""
        best_B = np.zeros(len(unit_B4))
        if self._has_B.any():
            boxes_B4 = np.concatenate([unit_B4[:, :2], unit_B4[:, 2:] - unit_B4[:, :2]], axis=1)
            boxes = BoxColumns.of(boxes_B4).repeat(self._count_B)
            best_B[self._has_B] = np.maximum.reduceat(boxes.iou(self._objects), self._begin_B[self._has_B])
        return best_B
