"""The usable rows of a COCO file, as it states them.

Format: https://cocodataset.org/#format-data. Boxes are [x, y, width, height] in pixels.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

ImageId = int | str


class Category(NamedTuple):
    """A category of a data set.

    Attributes:
        id: the data set's own id.
        name: its name, the description of its objects.
    """

    id: ImageId
    name: str


class CocoImage(NamedTuple):
    """An image as a COCO file states it.

    Attributes:
        id: the file's own id.
        file_name: the image's path; empty if the file states none.
        width: in pixels; None if the file states none.
        height: in pixels; None if the file states none.
    """

    id: ImageId
    file_name: str
    width: int | None
    height: int | None


class CocoAnnotation(NamedTuple):
    """An annotation as a COCO file states it.

    Attributes:
        image: index of its image in `CocoTables.images`.
        category: index of its category in `AnnotationSet.categories`.
        bbox_xywh: x, y, width and height in pixels; of a rotated box those of the upright one around it.
        area: in square pixels; the box's own if the file states none.
        iscrowd: whether it is a region of many objects.
        is_target: whether it is an object that training teaches.
    """

    image: int
    category: int
    bbox_xywh: tuple[float, float, float, float]
    area: float
    iscrowd: bool
    is_target: bool


@dataclass(frozen=True)
class CocoTables:
    """The usable rows of a COCO file.

    Attributes:
        images: by ascending id, numbers before text.
        annotations: in the order of the file.
    """

    images: tuple[CocoImage, ...]
    annotations: tuple[CocoAnnotation, ...]

    def select(self, image_ids: Collection[ImageId | None]) -> CocoTables:
        """Return the images of these ids, with the annotations that are training targets or crowd regions."""
        kept = [i for i, image in enumerate(self.images) if image.id in image_ids]
        new = {old: i for i, old in enumerate(kept)}
        return CocoTables(
            tuple(self.images[i] for i in kept),
            tuple(
                a._replace(image=new[a.image])
                for a in self.annotations
                if a.image in new and (a.is_target or a.iscrowd)
            ),
        )
