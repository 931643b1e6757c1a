"""The valid rows of a COCO file, in pixels.

Format: https://cocodataset.org/#format-data. Boxes are [x, y, width, height] in pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from coord_codec.box_table import BoxTable

ImageId = int | str
LISTS = ("images", "annotations", "categories")
"""The lists of a COCO document."""


def is_coco(document: Any) -> bool:
    """Return whether a JSON document is COCO detection annotations."""
    return isinstance(document, Mapping) and all(isinstance(document.get(key), list) for key in LISTS)


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


class CocoAnnotation(NamedTuple):
    """An annotation of a COCO file.

    Attributes:
        image: index of its image in `CocoTables.images`
        category: index of its category in `AnnotationSet.categories`
        bbox_xywh: x, y, width and height in pixels; for a rotated box those of the upright box around it
        area: area in square pixels; the area of the box if the file has none
        iscrowd: whether it is a crowd region, which covers many objects
        is_target: whether it is a training target
    """

    image: int
    category: int
    bbox_xywh: tuple[float, float, float, float]
    area: float
    iscrowd: bool
    is_target: bool


@dataclass(frozen=True)
class CocoTables:
    """The valid rows of a COCO file.

    Attributes:
        images: images by ascending id, numbers before text
        annotations: annotations in the order of the file
    """

    images: tuple[CocoImage, ...]
    annotations: tuple[CocoAnnotation, ...]


def tables_of(table: BoxTable) -> CocoTables:
    """Return the rows of a table of a COCO file one by one."""
    from coord_codec.box_table import BoxFlag

    sizes = [(None, None) if w != w else (int(w), int(h)) for w, h in table.sizes_I2.tolist()]  # noqa: PLR0124 - NaN
    images = tuple(
        CocoImage(image_id, name, *size)
        for image_id, name, size in zip(table.image_ids, table.names, sizes, strict=True)
    )
    boxes = [
        (x, y, w, h) for (x, y), (w, h) in zip(table.boxes_N4[:, :2].tolist(), table.sides_N2.tolist(), strict=True)
    ]
    flags = [table.has(flag).tolist() for flag in (BoxFlag.CROWD, BoxFlag.TARGET)]
    columns = table.image_N.tolist(), table.label_N.tolist(), boxes, table.area_N.tolist(), *flags
    return CocoTables(images, tuple(map(CocoAnnotation._make, zip(*columns, strict=True))))
