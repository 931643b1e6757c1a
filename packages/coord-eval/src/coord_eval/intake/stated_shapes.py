"""The shapes of COCO results, as pycocotools' `loadRes` reads them: outlines, run-length encoded masks, keypoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coord_codec.files import InputError, finite_numbers

GEOMETRY_OF = {"segmentation": "polygon", "keypoints": "keypoints"}
"""Fields of a row that draw its object, and the geometry whose shapes pycocotools scores by each."""
SHAPES = tuple(GEOMETRY_OF)
"""These fields."""


def stated_shape(record: Mapping[str, Any], place: str) -> dict[str, Any] | None:
    """Return the fields of a row that draw its object, checked; None if it has none.

    Raises:
        InputError: naming the row and the field
    """
    shape: dict[str, Any] = {}
    if segmentation := record.get("segmentation"):
        shape["segmentation"] = _segmentation(segmentation, f"{place}.segmentation")
    if keypoints := record.get("keypoints"):
        numbers = finite_numbers(keypoints, None, f"{place}.keypoints")
        if len(numbers) % 3:
            raise InputError(f"{place}.keypoints: expected x, y and v of each, found {len(numbers)} numbers")
        shape["keypoints"] = list(numbers)
    return shape or None


def box_around(shape: Mapping[str, Any]) -> tuple[tuple[float, ...], float | None]:
    """Return `x, y, width, height` of a shape, and its area where its image's size is not needed for it.

    They are those of pycocotools' `loadRes`: of a mask those of the mask, of keypoints those of the box around all of
    them. The box of outlines, which `loadRes` does not read alone, is that around their vertices.
    """
    segmentation = shape.get("segmentation")
    if isinstance(segmentation, Mapping):
        from pycocotools import mask  # slow to import

        return tuple(mask.toBbox(segmentation).tolist()), float(mask.area(segmentation))
    numbers = segmentation or [[value for n, value in enumerate(shape["keypoints"]) if n % 3 < 2]]
    xs, ys = ([value for outline in numbers for value in outline[axis::2]] for axis in (0, 1))
    box = (min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys))
    return box, None if segmentation else box[2] * box[3]


def drawn_points(shape: Mapping[str, Any] | None, geometry: str) -> list[tuple[float, float]]:
    """Return the points by which a shape of a geometry is drawn: of its longest outline, or its keypoints."""
    if shape is None:
        return []
    if geometry == "keypoints":
        numbers = shape.get("keypoints", ())
        return list(zip(numbers[::3], numbers[1::3], strict=True))
    outlines = shape.get("segmentation", ())
    numbers = () if isinstance(outlines, Mapping) else max(outlines, key=len, default=())
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _segmentation(value: Any, where: str) -> Any:
    """Return outlines, or a mask whose counts are compressed."""
    if not isinstance(value, Mapping):
        if not isinstance(value, list | tuple):
            raise InputError(f"{where}: expected outlines or a mask, found {value!r:.80}")
        outlines = [list(finite_numbers(outline, None, where)) for outline in value]
        if any(len(outline) < 6 or len(outline) % 2 for outline in outlines):
            lengths = ", ".join(str(len(outline)) for outline in outlines)
            raise InputError(f"{where}: expected x and y of three points or more an outline, found {lengths} numbers")
        return outlines
    size, counts = value.get("size"), value.get("counts")
    height, width = finite_numbers(size, 2, f"{where}.size")
    if isinstance(counts, list | tuple):
        from pycocotools import mask

        runs = [int(run) for run in finite_numbers(counts, None, f"{where}.counts")]
        if min(runs, default=0) < 0 or sum(runs) != height * width:
            raise InputError(f"{where}.counts: expected runs of {height * width:g} pixels, found {sum(runs)}")
        return mask.frPyObjects({"size": [int(height), int(width)], "counts": runs}, int(height), int(width))
    if not isinstance(counts, str | bytes):
        raise InputError(f"{where}.counts: expected text or a list of runs, found {counts!r:.80}")
    return {"size": [int(height), int(width)], "counts": counts}
