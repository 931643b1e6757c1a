"""Finds near-duplicate images of two sets by perceptual hashes (pHash, 64 bits) that differ in few bits.

Forms with the same layout, frames of one video, or objects in front of an empty sky also have similar hashes; comparing
the grey values of reduced images tells copies from such images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

NEAR_BITS = 4
"""Maximum of differing bits of 64. A copy of another size or quality differs in 0 to 4, unrelated photographs in 32."""

_SAME_GREY = 10
"""Largest difference of 255 that copies may have in a field, beside half of what neighbouring fields differ by.

Measured on 63 photographs: 3 fields of copies of .25 to 1.5 times the size and of JPEG quality 10 to 80 differ by at
most 8, frames in which an object of 1 to 3 % of the image has moved by 14 or more in 95 % of cases."""
_PHASH = 32
"""Side in pixels of the reduced image whose frequencies are hashed."""
_FIELDS = 64
_DIFFERING = 3  # fields that must differ: one may be a scratch or a date
_ROWS = 256


_COSINES = np.cos(np.pi / _PHASH * np.outer(np.arange(8), np.arange(_PHASH) + 0.5))
"""[8, 32]: the lowest frequencies of a discrete cosine transform."""


def perceptual_hash(image: Image.Image) -> np.ndarray:
    """Return the pHash of an image, as ImageHash computes it: which of 64 low frequencies exceed their median."""
    grey = np.asarray(image.convert("L").resize((_PHASH, _PHASH), Image.Resampling.LANCZOS), np.float64)
    lowest = (_COSINES @ grey @ _COSINES.T).round(6)  # without the noise of images of one colour
    bits: np.ndarray = (lowest > np.median(lowest)).ravel()
    return bits


def grey_fields(image: Image.Image) -> np.ndarray:
    """Return [2, 64, 64]: the grey values of an image resized to 64 x 64, and by how much their neighbours differ."""
    small = image.convert("L").resize((_FIELDS, _FIELDS), Image.Resampling.BILINEAR)
    grey = np.asarray(small)
    padded = np.pad(grey, 1, mode="edge")
    shifted = np.stack([padded[y : y + _FIELDS, x : x + _FIELDS] for y in range(3) for x in range(3)])
    return np.stack([grey, shifted.max(axis=0) - shifted.min(axis=0)])


def is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two images with these grey fields are copies of each other, at any size and quality.

    Frames of one video, in which something has moved, are not: they differ where each of them is smooth.
    """
    difference = np.abs(one[0].astype(np.int16) - other[0]) - np.minimum(one[1], other[1]) // 2
    return bool(np.partition(difference, -_DIFFERING, axis=None)[-_DIFFERING] <= _SAME_GREY)


def near_duplicates(
    one: Sequence[np.ndarray], other: Sequence[np.ndarray], bits: int = NEAR_BITS
) -> list[tuple[int, int, int]]:
    """Return (index in `one`, index in `other`, differing bits) of each pair that differs in at most `bits`."""
    if not one or not other:
        return []
    # With bits as +1 and -1 the product is the number of agreeing bits minus that of differing bits.
    a_NB, b_MB = (np.where(np.array(hashes), 1.0, -1.0).astype(np.float32) for hashes in (one, other))
    width, pairs = a_NB.shape[1], []
    for start in range(0, len(a_NB), _ROWS):
        differing_NM = ((width - a_NB[start : start + _ROWS] @ b_MB.T) / 2).round().astype(int)
        pairs += [(start + int(i), int(j), int(differing_NM[i, j])) for i, j in np.argwhere(differing_NM <= bits)]
    return pairs
