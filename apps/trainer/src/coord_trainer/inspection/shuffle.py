"""Do the boxes belong to other images of the set? Every image is tried with the boxes of every other one."""

from __future__ import annotations

import numpy as np

from coord_trainer.inspection.edges import Sample, is_inside

_IMAGES, _BOXES = 120, 20  # the cost grows with the square of the first
_CONTROLS = 20
_MOSTLY = 0.95  # of the boxes lie in their images, where nothing is shuffled
_OUTSIDE = 0.4  # fit of a box that leaves the image; an edge that is none has .5
_LEAST = 10  # images below which nothing can be said


def shuffle_z(boxes_N4: np.ndarray, sample: Sample, sizes_J2: np.ndarray) -> float:
    """Return by how many standard deviations the best pairing of images and boxes exceeds chance.

    The statistic is the mean fit over pairs of different images that are each other's best. Chance is the same with
    all boxes moved by one random amount, which keeps their sizes and number. 0 for fewer than 10 images.

    Args:
        boxes_N4: corners in [0, 1] of the image that each is given to
        sample: what is compared with pixels
        sizes_J2: width and height of the images of its maps in the unit of the numbers, pixels or 1
    """
    owners = np.unique(sample.image_n)
    if len(owners) < _LEAST:
        return 0.0
    owners = owners[np.unique(np.linspace(0, len(owners) - 1, min(_IMAGES, len(owners))).astype(int))]
    rows = np.concatenate([np.flatnonzero(sample.image_n == owner)[:_BOXES] for owner in owners])
    boxes_N4, owner_N = boxes_N4[sample.rows_n[rows]], np.searchsorted(owners, sample.image_n[rows])
    # Pixels of one image are other fractions of another.
    zoom_NJ4 = np.tile(sizes_J2[owners][owner_N][:, None] / sizes_J2[owners], 2)
    rng = np.random.default_rng(0)
    moves = rng.uniform(0.1, 0.9, (_CONTROLS, 2))
    # Wrapped around, so that the same boxes stay inside: a box that would leave comes back on the other side.
    chance = [_best_pairs(_wrapped(boxes_N4, move), zoom_NJ4, owner_N, owners, sample) for move in moves]
    return float(
        (_best_pairs(boxes_N4, zoom_NJ4, owner_N, owners, sample) - np.mean(chance)) / max(np.std(chance), 1e-9)
    )


def _wrapped(boxes_N4: np.ndarray, move: np.ndarray) -> np.ndarray:
    size_N2 = boxes_N4[:, 2:] - boxes_N4[:, :2]
    room_N2 = np.maximum(1 - size_N2, 1e-6)
    low_N2 = (boxes_N4[:, :2] + move) % room_N2
    return np.concatenate([low_N2, low_N2 + size_N2], axis=1)


def _best_pairs(
    boxes_N4: np.ndarray, zoom_NJ4: np.ndarray, owner_N: np.ndarray, owners: np.ndarray, sample: Sample
) -> float:
    count = len(owners)
    boxes_NJ4 = boxes_N4[:, None] * zoom_NJ4
    fit_NJ = sample.maps.along(boxes_NJ4.clip(0, 1), owners[None, :])
    outside_NJ = ~is_inside(boxes_NJ4.reshape(-1, 4)).reshape(fit_NJ.shape)
    # Where many boxes leave the images they are given to, they speak against an image that they leave as well.
    fit_NJ[outside_NJ] = _OUTSIDE if is_inside(boxes_N4).mean() < _MOSTLY else np.nan
    known_NJ = np.isfinite(fit_NJ)
    sums_IJ, counts_IJ = np.zeros((count, count)), np.zeros((count, count))
    np.add.at(sums_IJ, owner_N, np.where(known_NJ, fit_NJ, 0))
    np.add.at(counts_IJ, owner_N, known_NJ)
    fit_IJ = np.where(counts_IJ > 0, sums_IJ / np.maximum(counts_IJ, 1), 0.5)
    fit_IJ = (fit_IJ - fit_IJ.mean(axis=0)) * np.sqrt(np.maximum(counts_IJ, 1))
    fit_IJ -= fit_IJ.mean(axis=1, keepdims=True)
    np.fill_diagonal(fit_IJ, -np.inf)  # that boxes fit the image they are given to speaks for no other one
    best_J, best_I = fit_IJ.argmax(axis=0), fit_IJ.argmax(axis=1)
    mutual = best_J[best_I] == np.arange(count)
    return float(fit_IJ[np.arange(count), best_I][mutual].sum() / count)
