"""Finds order and unit of boxes for which a source states neither: by what the numbers allow, else the usual one, told.

Corners need a second corner behind the first; a corner and a size must end inside the image; and a stated area is that
of the box. A set is read as corners where boxes allow only that, and hardly any allow only the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from coord_codec.boxes import CLIP_PIXELS

_RARE = 0.1
"""Largest share of boxes that speak for the other order or unit: faults of single boxes."""
_LEAVES = 0.1
"""How far fractions may exceed the image."""
_SAME_AREA = 0.02


def order_and_unit(
    objects: Sequence[Sequence[Mapping[str, Any]]], sizes: Sequence[tuple[int, int] | None], of_phrases: bool = False
) -> tuple[str | None, str | None]:
    """Return a reading for `--read-as`, None for COCO's (x, y, width and height in pixels), and a note that tells it.

    Args:
        objects: the objects of each image, with `bbox`, and possibly `area`; others are left out
        sizes: width and height of each image in pixels, None where unknown
        of_phrases: whether objects have phrases instead of classes. Where the numbers allow both orders, corners are
            assumed for those in fractions, as sets of GUI elements have them, and for all others a corner and a size

    Example:
        >>> order_and_unit([[{"bbox": [100, 30, 180, 90]}]], [(200, 100)])[0]
        'xyxy,stated'
        >>> order_and_unit([[{"bbox": [0.1, 0.1, 0.2, 0.4]}]], [(200, 100)])[0]
        'xywh,unit'
    """
    import numpy as np  # with the first boxes: commands that read no data start without it

    rows = [
        (box, item.get("area"), size or (math.nan, math.nan))
        for of_image, size in zip(objects, sizes, strict=True)
        for item in of_image
        if (box := _numbers(item.get("bbox"))) is not None
    ]
    if not rows:
        return None, None
    numbers_N4 = np.array([box for box, _, _ in rows])
    is_pixels_N = numbers_N4.max(axis=1) > 2
    is_fractions_N = (numbers_N4 >= -_LEAVES).all(axis=1) & (numbers_N4.max(axis=1) <= 1 + _LEAVES)
    is_fractions_N &= ~np.isin(numbers_N4, (0, 1)).all(axis=1)
    in_fractions = bool(is_fractions_N.sum() * _RARE >= is_pixels_N.sum() and is_fractions_N.any())
    size_N2 = np.ones((len(rows), 2)) if in_fractions else np.array([size for _, _, size in rows], np.float64)
    slack = _LEAVES if in_fractions else CLIP_PIXELS + 1
    with np.errstate(invalid="ignore"):
        no_corners_N = (numbers_N4[:, 2:] <= numbers_N4[:, :2]).any(axis=1)
        no_size_N = (numbers_N4[:, :2] + numbers_N4[:, 2:] > size_N2 + slack).any(axis=1)
    area_N = np.array([_number(area) for _, area, _ in rows])
    as_size_N, as_corners_N = numbers_N4[:, 2:].prod(axis=1), (numbers_N4[:, 2:] - numbers_N4[:, :2]).prod(axis=1)
    of_size_N, of_corners_N = (np.isclose(area_N, own_N, rtol=_SAME_AREA) for own_N in (as_size_N, as_corners_N))
    for_corners = int(((no_size_N & ~no_corners_N) | (of_corners_N & ~of_size_N)).sum())
    for_size = int(((no_corners_N & ~no_size_N) | (of_size_N & ~of_corners_N)).sum())
    order = "xyxy" if of_phrases and in_fractions else "xywh"
    if for_corners or for_size:
        order = "xyxy" if for_size <= _RARE * for_corners else "xywh"
    unit, words = ("unit", "fractions of the image") if in_fractions else ("stated", "pixels")
    told = {"xyxy": "corners (xyxy)", "xywh": "a corner and a size (xywh)"}
    other = {"xyxy": "xywh", "xywh": "xyxy"}[order]
    reason = f"{max(for_corners, for_size):,} of {len(rows):,} allow nothing else"
    if not for_corners and not for_size:
        reason = f"no box tells, --read-as {other},{unit.replace('stated', 'pixels')} reads the other order"
    note = f"boxes are read as {told[order]} in {words}: {reason}"
    return (None if (order, unit) == ("xywh", "stated") else f"{order},{unit}"), note


def _numbers(box: Any) -> tuple[float, ...] | None:
    values = tuple(map(_number, box)) if isinstance(box, list | tuple) and len(box) == 4 else ()
    return values if values and all(map(math.isfinite, values)) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else float("nan")
