"""Do the boxes belong to other images of the set? Every image is tried with the boxes of every other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coord_eval.diagnosis import TURNS
from coord_trainer.inspection.numbers.edges import Sample, is_inside

IN_A_ROW = 60
"""Images that are tried with each other's boxes; the cost grows with its square."""
_BOXES = 20  # of an image
_CONTROLS = 20
_MOSTLY = 0.95  # of the boxes lie in their images, where nothing is shuffled
_OUTSIDE = 0.4  # fit of a box that leaves the image; an edge that is none has .5
_LEAST = 10  # images below which nothing can be said
_CLOSELY = 4  # ways that are compared with chance, of all that are tried
_SPREAD = 1e-6  # boxes that are the same everywhere, such as those of whole images, differ by less
SHUFFLED = 4.0
"""Standard deviations above chance from which images count as shuffled."""
SHUFFLED_OTHERWISE = 5.0
"""The same for numbers that are read otherwise than they are declared, since a hundred ways are tried."""
_FEW, _FEW_MORE = 20, 1.0  # below so many images a hundred ways reach so much more by chance


@dataclass(frozen=True)
class Placed:
    """Boxes under one way to read their numbers.

    Attributes:
        boxes_N4: corners in [0, 1] of the image that each is given to
        in_pixels: whether the numbers stay the same on an image of another size, and not the fractions
        turn: EXIF-like orientation by which the boxes are turned on the image that they are tried on
    """

    boxes_N4: np.ndarray
    in_pixels: bool
    turn: int = 1


@dataclass(frozen=True)
class Pairs:
    """Images and the boxes of others that fit them.

    Attributes:
        z: standard deviations by which the fit exceeds chance
        image_of: for each image of the maps that its boxes belong to, by the one that they are given to
    """

    z: float
    image_of: dict[int, int]


def find_pairs(ways: Sequence[Placed], sample: Sample, sizes_J2: np.ndarray) -> Pairs | None:
    """Return the pairing of images and boxes of others that exceeds chance most; None if none does clearly.

    The statistic is the mean fit over pairs of different images that are each other's best. Chance is the same with
    all boxes moved by one random amount, which keeps their sizes and number. None for fewer than 10 images and
    for boxes that are the same everywhere.

    Neighbouring images are tried, since a list that is off by one row gives an image the boxes of the next.

    Args:
        ways: the reader's own way first; another one must be clearer
        sample: what is compared with pixels
        sizes_J2: width and height of the images of its maps, in pixels
    """
    owners = np.unique(sample.image_n)
    if len(owners) < _LEAST:
        return None
    owners = owners[max(0, len(owners) - IN_A_ROW) // 2 :][:IN_A_ROW]
    rows = np.concatenate([np.flatnonzero(sample.image_n == owner)[:_BOXES] for owner in owners])
    owner_N = np.searchsorted(owners, sample.image_n[rows])
    # Pixels of one image are other fractions of another.
    zoom_NJ4 = np.tile(sizes_J2[owners][owner_N][:, None] / sizes_J2[owners], 2)

    def fit(way: Placed, move: np.ndarray | None = None) -> tuple[float, dict[int, int]]:
        boxes_N4 = way.boxes_N4[sample.rows_n[rows]]
        boxes_N4 = boxes_N4 if move is None else _wrapped(boxes_N4, move)
        boxes_NJ4 = boxes_N4[:, None] * (zoom_NJ4 if way.in_pixels else np.ones_like(zoom_NJ4))
        boxes_NJ4 = TURNS[way.turn](boxes_NJ4.reshape(-1, 4)).reshape(boxes_NJ4.shape)
        may_leave = float(is_inside(boxes_N4).mean()) < _MOSTLY
        return _best_pairs(boxes_NJ4, may_leave, owner_N, owners, sample)

    moves = np.random.default_rng(0).uniform(0.1, 0.9, (_CONTROLS, 2))
    more = _FEW_MORE * (len(owners) < _FEW)
    others = sorted(ways[1:], key=lambda way: -fit(way)[0])[:_CLOSELY]
    found = []
    for alike, least in ((ways[:1], SHUFFLED), (others, SHUFFLED_OTHERWISE + more)):
        # Wrapped around, so that the same boxes stay inside: a box that would leave comes back on the other side.
        chance = [fit(way, move)[0] for way in alike for move in moves]
        if not chance or np.std(chance) < _SPREAD:
            continue
        for value, pairs in map(fit, alike):
            z = float((value - np.mean(chance)) / np.std(chance))
            found += [Pairs(z, pairs)] if z >= least else []
    return max(found, key=lambda pairs: pairs.z, default=None)


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
    outside_NJ = ~is_inside(boxes_NJ4.reshape(-1, 4)).reshape(fit_NJ.shape)
    # Where many boxes leave the images they are given to, they speak against an image that they leave as well.
    fit_NJ[outside_NJ] = _OUTSIDE if may_leave else np.nan
    known_NJ = np.isfinite(fit_NJ)
    owned_IN = (owner_N == np.arange(count)[:, None]).astype(float)
    sums_IJ, counts_IJ = owned_IN @ np.where(known_NJ, fit_NJ, 0), owned_IN @ known_NJ
    fit_IJ = np.where(counts_IJ > 0, sums_IJ / np.maximum(counts_IJ, 1), 0.5)
    fit_IJ = (fit_IJ - fit_IJ.mean(axis=0)) * np.sqrt(np.maximum(counts_IJ, 1))
    fit_IJ -= fit_IJ.mean(axis=1, keepdims=True)
    if (spread := float(fit_IJ.std())) < _SPREAD:
        return 0.0, {}
    fit_IJ /= spread  # smaller boxes differ more from image to image
    np.fill_diagonal(fit_IJ, -np.inf)  # that boxes fit the image they are given to speaks for no other one
    best_J, best_I = fit_IJ.argmax(axis=0), fit_IJ.argmax(axis=1)
    mutual = best_J[best_I] == np.arange(count)
    pairs = dict(zip(owners[mutual].tolist(), owners[best_I[mutual]].tolist(), strict=True))
    return float(fit_IJ[np.arange(count), best_I][mutual].sum() / count), pairs
