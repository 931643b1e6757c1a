"""The valid rows of a COCO file, in pixels.

Format: https://cocodataset.org/#format-data. Boxes are [x, y, width, height] in pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

ImageId = int | str
LISTS = ("images", "annotations", "categories")
"""The lists of a COCO document."""


def is_coco(document: Any) -> bool:
    """Return whether a JSON document is COCO detection annotations."""
    return isinstance(document, Mapping) and all(isinstance(document.get(key), list) for key in LISTS)


def not_coco(document: Mapping[Any, Any]) -> str:
    """Return what a JSON object that is not COCO has instead: the first of its lists that is none, or its keys.

    Example:
        >>> not_coco({"images": 5}), not_coco({"info": {}})
        ('images: expected a list, found 5', "an object with the keys ['info']")
    """
    for key in LISTS:
        if key in document and not isinstance(document[key], list):
            return f"{key}: expected a list, found {document[key]!r:.80}"
    return f"an object with the keys {sorted(map(str, document))[:8]}"


class Category(NamedTuple):
    """A category of a data set.

    Attributes:
        id: id in the data set
        name: name, used as the description of its objects
    """

    id: ImageId
    name: str


def categories_named(names: Iterable[str]) -> tuple[Category, ...]:
    """Return the categories of records that state names alone: sorted, with ids from 1.

    Example:
        >>> categories_named({"dog", "cat"})
        (Category(id=1, name='cat'), Category(id=2, name='dog'))
    """
    return tuple(Category(number, name) for number, name in enumerate(sorted(names), start=1))


class CocoImage(NamedTuple):
    """An image of a COCO file.

    Attributes:
        id: id in the file
        file_name: the image's path; empty if the file has none
        width: width in pixels; None if the file has none
        height: height in pixels; None if the file has none
    """

    id: ImageId
    file_name: str
    width: int | None
    height: int | None
