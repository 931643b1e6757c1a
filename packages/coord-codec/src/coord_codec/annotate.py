"""Coordinate tokens, bins and coordinates of a record's objects, written into the record."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, MutableMapping
from typing import Any

from coord_codec.geometry.base import Geometry
from coord_codec.geometry.registry import GEOMETRIES
from coord_codec.grid import CoordGrid
from coord_codec.tokens import ints_to_tokens, tokens_to_ints

_DEFAULT_GRID = CoordGrid()


def annotate_coord_tokens(record: MutableMapping[str, Any]) -> bool:
    """Add to each object the tokens, bins and coordinates of its box, in place.

    An object whose box is given in coordinate tokens, or in bins, gains three dicts keyed by geometry
    ("bbox"; the type of a `geometry` that stands beside it or in its place): `_coord_tokens`, `_coord_token_ints` and
    `_coord_token_norm` (k / 1000). Numbers are read as bins only when all of them are whole and the record says
    `coord_space: "bins"`: `[0, 0, 1, 1]` is otherwise the full image. The record is left as it was if any box is wrong.

    Args:
        record: an instance record, `{"objects": [{"bbox": [...]}, ...]}`; boxes may be NumPy arrays.

    Returns:
        Whether any box was found to annotate.

    Raises:
        ValueError: for a box that mixes coordinate tokens with anything else, has not four of them (a
            shape: not as many as its type has), or a bin outside the grid.

    Example:
        >>> record = {"objects": [{"desc": "cat", "bbox": ints_to_tokens([1, 2, 3, 4])}]}
        >>> annotate_coord_tokens(record)
        True
        >>> record["objects"][0]["_coord_token_norm"]
        {'bbox': [0.001, 0.002, 0.003, 0.004]}
    """
    in_bins = record.get("coord_space") == "bins"
    found: list[tuple[MutableMapping[str, Any], str, list[int]]] = []
    for i, obj in enumerate(record.get("objects") or ()):
        if not isinstance(obj, MutableMapping):
            continue
        shape = obj.get("geometry")
        stated = [("bbox", "bbox", GEOMETRIES["box"], obj.get("bbox"))]
        if isinstance(shape, Mapping) and shape.get("type") in GEOMETRIES:
            kind = GEOMETRIES[shape["type"]]
            stated.append(("geometry.coordinates", kind.name, kind, shape.get("coordinates")))
        for field, key, kind, values in stated:
            try:
                bins = _read_bins(values, in_bins, kind)
            except ValueError as error:
                raise ValueError(f"objects[{i}].{field}: {error}") from None
            if bins:
                found.append((obj, key, bins))
    for obj, geometry, bins in found:
        obj.setdefault("_coord_tokens", {})[geometry] = ints_to_tokens(bins, _DEFAULT_GRID)
        obj.setdefault("_coord_token_ints", {})[geometry] = bins
        obj.setdefault("_coord_token_norm", {})[geometry] = [_DEFAULT_GRID.dequantize(k) for k in bins]
    return bool(found)


def _read_bins(values: Any, in_bins: bool, kind: Geometry) -> list[int] | None:
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, (list, tuple)) or not values:
        return None
    if any(isinstance(v, str) for v in values):
        bins = tokens_to_ints(values, _DEFAULT_GRID)
    elif in_bins and all(isinstance(v, numbers.Real) and not isinstance(v, bool) and v % 1 == 0 for v in values):
        bins = [_DEFAULT_GRID.check_bin(int(v)) for v in values]
    else:
        return None
    if not kind.fits(len(bins)):
        wanted = "four coordinates x1, y1, x2, y2" if kind.name == "box" else f"the coordinates of a {kind.name}"
        raise ValueError(f"expected {wanted}, found {len(bins)}: {list(values)!r}")
    return bins
