"""Finds near-duplicate images of two sets by perceptual hashes (ImageHash's pHash, 64 bits) that differ in few bits.

Forms with the same layout, or objects in front of an empty sky, also have similar hashes; comparing the grey values
of reduced images tells copies from such images.
"""

from __future__ import annotations

from collections.abc import Sequence

import imagehash
import numpy as np
from PIL import Image

NEAR_BITS = 4
"""Maximum of differing bits of 64. A copy of another size or quality differs in 0 to 4, unrelated photographs in 32."""

_SAME_GREY = 16
"""Maximum difference of 255 in 32 x 32 fields: copies differ by up to 15, pages of the same layout by 17 or more."""
_FIELDS = (32, 32)
_ROWS = 256


def perceptual_hash(image: Image.Image) -> np.ndarray:
    """Return the pHash of an image, 64 bits."""
    return imagehash.phash(image).hash.ravel()


def grey_fields(image: Image.Image) -> np.ndarray:
    """Return the grey values [32, 32] of an image resized to 32 x 32."""
    return np.asarray(image.convert("L").resize(_FIELDS, Image.Resampling.BILINEAR))


def is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two images with these grey fields are copies of each other, at any size and quality."""
    return bool(np.abs(one.astype(np.int16) - other).max() <= _SAME_GREY)


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
