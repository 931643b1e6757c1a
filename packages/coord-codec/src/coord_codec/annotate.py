"""Adds coordinate tokens, bins and coordinates to the objects of a record."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, MutableMapping
from typing import Any

from coord_codec.arguments import expect, plain
from coord_codec.geometry import GEOMETRIES, Geometry
from coord_codec.grid import CoordGrid
from coord_codec.tokens import ints_to_tokens, tokens_to_ints

_DEFAULT_GRID = CoordGrid()


def annotate_coord_tokens(record: MutableMapping[str, Any]) -> bool:
    """Add to each object the tokens, bins and coordinates of its box, in place.

    An object whose box is given as coordinate tokens or as bins gains three dicts: `_coord_tokens`,
    `_coord_token_ints` and `_coord_token_norm` (k / 1000). Their key is "bbox", and the `type` of the object's
    `geometry` if it has one. Numbers are read as bins only if all of them are integers and the record has
    `coord_space: "bins"`; otherwise `[0, 0, 1, 1]` is the full image. If any box is invalid the record is not changed.

    Args:
        record: an instance record, `{"objects": [{"bbox": [...]}, ...]}`; boxes may be NumPy arrays

    Returns:
        Whether any box was annotated.

    Raises:
        ValueError: if `objects` is not a list, or a box mixes coordinate tokens with other values, has the wrong number
            of coordinates (four for a box, otherwise as many as its geometry requires), or has a bin outside the grid

    Example:
        >>> record = {"objects": [{"desc": "cat", "bbox": ints_to_tokens([1, 2, 3, 4])}]}
        >>> annotate_coord_tokens(record)
        True
        >>> record["objects"][0]["_coord_token_norm"]
        {'bbox': [0.001, 0.002, 0.003, 0.004]}
    """
    expect("record", record, MutableMapping)
    in_bins = record.get("coord_space") == "bins"
    annotated: list[tuple[MutableMapping[str, Any], str, list[int]]] = []
    objects = record.get("objects") or ()
    if not isinstance(objects, (list, tuple)):
        raise ValueError(f"objects: expected a list, found {objects!r:.80}")
    for i, obj in enumerate(objects):
        if not isinstance(obj, MutableMapping):
            continue
        geometry = obj.get("geometry")
        candidates = [("bbox", "bbox", "box", obj.get("bbox"))]
        if isinstance(geometry, Mapping) and (name := geometry.get("type")) in tuple(GEOMETRIES):
            candidates.append(("geometry.coordinates", name, name, geometry.get("coordinates")))
        for field, key, name, values in candidates:
            try:
                bins = _read_bins(values, in_bins, GEOMETRIES[name])
            except ValueError as error:
                raise ValueError(f"objects[{i}].{field}: {error}") from None
            annotated += [(obj, key, bins)] if bins else []
    for obj, key, bins in annotated:
        obj.setdefault("_coord_tokens", {})[key] = ints_to_tokens(bins, _DEFAULT_GRID)
        obj.setdefault("_coord_token_ints", {})[key] = bins
        obj.setdefault("_coord_token_norm", {})[key] = [_DEFAULT_GRID.dequantize(k) for k in bins]
    return bool(annotated)


def _read_bins(values: Any, in_bins: bool, kind: Geometry) -> list[int] | None:
    values = plain(values)
    if not isinstance(values, (list, tuple)) or not values:
        return None
    if any(isinstance(v, str) for v in values):
        bins = tokens_to_ints(values, _DEFAULT_GRID)
    elif in_bins and all(isinstance(v, numbers.Real) and not isinstance(v, bool) and v % 1 == 0 for v in values):
        bins = [_DEFAULT_GRID.check_bin(int(v)) for v in values]
    else:
        return None
    try:
        kind.check_count(bins)
    except ValueError as error:
        raise ValueError(f"{error}: {list(values)!r}") from None
    return bins
