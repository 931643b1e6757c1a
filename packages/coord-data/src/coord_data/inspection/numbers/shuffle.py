"""Detects boxes that belong to other images of the set, by trying each image with the boxes of every other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from coord_codec.box_transforms import TURNS
from coord_data.inspection.numbers.edges import Sample, is_inside
from coord_data.sources.raw_boxes import IN_A_ROW

_BOXES = 20  # of an image at most
_CONTROLS = 20  # random moves that estimate the fit by chance
_MOSTLY = 0.95  # share of boxes inside their images unless images are shuffled
_OUTSIDE = 0.4  # fit of a box that leaves the image; a box without edges has .5
_LEAST = 10  # images below which nothing is decided
_COMPARED = 4  # alternative placements that are compared with chance, of all that are tried
_RIM = 0.01  # distance of the sides of a box from those of its image, as a fraction, up to which it spans it
_SPREAD = 1e-6  # standard deviation below which the boxes of all images are the same
SHUFFLED = 4.0
"""Standard deviations above chance from which images count as shuffled."""
SHUFFLED_OTHERWISE = 5.0
"""The same for boxes that are not placed as declared, since about a hundred placements are tried."""
_FEW, _FEW_EXTRA = 20, 1.0  # below this number of images the threshold of alternative placements is higher by this


@dataclass(frozen=True)
class Placement:
    """Boxes under one interpretation of their numbers.

    Attributes:
        boxes_n4: corners in [0, 1] of the image that each box of the sample is assigned to
        in_pixels: whether pixels stay the same on an image of another size, and not fractions
        turn: orientation (numbered as in EXIF) by which the boxes are rotated on the image they are tried on
    """

    boxes_n4: np.ndarray
    in_pixels: bool
    turn: int = 1


def find_pairs(
    placements: Sequence[Placement], sample: Sample, sizes_J2: np.ndarray
) -> tuple[float, dict[int, int]] | None:
    """Return the assignment of boxes to other images whose fit exceeds chance most; None if none does so clearly.

    With the standard deviations above chance comes the image of the maps that boxes belong to, by the one they are
    assigned to.

    The statistic is the mean fit over pairs of different images that are each other's best match. Chance is estimated
    from the same boxes after one random move of all of them, which keeps their sizes and number. The result is None
    for fewer than 10 images, and for boxes that are the same in all images. Images whose boxes all span them, such as
    scanned pages, are not counted: such a box fits any image.

    Consecutive images are tried, since a list that is off by one row assigns to each image the boxes of the next. The
    first placement is the declared one; the others have a higher threshold.
    """
    owners = np.unique(sample.image_n[~_spans_its_image(placements[0].boxes_n4)])
    if len(owners) < _LEAST:
        return None
    owners = owners[max(0, len(owners) - IN_A_ROW) // 2 :][:IN_A_ROW]
    rows = np.concatenate([np.flatnonzero(sample.image_n == owner)[:_BOXES] for owner in owners])
    owner_N = np.searchsorted(owners, sample.image_n[rows])
    # One number of pixels is another fraction of an image of another size.
    zoom_NJ4 = np.tile(sizes_J2[owners][owner_N][:, None] / sizes_J2[owners], 2)
    one_size = bool((zoom_NJ4 == 1).all())

    def fit(placement: Placement, move: np.ndarray | None = None) -> tuple[float, dict[int, int]]:
        boxes_N4 = placement.boxes_n4[rows]
        boxes_N4 = boxes_N4 if move is None else _wrapped(boxes_N4, move)
        boxes_NJ4 = boxes_N4[:, None]  # [N, 1, 4] where they are the same in each image
        if placement.in_pixels and not one_size:
            boxes_NJ4 = boxes_NJ4 * zoom_NJ4
        boxes_NJ4 = TURNS[placement.turn](boxes_NJ4.reshape(-1, 4)).reshape(boxes_NJ4.shape)
        may_leave = float(is_inside(boxes_N4).mean()) < _MOSTLY
        return _best_pairs(boxes_NJ4, may_leave, owner_N, owners, sample)

    moves = np.random.default_rng(0).uniform(0.1, 0.9, (_CONTROLS, 2))
    extra = _FEW_EXTRA * (len(owners) < _FEW)
    tried = tqdm(placements[1:], "comparing boxes with other images", leave=False, disable=None, unit="reading")
    fits = [fit(placement)[0] for placement in tried]
    others = [placements[1 + k] for k in np.argsort(-np.array(fits), kind="stable")[:_COMPARED].tolist()]
    results = []
    for group, threshold in ((placements[:1], SHUFFLED), (others, SHUFFLED_OTHERWISE + extra)):
        # Moves wrap around the image borders, so that the same boxes stay inside.
        chance = [fit(placement, move)[0] for placement in group for move in moves]
        if not chance or np.std(chance) < _SPREAD:
            continue
        for value, pairs in map(fit, group):
            z = float((value - np.mean(chance)) / np.std(chance))
            results += [(z, pairs)] if z >= threshold else []
    return max(results, key=lambda result: result[0], default=None)


def _spans_its_image(boxes_N4: np.ndarray) -> np.ndarray:
    """Return which boxes leave no more than a rim of their image."""
    spans_N: np.ndarray = is_inside(boxes_N4) & (boxes_N4[:, :2] <= _RIM).all(axis=1)
    return spans_N & (boxes_N4[:, 2:] >= 1 - _RIM).all(axis=1)


def _wrapped(boxes_N4: np.ndarray, move: np.ndarray) -> np.ndarray:
    size_N2 = boxes_N4[:, 2:] - boxes_N4[:, :2]
    room_N2 = np.maximum(1 - size_N2, 1e-6)
    low_N2 = (boxes_N4[:, :2] + move) % room_N2
    return np.concatenate([low_N2, low_N2 + size_N2], axis=1)


def _best_pairs(
    boxes_NJ4: np.ndarray, may_leave: bool, owner_N: np.ndarray, owners: np.ndarray, sample: Sample
) -> tuple[float, dict[int, int]]:
    count = len(owners)
    fit_NJ = sample.maps.along(boxes_NJ4.clip(0, 1), owners[None, :])
    outside_NJ = ~is_inside(boxes_NJ4)
    # If many boxes leave the images they are assigned to, leaving an image is evidence against that image.
    fit_NJ = np.where(outside_NJ, _OUTSIDE if may_leave else np.nan, fit_NJ)
    is_known_NJ = np.isfinite(fit_NJ)
    first_I = np.searchsorted(owner_N, np.arange(count))  # the boxes of each image stand together
    sums_IJ = np.add.reduceat(np.where(is_known_NJ, fit_NJ, 0), first_I, axis=0)
    counts_IJ = np.add.reduceat(is_known_NJ.astype(np.int64), first_I, axis=0)
    fit_IJ = np.where(counts_IJ > 0, sums_IJ / np.maximum(counts_IJ, 1), 0.5)
    fit_IJ = (fit_IJ - fit_IJ.mean(axis=0)) * np.sqrt(np.maximum(counts_IJ, 1))
    fit_IJ -= fit_IJ.mean(axis=1, keepdims=True)
    if (spread := float(fit_IJ.std())) < _SPREAD:
        return 0.0, {}
    fit_IJ /= spread  # the fit of smaller boxes varies more between images
    np.fill_diagonal(fit_IJ, -np.inf)  # the fit of boxes to the image they are assigned to does not count
    best_J, best_I = fit_IJ.argmax(axis=0), fit_IJ.argmax(axis=1)
    mutual = best_J[best_I] == np.arange(count)
    pairs = dict(zip(owners[mutual].tolist(), owners[best_I[mutual]].tolist(), strict=True))
    return float(fit_IJ[np.arange(count), best_I][mutual].sum() / count), pairs
