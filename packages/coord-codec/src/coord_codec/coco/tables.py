"""The valid rows of a COCO file, in pixels.

Format: https://cocodataset.org/#format-data. Boxes are [x, y, width, height] in pixels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

ImageId = int | str


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

    def select(self, image_ids: Collection[ImageId | None]) -> CocoTables:
        """Return the images with these ids and their annotations that are training targets or crowd regions."""
        kept = [i for i, image in enumerate(self.images) if image.id in image_ids]
        new_index = {old: i for i, old in enumerate(kept)}
        return CocoTables(
            tuple(self.images[i] for i in kept),
            tuple(
                a._replace(image=new_index[a.image])
                for a in self.annotations
                if a.image in new_index and (a.is_target or a.iscrowd)
            ),
        )
