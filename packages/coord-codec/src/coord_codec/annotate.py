"""Adding what the coordinate tokens of a raw record mean, beside them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from coord_codec.grid import CoordGrid
from coord_codec.tokens import ints_to_tokens, tokens_to_ints

_GEOMETRIES = ("bbox",)
_GRID = CoordGrid()


def annotate_coord_tokens(record: MutableMapping[str, Any]) -> bool:
    """Add to each object the tokens, bins and coordinates of its box, in place.

    An object whose box is given in coordinate tokens, or in bins, gains three dicts keyed by geometry
    ("bbox"): `_coord_tokens`, `_coord_token_ints` and `_coord_token_norm` (k / 1000). Numbers are read as
    bins only when all of them are whole and the record says `coord_space: "bins"`: `[0, 0, 1, 1]` is
    otherwise the full image. The record is left as it was if any box is wrong.

    Args:
        record: an instance record, `{"objects": [{"bbox": [...]}, ...]}`.

    Returns:
        Whether any box was found to annotate.

    Raises:
        ValueError: for a box that mixes coordinate tokens with anything else, or a bin outside the grid.
    """
    in_bins = record.get("coord_space") == "bins"
    found: list[tuple[MutableMapping[str, Any], str, list[int]]] = []
    for i, obj in enumerate(record.get("objects") or ()):
        if not isinstance(obj, MutableMapping):
            continue
        for geometry in _GEOMETRIES:
            try:
                bins = _read_bins(obj.get(geometry), in_bins)
            except ValueError as error:
                raise ValueError(f"objects[{i}].{geometry}: {error}") from None
            if bins:
                found.append((obj, geometry, bins))
    for obj, geometry, bins in found:
        obj.setdefault("_coord_tokens", {})[geometry] = ints_to_tokens(bins, _GRID)
        obj.setdefault("_coord_token_ints", {})[geometry] = bins
        obj.setdefault("_coord_token_norm", {})[geometry] = [_GRID.dequantize(k) for k in bins]
    return bool(found)


def _read_bins(values: Any, in_bins: bool) -> list[int] | None:
    if not isinstance(values, (list, tuple)):
        return None
    if any(isinstance(v, str) for v in values):
        return tokens_to_ints(values, _GRID)
    if in_bins and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and v % 1 == 0 for v in values
    ):
        return [_GRID.check_bin(int(v)) for v in values]
    return None
