"""Values of NumPy and torch as those of Python, as records from arrays and tables have them."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    """Convert a NumPy or torch scalar or array to a number or list; return any other value unchanged.

    Example:
        >>> import numpy as np
        >>> plain(np.float32(0.5)), plain(np.array([1, 2])), plain("a")
        (0.5, [1, 2], 'a')
    """
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value
