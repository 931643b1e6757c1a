"""COCO detection annotations read as a stream: what `read_coco` makes of a document, without the document in memory.

An annotation may stand anywhere in its list, so that all have to be read before the first image is complete. Until then
an object is eight numbers, and an image its row.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coord_codec.boxes import OnBadBox
from coord_codec.coco import WITH_REFUSED, Category, CocoReader
from coord_codec.records import Instance, Object, Problem

_NUMBERS = 8  # of an object: category, four corners, whether it is a crowd, whether an area is stated, the area


def stream_coco(
    table: Callable[[str], Iterable[Any]],
    source: str,
    on_bad_box: OnBadBox,
    problems: list[Problem],
    notes: Counter[str],
    image_size: Callable[[str], tuple[int, int] | None] | None = None,
) -> tuple[tuple[Category, ...], Iterator[Instance]]:
    """Return the categories and, one by one, the instances of a COCO document, in the order of its images.

    Args:
        table: iterates over the list `categories`, `images` or `annotations`; each is read once, in this order.
        source: what problems call the document.
        on_bad_box: what a refused object does to its image, see `OnBadBox`.
        problems: filled with what is left out.
        notes: filled with counted facts that are no faults.
        image_size: looks up the size of an image that states none.

    Example:
        >>> coco = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "width": 200, "height": 100}],
        ...     "categories": [{"id": 1, "name": "cat"}],
        ...     "annotations": [{"image_id": 7, "category_id": 1, "bbox": [20, 10, 100, 50]}],
        ... }
        >>> _, instances = stream_coco(coco.__getitem__, "a.json", "drop_image", [], Counter())
        >>> [instance.objects[0].bbox for instance in instances]
        [(0.1, 0.1, 0.6, 0.6)]
    """
    reader = CocoReader(table("categories"), table("images"), source, problems, notes, on_bad_box, image_size)
    numbers, before = array("d"), array("q")
    last = array("q", [-1]) * len(reader.images)
    for position, record in enumerate(table("annotations")):
        placed = reader.place(record, position)
        if placed is None:
            continue
        row, has_area, corners = placed
        if corners is not None:
            numbers.extend((row.category, *corners, row.iscrowd, has_area, row.area))
            before.append(last[row.image])
            last[row.image] = len(before) - 1
    left_out = reader.left_out()
    notes[WITH_REFUSED] += len(left_out)
    return reader.categories, _instances(reader, left_out, numbers, before, last)


def _instances(
    reader: CocoReader, left_out: set[int | str], numbers: array[float], before: array[int], last: array[int]
) -> Iterator[Instance]:
    for image in reader.given:
        if image.id in left_out or image.id not in reader.usable:
            continue
        objects, place = [], last[reader.image_index[image.id]]
        while place >= 0:
            category, x1, y1, x2, y2, crowd, has_area, area = numbers[_NUMBERS * place : _NUMBERS * (place + 1)]
            fields: dict[str, Any] = {"desc": reader.categories[int(category)].name, "bbox": (x1, y1, x2, y2)}
            if crowd:
                fields["iscrowd"] = True
            if has_area:
                fields["area"] = area
            objects.append(Object.model_construct(**fields))
            place = before[place]
        yield Instance.model_construct(
            image=image.file_name,
            width=image.width,
            height=image.height,
            image_id=image.id,
            objects=tuple(reversed(objects)),
        )
