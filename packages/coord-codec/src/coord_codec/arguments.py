"""Arguments of a caller: a wrong type is an `InputError` that names it; arrays and scalars become plain values."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from coord_codec.files import InputError


def expect(name: str, value: object, *kinds: type) -> None:
    """Raise an error if an argument has none of these types; NumPy's integers are numbers, a Boolean is none.

    Example:
        >>> expect("resamples", 1.5, int)
        Traceback (most recent call last):
        coord_codec.files.InputError: resamples: expected int, found float (1.5)
    """
    abstract = tuple(general for kind, general in ((int, Integral), (float, Real)) if kind in kinds)
    is_number = isinstance(value, abstract) and not isinstance(value, bool)
    if not is_number and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise InputError(f"{name}: expected {names}, found {type(value).__name__} ({value!r:.60})")


def plain(value: Any) -> Any:
    """Convert a NumPy or torch scalar or array to a number or list; return any other value unchanged.

    Example:
        >>> import numpy as np
        >>> plain(np.float32(0.5)), plain(np.array([1, 2])), plain("a")
        (0.5, [1, 2], 'a')
    """
    return value.tolist() if hasattr(value, "tolist") else value
