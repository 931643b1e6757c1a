"""Converts between bins and the text of coordinate tokens: bin 7 is `<|coord_7|>`, without padding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from coord_codec.arguments import expect
from coord_codec.grid import CoordGrid

_PREFIX = "<|coord_"
_SUFFIX = "|>"
# Only ASCII digits, without a sign or leading zeros, so that each bin has exactly one spelling.
_PATTERN = re.compile(re.escape(_PREFIX) + r"(0|[1-9][0-9]*)" + re.escape(_SUFFIX))
_DEFAULT_GRID = CoordGrid()

WILDCARD_TOKEN = f"{_PREFIX}*{_SUFFIX}"
"""Means "any coordinate" in prompts and is never a target. Its id precedes bin 0 in extended Qwen3-VL vocabularies."""


def is_coord_token(token: Any, grid: CoordGrid = _DEFAULT_GRID) -> bool:
    """Return whether `token` is the text of one of the grid's coordinate tokens.

    Example:
        >>> [is_coord_token(text) for text in ("<|coord_7|>", "<|coord_007|>", "<|coord_1000|>", WILDCARD_TOKEN)]
        [True, False, False, False]
    """
    return _bin_of(token, grid) is not None


def token_to_int(token: str, grid: CoordGrid = _DEFAULT_GRID) -> int:
    """Return the bin of a coordinate token, `<|coord_7|>` -> 7.

    Raises:
        ValueError: if `token` is not a coordinate token of the grid

    Example:
        >>> token_to_int("<|coord_7|>")
        7
    """
    k = _bin_of(token, grid)
    if k is None:
        raise ValueError(
            f"{token!r} is not a coordinate token: expected one of "
            f"{int_to_token(0, grid)} .. {int_to_token(grid.bins - 1, grid)}, without padding"
        )
    return k


def tokens_to_ints(tokens: Iterable[str], grid: CoordGrid = _DEFAULT_GRID) -> list[int]:
    """Return the bins of several coordinate tokens; see `token_to_int`.

    Example:
        >>> tokens_to_ints(["<|coord_7|>", "<|coord_999|>"])
        [7, 999]
    """
    expect("tokens", tokens, Iterable)
    expect("grid", grid, CoordGrid)
    return [token_to_int(token, grid) for token in tokens]


def int_to_token(k: int, grid: CoordGrid = _DEFAULT_GRID) -> str:
    """Return the coordinate token of a bin, 7 -> `<|coord_7|>`.

    Raises:
        ValueError: if `k` is not a bin of the grid
        InputError: if `k` is not an integer

    Example:
        >>> int_to_token(7)
        '<|coord_7|>'
    """
    return f"{_PREFIX}{grid.check_bin(k)}{_SUFFIX}"


def ints_to_tokens(bins: Iterable[int], grid: CoordGrid = _DEFAULT_GRID) -> list[str]:
    """Return the coordinate tokens of several bins; see `int_to_token`.

    Example:
        >>> ints_to_tokens([7, 999])
        ['<|coord_7|>', '<|coord_999|>']
    """
    expect("bins", bins, Iterable)
    expect("grid", grid, CoordGrid)
    return [int_to_token(k, grid) for k in bins]


def coord_tokens(grid: CoordGrid = _DEFAULT_GRID) -> list[str]:
    """Return all coordinate tokens of the grid in the order of their bins, without the wildcard.

    Example:
        >>> tokens = coord_tokens()
        >>> len(tokens), tokens[0], tokens[-1]
        (1000, '<|coord_0|>', '<|coord_999|>')
    """
    expect("grid", grid, CoordGrid)
    return [f"{_PREFIX}{k}{_SUFFIX}" for k in range(grid.bins)]


def _bin_of(token: Any, grid: CoordGrid) -> int | None:
    match = _PATTERN.fullmatch(token) if isinstance(token, str) else None
    # A number with too many digits is off the grid; int() on a very long number would be slow.
    if match is None or len(match[1]) > len(str(grid.bins)):
        return None
    k = int(match[1])
    return k if k < grid.bins else None
