"""An image of a packed file with its objects, as the readers of Parquet files and tars yield it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple


class PackedSample(NamedTuple):
    """An image and what is stated about it.

    Attributes:
        image: its name
        content: the encoded image
        record: what is stated about the image itself
        objects: its objects, with `bbox` and `category`, or with `desc`
        is_row: whether the sample is a row of one object, and others may have the same image
        has_phrases: whether objects have a phrase in place of a class
    """

    image: str
    content: bytes
    record: Mapping[str, Any]
    objects: list[dict[str, Any]]
    is_row: bool = False
    has_phrases: bool = False


def items_of(stated: Mapping[str, Any], box: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of lists as long as that of the boxes, a value an object; other fields are not of an object."""
    boxes = stated[box] if isinstance(stated.get(box), list) else []
    lists = {key: value for key, value in stated.items() if isinstance(value, list) and len(value) == len(boxes)}
    yield from (dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))


def named_object(item: Mapping[str, Any], box: str, label: str | None, value: Any) -> dict[str, Any]:
    """Return an object with its box as `bbox` and its class as `category`, or `desc` if its field is called so."""
    kept = {key: own for key, own in item.items() if key not in (box, label)}
    return {**kept, "bbox": item.get(box), "desc" if label == "desc" else "category": value}


def whole(value: Any) -> Any:
    """Return a whole number that a table stores as a DECIMAL or a double as an integer, and anything else as it is.

    Example:
        >>> whole(7.0), whole(Decimal("2.5")), whole("a")
        (7, 2.5, 'a')
    """
    if isinstance(value, Decimal):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
