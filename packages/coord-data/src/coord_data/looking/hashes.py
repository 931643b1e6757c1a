"""Hashes of images that look alike: perceptual hashes (pHash), and the grey values that tell copies from others.

Shapes: I images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

FIELDS = 64
"""Side in pixels of the reduced image whose grey values are compared."""
_PHASH = 32
"""Side in pixels of the reduced image whose frequencies are hashed."""
_COSINES = np.cos(np.pi / _PHASH * np.outer(np.arange(8), np.arange(_PHASH) + 0.5))
"""[8, 32]: the lowest frequencies of a discrete cosine transform."""


def grey_values(image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
    """Return the grey values of an image that its hash is computed from, [32, 32], and those that are compared.

    The latter are the image resized to `FIELDS` x `FIELDS`.
    """
    grey = image if image.mode == "L" else image.convert("L")
    hashed = grey.resize((_PHASH, _PHASH), Image.Resampling.LANCZOS)
    return np.asarray(hashed), np.asarray(grey.resize((FIELDS, FIELDS), Image.Resampling.BILINEAR))


def perceptual_hashes(hashed_I: Sequence[np.ndarray]) -> np.ndarray:
    """Return the pHash of images as 64-bit numbers, as ImageHash computes it.

    Its bits are which of 64 low frequencies of its grey values, [32, 32], exceed their median.

    Example:
        >>> image = Image.new("L", (64, 48), 9)  # of one colour: the mean alone exceeds the median
        >>> [bin(value).count("1") for value in perceptual_hashes([grey_values(image)[0]]).tolist()]
        [1]
    """
    if not len(hashed_I):
        return np.zeros(0, np.uint64)
    lowest = _COSINES @ np.stack(hashed_I).astype(np.float64) @ _COSINES.T
    lowest_I64 = lowest.round(6).reshape(-1, 64)  # without the noise of images of one colour
    middle_I2 = np.partition(lowest_I64, (31, 32), axis=1)[:, 31:33]  # a third of the time of `np.median`
    bits_I64 = lowest_I64 > middle_I2.mean(axis=1, keepdims=True)
    hashes_I: np.ndarray = np.packbits(bits_I64, axis=1).view(">u8")[:, 0].astype(np.uint64)
    return hashes_I


def neighbour_range(grey_I: np.ndarray) -> np.ndarray:
    """Return by how much neighbouring grey values differ, of images [I, FIELDS, FIELDS]."""
    padded = np.pad(grey_I, ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = np.stack([padded[:, :, x : x + FIELDS] for x in range(3)])
    high, low = across.max(axis=0), across.min(axis=0)
    most = np.maximum(np.maximum(high[:, :-2], high[:, 1:-1]), high[:, 2:])
    least = np.minimum(np.minimum(low[:, :-2], low[:, 1:-1]), low[:, 2:])
    differing: np.ndarray = most - least
    return differing
