"""The coordinate grid: quantises coordinates in [0, 1] to bins and converts them back.

Only this module defines the number of bins and their scale.
"""

from __future__ import annotations

import math
import numbers
import operator
from dataclasses import dataclass
from typing import Any

from coord_codec.files import InputError

_TOLERANCE = 1e-6  # allows rounding errors around 0 and 1; values further out are pixel coordinates or a bug


@dataclass(frozen=True)
class CoordGrid:
    """A uniform grid over [0, 1].

    `quantize(c) = clamp(round(scale * c), 0, bins - 1)` and `dequantize(k) = k / scale`. With the default grid the
    error of a round trip is at most half a bin, 1 / (2 * scale), except near the upper end: c = 1 is clamped to
    bin 999 and dequantised to 0.999.

    Both methods take a Python number, a NumPy array or scalar, or a torch tensor and return the same kind.

    Attributes:
        bins: number of bins, at least 2
        scale: factor that coordinates are multiplied by, at least 1

    Example:
        >>> grid = CoordGrid()
        >>> grid.quantize(0.1234), grid.quantize(1.0), grid.dequantize(123)
        (123, 999, 0.123)
    """

    bins: int = 1000
    scale: int = 1000

    def __post_init__(self) -> None:
        for name, minimum in (("bins", 2), ("scale", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise ValueError(f"CoordGrid.{name}: expected a whole number >= {minimum}, found {value!r}")

    def quantize(self, c: Any) -> Any:
        """Return the bin of a coordinate, rounding half to even as Python, NumPy and torch do.

        The product is computed in float64 for every input type, so the same value always has the same bin.

        Args:
            c: coordinate(s) in [0, 1], as a fraction of the image's width or height

        Returns:
            `int` for a Python number, int64 array or tensor of the same shape otherwise.

        Raises:
            ValueError: for NaN, infinity, or a value outside [0, 1] by more than 1e-6
            InputError: for anything that is not a number, array or tensor
        """
        if type(c) is float and -_TOLERANCE <= c <= 1 + _TOLERANCE:  # millions of them are written
            return min(max(round(c * self.scale), 0), self.bins - 1)
        if _is_array(c):
            values = c.double() if hasattr(c, "double") else c.astype("float64")
            is_valid = (values >= -_TOLERANCE) & (values <= 1 + _TOLERANCE)  # NaN compares false
            if not is_valid.all():
                raise ValueError(_coordinate_error(_first_invalid(is_valid, values)))
            bins = (values * self.scale).round().clip(0, self.bins - 1)
            return bins.long() if hasattr(bins, "long") else bins.astype("int64")
        if isinstance(c, bool) or not isinstance(c, numbers.Real):
            raise InputError(f"a coordinate is a number, a NumPy array or a torch tensor, found {c!r}")
        value: Any = c  # for mypy: numbers.Real does not declare comparison with floats
        if not -_TOLERANCE <= value <= 1 + _TOLERANCE:
            raise ValueError(_coordinate_error(c))
        return min(max(round(float(c) * self.scale), 0), self.bins - 1)

    def dequantize(self, k: Any) -> Any:
        """Return the coordinate of a bin, `k / scale`.

        Args:
            k: bin(s), integers in 0..bins-1; arrays and tensors may have a floating-point type

        Returns:
            `float` for a Python integer; otherwise an array or tensor: a floating-point type is kept, integers
            become the library's default (float64 in NumPy, float32 in torch).

        Raises:
            ValueError: for a bin that is not an integer in 0..bins-1
            InputError: for anything that is not a number, array or tensor
        """
        if _is_array(k):
            is_valid = (k >= 0) & (k <= self.bins - 1) & (k % 1 == 0)
            if not is_valid.all():
                raise ValueError(self._bin_error(_first_invalid(is_valid, k)))
            return k / self.scale
        return self.check_bin(k) / self.scale

    def check_bin(self, k: Any) -> int:
        """Return `k` as an `int` if it is a bin of this grid.

        Raises:
            ValueError: if `k` is not in 0..bins-1
            InputError: if `k` is not an integer
        """
        if isinstance(k, bool):
            raise InputError(f"a bin is an integer, found {k!r}")
        try:
            value = operator.index(k)
        except TypeError:
            raise InputError(f"a bin is an integer, found {k!r}") from None
        if not 0 <= value < self.bins:
            raise ValueError(self._bin_error(value))
        return value

    def _bin_error(self, value: Any) -> str:
        return f"bin {value} is not on this grid: expected a whole number in 0..{self.bins - 1}"


def _is_array(x: Any) -> bool:
    """Return whether `x` is a NumPy array or scalar or a torch tensor, without importing either library."""
    return hasattr(x, "dtype")


def _first_invalid(is_valid: Any, values: Any) -> Any:
    return values.reshape(-1)[~is_valid.reshape(-1)][0].item()


def _coordinate_error(value: Any) -> str:
    is_finite = abs(value) < math.inf  # also false for NaN
    hint = "; divide pixel coordinates by the image's width and height first" if is_finite else ""
    return f"coordinate {value!r} is outside [0, 1]: expected a fraction of the image's width or height{hint}"
