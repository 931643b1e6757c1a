"""Coordinate tokens as they look in text; what they mean is coord_codec's business."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from coord_codec import WILDCARD_TOKEN, CoordGrid, coord_tokens

_prefix, _suffix = map(re.escape, WILDCARD_TOKEN.split("*"))

#: Anything spelled like a coordinate token, valid or not (wildcard, padded, too large). Bounded, so linear.
COORD_PATTERN = rf"{_prefix}[^|<>]{{0,24}}{_suffix}"
COORD = re.compile(COORD_PATTERN)
COORD_START = WILDCARD_TOKEN.split("*", maxsplit=1)[0]


@lru_cache(maxsize=8)
def token_units(grid: CoordGrid) -> Mapping[str, tuple[int, float]]:
    """Return bin and coordinate in [0, 1] of every valid coordinate token.

    A grid whose last bin lies beyond 1 (fewer units than bins) is cut off there.
    """
    return MappingProxyType(
        {token: (k, min(grid.dequantize(k), 1.0)) for k, token in enumerate(coord_tokens(grid))}
    )
