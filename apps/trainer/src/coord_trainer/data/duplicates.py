"""Images that look alike in two sets: perceptual hashes (ImageHash's pHash, 64 bits) that differ in a few bits.

Forms of one layout and things in front of an empty sky are alike as well: whether two are the same, their grey values
say.
"""

from __future__ import annotations

from collections.abc import Sequence

import imagehash
import numpy as np
from PIL import Image

NEAR_BITS = 4
"""Of 64: a copy saved at another size or quality differs in 0 to 4, two photographs of different things in about 32."""

_SAME_GREY = 16
"""Of 255, in 32 x 32 fields: copies differ by 15 at most, other forms and pages of one layout by 17 and more."""
_FIELDS = (32, 32)
_ROWS = 256


def perceptual_hash(image: Image.Image) -> np.ndarray:
    """Return the 64 bits of an image's pHash."""
    return imagehash.phash(image).hash.ravel()


def grey_fields(image: Image.Image) -> np.ndarray:
    """Return the grey values [32, 32] of an image that has been made small."""
    return np.asarray(image.convert("L").resize(_FIELDS, Image.Resampling.BILINEAR))


def is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether images with these grey fields are copies of each other, at whatever size and quality."""
    return bool(np.abs(one.astype(np.int16) - other).max() <= _SAME_GREY)


def near_duplicates(
    one: Sequence[np.ndarray], other: Sequence[np.ndarray], bits: int = NEAR_BITS
) -> list[tuple[int, int, int]]:
    """Return index in `one`, index in `other` and differing bits of every pair of hashes that are near."""
    if not one or not other:
        return []
    # Of +1 and -1 the product counts agreeing bits minus differing ones.
    a_NB, b_MB = (np.where(np.array(hashes), 1.0, -1.0).astype(np.float32) for hashes in (one, other))
    width, found = a_NB.shape[1], []
    for start in range(0, len(a_NB), _ROWS):
        differing_NM = ((width - a_NB[start : start + _ROWS] @ b_MB.T) / 2).round().astype(int)
        found += [(start + int(i), int(j), int(differing_NM[i, j])) for i, j in np.argwhere(differing_NM <= bits)]
    return found
