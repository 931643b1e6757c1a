"""Encoded pixels in a quarter of their memory, to the bit: an image has 256 levels, however they were normalised.

A processor makes float32 of bytes, so that few values occur in all pixels of a data set: 256 where the channels are
normalised alike, three times as many else. Each is kept once, and a pixel as its number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

_KEY_BITS = 20
"""Levels are found by a hash of their bits, multiplicative: the leading bits of the product with an odd number."""
_FACTORS = tuple(0x9E3779B1 + 2 * number for number in range(16))
"""Of these the first is taken that gives each level a key of its own. Knuth, The Art of Computer Programming, 6.4."""


class Coded(NamedTuple):
    """Values as numbers of levels: `levels_L[codes]`, where `codes` has the shape of the values."""

    levels_L: np.ndarray
    codes: np.ndarray

    def decoded(self) -> torch.Tensor:
        """Return the values, float32, to the bit."""
        return torch.from_numpy(np.asarray(self.levels_L[self.codes]))


class LevelCoder:
    """Replaces arrays by `Coded`, and learns the levels from what it meets.

    Example:
        >>> pixels = np.linspace(-1, 1, 256, dtype=np.float32)[[[0, 255], [128, 0]]]
        >>> coded = LevelCoder().coded(pixels)
        >>> coded.codes.dtype, bool((coded.decoded().numpy() == pixels).all())
        (dtype('uint8'), True)
    """

    def __init__(self) -> None:
        self._levels_L = np.empty(0, np.float32)
        self._factor = np.uint32(_FACTORS[0])
        self._code_of_key = np.zeros(1 << _KEY_BITS, np.uint16)

    def coded(self, values: np.ndarray) -> Coded | None:
        """Return float32 values of any shape as `Coded`; None if they have too many levels, as noise has."""
        bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
        if (found := self._found(bits)) is None and self._learn(bits):
            found = self._found(bits)
        return found

    def _found(self, bits: np.ndarray) -> Coded | None:
        if not len(self._levels_L):
            return None
        codes = self._code_of_key[_keys(bits, self._factor)]
        if not np.array_equal(self._levels_L.view(np.uint32)[codes], bits):
            return None
        return Coded(self._levels_L, codes.astype(np.uint8 if len(self._levels_L) <= 1 << 8 else np.uint16))

    def _learn(self, bits: np.ndarray) -> bool:
        """Add the levels of an array; returns whether all levels have keys of their own."""
        levels_L = np.unique(np.concatenate([self._levels_L.view(np.uint32), bits.reshape(-1)]))
        for factor in map(np.uint32, _FACTORS if len(levels_L) <= 1 << 12 else ()):
            keys_L = _keys(levels_L, factor)
            if len(np.unique(keys_L)) == len(levels_L):
                self._levels_L, self._factor = levels_L.view(np.float32), factor
                self._code_of_key[keys_L] = np.arange(len(levels_L))
                return True
        return False


def _keys(bits: np.ndarray, factor: np.uint32) -> np.ndarray:
    keys: np.ndarray = np.multiply(bits, factor) >> np.uint32(32 - _KEY_BITS)
    return keys
