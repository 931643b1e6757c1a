"""Reads the fields beside the box of an object that change it, by the same table of the codec in all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coord_codec.fields import (
    DELETED,
    NumberOrder,
    Unit,
    check_places,
    check_unit,
    is_deleted,
    not_read,
    outline_beside,
    rotated_corners,
    states_more,
    turn_of,
)
from coord_codec.files import InputError
from coord_data.sources.raw import RawObject

OUTLINED = "outlines, read as the box around them"
ROTATED = "rotated boxes, read as the upright box around them"


def with_fields(
    stated: RawObject,
    fields: Mapping[str, Any],
    order: NumberOrder,
    unit: Unit,
    largest: Callable[[], float] | None = None,
) -> RawObject:
    """Return an object as the fields beside its box have it: turned, if they state an angle or an oriented box.

    A field that contradicts order or unit of the format, has no unit, or turns a box that is not in pixels is an
    error. See `coord_codec.fields.turn_of` for `largest`.
    """
    if len(stated.corners_xyxy) != 4 or not states_more(fields):
        return stated
    check_unit(fields, order, unit)
    outline = outline_beside(fields, stated.corners_xyxy)
    if outline is None and (degrees := turn_of(fields, largest)):
        x1, y1, x2, y2 = stated.corners_xyxy
        outline = rotated_corners((x1, y1, x2 - x1, y2 - y1), degrees)
    if outline is None:
        return stated
    if unit != "pixels":
        raise InputError(
            f"an angle beside a box in {unit}, which can only be turned in pixels: write the box around the rotated "
            "one, or boxes in pixels"
        )
    return stated.outlined(outline, ROTATED)


def kept(objects: Iterable[Any], read: frozenset[str], own: Mapping[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Return the objects of an image that are not marked as deleted, and notes on those and on fields not read.

    Objects may repeat `own`, the `image`, `image_id` and further fields of the image, and name no other image or
    frame; `read` are the fields that are read, or told otherwise.
    """
    found = list(objects)
    mappings = [item for item in found if isinstance(item, Mapping)]
    check_places(({name: item[name] for name in item if name not in read} for item in mappings), own)
    notes = [note for item in mappings for note in not_read(item, read)]
    remaining = [item for item in found if not (isinstance(item, Mapping) and is_deleted(item))]
    return remaining, (*notes, *(DELETED,) * (len(found) - len(remaining)))
