"""A COCO results list as columns: boxes of images and categories that are named once.

Shapes: R boxes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from coord_codec.files import InputError, finite_numbers, identifier
from coord_eval.parse.parser import plain

Key = tuple[int | str, str | None]
"""The id of an image or a category, and its name if the results state one."""
_FIVE_FLOATS = [float] * 5


class CocoResult(NamedTuple):
    """One box of a results list: a view of a row of `Results`.

    Attributes:
        image_id: id of the image
        category_id: id of the category
        bbox: `x, y, width, height` in pixels
        score: confidence
        image: file name of the image, which counts if the ids of two data sets differ
        category: name of the category, likewise
    """

    image_id: int | str
    category_id: int | str
    bbox: tuple[float, ...]
    score: float
    image: str | None = None
    category: str | None = None


@dataclass(frozen=True, eq=False)
class Results:
    """The boxes of a results list in its order.

    Attributes:
        images: the images that occur, in the order in which they do
        categories: the categories, likewise
        image_R: index in `images`
        category_R: index in `categories`
        boxes_R4: `x, y, width, height` in pixels, as written
        scores_R: confidences
    """

    images: tuple[Key, ...]
    categories: tuple[Key, ...]
    image_R: np.ndarray
    category_R: np.ndarray
    boxes_R4: np.ndarray
    scores_R: np.ndarray

    def __len__(self) -> int:
        return len(self.scores_R)

    def __getitem__(self, rows: slice) -> Results:
        columns = (self.image_R[rows], self.category_R[rows], self.boxes_R4[rows], self.scores_R[rows])
        return Results(self.images, self.categories, *columns)

    def __iter__(self) -> Iterator[CocoResult]:
        columns = (self.image_R, self.category_R, self.boxes_R4, self.scores_R)
        for image, category, box, score in zip(*(column.tolist() for column in columns), strict=True):
            (image_id, name), (category_id, label) = self.images[image], self.categories[category]
            yield CocoResult(image_id, category_id, tuple(box), score, name, label)


class ResultColumns:
    """Collects the records of a results list."""

    def __init__(self) -> None:
        self._images: dict[Key, int] = {}
        self._categories: dict[Key, int] = {}
        self._image, self._category = array("q"), array("q")
        self._numbers = array("d")

    def add(self, record: Mapping[str, Any], where: str) -> None:
        """Add a box.

        Raises:
            InputError: naming record and field
        """
        box: Any = record.get("bbox")
        score: Any = record.get("score")
        image_id, category_id = record.get("image_id"), record.get("category_id")
        # The usual types are checked quickly, since there may be millions of boxes.
        is_usual = type(box) is list and [*map(type, box), type(score)] == _FIVE_FLOATS
        if not (is_usual and type(image_id) is int and type(category_id) is int and isfinite(sum(box) + score)):
            box = finite_numbers(box, 4, f"{where}.bbox")
            image_id = identifier(plain(image_id), f"{where}.image_id")
            category_id = identifier(plain(category_id), f"{where}.category_id")
            score = finite_numbers([score], 1, f"{where}.score")[0]
        if box[2] < 0 or box[3] < 0:
            raise InputError(f"{where}.bbox: expected a width and height of at least 0, found {list(box)}")
        image, category = record.get("image"), record.get("category")
        images, categories = self._images, self._categories
        image_key = (image_id, image if isinstance(image, str) else None)
        category_key = (category_id, category if isinstance(category, str) else None)
        self._image.append(images.setdefault(image_key, len(images)))
        self._category.append(categories.setdefault(category_key, len(categories)))
        self._numbers.extend(box)
        self._numbers.append(score)

    def finished(self) -> Results:
        """Return the columns."""
        numbers_R5 = np.array(self._numbers, np.float64).reshape(-1, 5)
        places = (np.array(self._image, np.int64), np.array(self._category, np.int64))
        return Results(tuple(self._images), tuple(self._categories), *places, numbers_R5[:, :4], numbers_R5[:, 4])
