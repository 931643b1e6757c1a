"""The stable order of rows by one or more columns, in a fraction of NumPy's time for large ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_DIGIT = 16
"""Bits that are sorted at a time: NumPy sorts 16-bit numbers by their digits, and wider ones by comparisons."""


def stable_order(*keys_N: np.ndarray) -> np.ndarray:
    """Return the indices [N] that sort rows by columns, the first of which counts most; equal rows keep their order.

    It is `np.lexsort` of the reversed columns, which must not contain NaN.

    Args:
        keys_N: columns [N] of booleans, whole numbers or float64

    Example:
        >>> stable_order(np.array([2, 1, 2]), np.array([0.5, 0.1, -0.5])).tolist()
        [1, 2, 0]
    """
    order_N: np.ndarray | None = None
    for key_N in reversed(keys_N):
        for digit_N in _digits(key_N):
            if order_N is None:
                order_N = np.argsort(digit_N, kind="stable")
            else:
                order_N = order_N[np.argsort(digit_N[order_N], kind="stable")]
    return np.arange(len(keys_N[0])) if order_N is None else order_N


def places_in_images(image_N: np.ndarray) -> np.ndarray:
    """Return the index of each row among those of its image, by which files name a label.

    Example:
        >>> places_in_images(np.array([0, 0, 2, 0])).tolist()
        [0, 1, 0, 2]
    """
    order = stable_order(image_N)
    begins = np.diff(image_N[order], prepend=-1) != 0
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    place_N = np.empty(len(order), np.int64)
    place_N[order] = np.arange(len(order)) - starts
    return place_N


def _digits(key_N: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the digits of a column from the last to the first, as far as its values differ."""
    if not len(key_N):
        return
    if key_N.dtype.kind != "f":
        bits_N = key_N.astype(np.int64)
    else:
        # As whole numbers floats have the order of their values, negative ones the reverse; -0.0 + 0.0 is 0.0.
        bits_N = (key_N + 0.0).view(np.int64)
        bits_N = bits_N ^ ((bits_N >> 63) & np.iinfo(np.int64).max)
    least = bits_N.min()
    span = int(bits_N.max()) - int(least)
    above_N = (bits_N - least).view(np.uint64)  # the difference as it is without the sign, which it may overflow into
    for shift in range(0, span.bit_length(), _DIGIT):
        yield (above_N >> np.uint64(shift)).astype(np.uint16)
