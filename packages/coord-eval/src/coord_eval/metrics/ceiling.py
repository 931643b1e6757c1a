"""The quantisation ceiling: the score of the ground truth itself.

Its objects are sorted, cut at the object limit, quantised on the grid, encoded as the text of an answer and parsed
back. No model can recover what these steps lose.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from coord_codec import CoordGrid, Form, MarkerFamily, Order, Style, encode_target, order_objects
from coord_codec.box_table import to_pixels
from coord_codec.problems import check_description
from coord_codec.thoughts import find_thoughts
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.pixels import from_corners
from coord_eval.boxes.sorting import stable_order
from coord_eval.intake.ground_truth import GroundTruthSource, load_ground_truth
from coord_eval.intake.joining import LabelMatcher
from coord_eval.match.matching import Scored
from coord_eval.metrics.coco import coco_scores
from coord_eval.settings import CeilingSettings


def oracle_predictions(
    ground_truth: GroundTruthSource,
    *,
    markers: str | MarkerFamily = "obj",
    style: Style = "markers",
    form: Form = "tokens",
    order: Order = "top_left",
    max_objects: int | None = None,
    grid: CoordGrid = CoordGrid(),
) -> list[dict[str, Any]]:
    """Return a prediction record for each image, with the encoded ground truth as its text.

    Crowd regions are left out. Boxes are clipped to the image; a box without area after clipping is left out.

    Args:
        ground_truth: as for `coord_eval.load_ground_truth`; every image needs its size
        markers: marker family, see `coord_codec.encode_target`
        style: `markers` or `json`
        form: `tokens` or `numbers`
        order: order of the objects
        max_objects: maximum number of objects in an image, None for no limit
        grid: grid that quantises the coordinates

    Raises:
        InputError: if the ground truth cannot be read, or an image with objects states no size

    Example:
        >>> from coord_codec import Instance
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.3, 0.4]}
        >>> oracle_predictions([Instance(image="a.jpg", width=9, height=9, objects=[cat])])[0]["text"]
        '<obj_start>cat<|coord_100|><|coord_200|><|coord_300|><|coord_400|><obj_end>'
    """
    from coord_codec import Instance, Object

    ground_truth = load_ground_truth(ground_truth)
    image_M, category_M, corners_M4 = _objects(ground_truth)
    bounds = np.searchsorted(image_M, np.arange(len(ground_truth) + 1))
    records = []
    for image, image_id in enumerate(ground_truth.image_ids):
        name = ground_truth.file_names[image] or str(image_id)
        own = slice(bounds[image], bounds[image + 1])
        pairs = zip(category_M[own].tolist(), corners_M4[own].tolist(), strict=True)
        named = tuple(Object(desc=ground_truth.categories[category], bbox=corners) for category, corners in pairs)
        instance = Instance(image="any", objects=named)
        text = encode_target(
            instance, markers=markers, style=style, form=form, order=order, max_objects=max_objects, grid=grid
        )
        records.append({"image_id": image_id, "image": name, "text": text, "finish_reason": "stop"})
    return records


def no_ceiling(ground_truth: GroundTruth) -> str:
    """Return why the ceiling cannot be computed; empty if it can be."""
    if not np.isfinite(ground_truth.sizes_I2).all():
        return "no ceiling: some images state no size"
    if len(set(ground_truth.categories)) != len(ground_truth.categories):
        return "no ceiling: two categories share a name"
    try:
        for name in ground_truth.categories:
            check_description(name)
    except ValueError as error:
        return f"no ceiling: the name of a category cannot be written in a target text: {error}"
    return ""


def ceiling_scores(ground_truth: GroundTruth, settings: CeilingSettings, grid: CoordGrid) -> dict[str, float]:
    """Score the encoded ground truth as if it were the model's answers.

    The steps of `oracle_predictions` are done on arrays, without a text; of the text only the labels are tried.

    Returns:
        The twelve COCO metrics with all scores set to 1; empty if they cannot be computed.
    """
    if no_ceiling(ground_truth):
        return {}
    image_M, category_M, corners_M4 = _objects(ground_truth)
    rows = _chosen(image_M, corners_M4, settings)
    bins_D4 = grid.quantize(corners_M4[rows])
    category_D = _categories_read(ground_truth, settings, grid)[category_M[rows]]
    # A box without area on the grid, or whose label is not read, is lost.
    kept_D = (bins_D4[:, :2] < bins_D4[:, 2:]).all(axis=1) & (category_D >= 0)
    kept_D &= _is_read(ground_truth, image_M[rows], category_M[rows], corners_M4[rows], settings, grid)
    image_D = image_M[rows][kept_D]
    corners_D4 = to_pixels(
        np.minimum(bins_D4[kept_D], grid.scale), np.tile(ground_truth.sizes_I2[image_D], 2), grid.scale
    )
    boxes_D4 = from_corners(corners_D4)
    ones_D = np.ones(len(image_D))
    detections = Detections.of(ground_truth, image_D, category_D[kept_D], boxes_D4, ones_D, np.zeros(len(image_D)))
    scored = Scored(truth=ground_truth, detections=detections, score_source="constant", bins=grid.scale)
    return coco_scores(scored).summary


def _objects(ground_truth: GroundTruth) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the objects that can stand in a target text, by image: image, category, corners clipped to [0, 1].

    Raises:
        InputError: if an image with objects states no size
    """
    sizes_N2 = ground_truth.sizes_I2[ground_truth.image_N]
    for image in sorted(ground_truth.image_N[~np.isfinite(sizes_N2[:, 0])].tolist())[:1]:
        ground_truth.size_of(image)
    starts_N2, ends_N2 = ground_truth.boxes_N4[:, :2], ground_truth.boxes_N4[:, :2] + ground_truth.boxes_N4[:, 2:]
    corners_N4 = np.clip(np.concatenate([starts_N2 / sizes_N2, ends_N2 / sizes_N2], axis=1), 0.0, 1.0)
    rows = np.flatnonzero(~ground_truth.crowd_N & (corners_N4[:, :2] < corners_N4[:, 2:]).all(axis=1))
    rows = rows[stable_order(ground_truth.image_N[rows])]
    return ground_truth.image_N[rows], ground_truth.category_N[rows], corners_N4[rows]


def _chosen(image_M: np.ndarray, corners_M4: np.ndarray, settings: CeilingSettings) -> np.ndarray:
    """Return the rows that stand in the target texts, in their order."""
    x1_M, y1_M, x2_M, y2_M = corners_M4.T
    bounds = np.flatnonzero(np.diff(image_M, prepend=-1))
    if settings.order == "top_left":
        rows = stable_order(image_M, y1_M, x1_M)
    elif settings.order == "size":
        rows = stable_order(image_M, -(x2_M - x1_M) * (y2_M - y1_M))
    else:
        parts = np.split(np.arange(len(image_M)), bounds[1:])
        numbered = [[_Place(n, (0.0, 0.0, 1.0, 1.0)) for n in part.tolist()] for part in parts]
        ordered = [place.row for part in numbered for place in order_objects(part, settings.order)]
        rows = np.array(ordered, np.int64)
    if settings.max_objects is None:
        return rows
    place_M = np.arange(len(rows)) - np.repeat(bounds, np.diff(np.append(bounds, len(rows))))
    return rows[place_M < settings.max_objects]


class _Place(NamedTuple):
    """A row that `order_objects` sorts."""

    row: int
    bbox: tuple[float, float, float, float]


def _categories_read(ground_truth: GroundTruth, settings: CeilingSettings, grid: CoordGrid) -> np.ndarray:
    """Return the category as which the label of each category is read from a text, -1 for one that is not read."""
    matcher = LabelMatcher(ground_truth.categories)
    labels = [_label_read(name, settings.markers, grid) for name in ground_truth.categories]
    categories = [None if label is None else matcher.match(label)[0] for label in labels]
    return np.array([-1 if category is None else category for category in categories], np.int64)


def _is_read(
    ground_truth: GroundTruth,
    image_D: np.ndarray,
    category_D: np.ndarray,
    corners_D4: np.ndarray,
    settings: CeilingSettings,
    grid: CoordGrid,
) -> np.ndarray:
    """Return which objects are read in a text: a category that is named like a thought's mark hides others there."""
    from coord_codec import Instance, Object
    from coord_eval.parse.parser import parse_answer

    names, is_read_D = ground_truth.categories, np.ones(len(image_D), bool)
    marked = [n for n, name in enumerate(names) if find_thoughts(name) != ([], None)]
    for image in np.unique(image_D[np.isin(category_D, marked)]).tolist():
        rows = np.flatnonzero(image_D == image)
        objects = [Object(desc=names[category_D[row]], bbox=tuple(corners_D4[row].tolist())) for row in rows]
        target = Instance(image="any", objects=tuple(objects))
        text = encode_target(target, markers=settings.markers, order="given", grid=grid)
        left = Counter((item.desc, item.bins) for item in parse_answer(text, settings.markers, grid=grid))
        for row, item in zip(rows, objects, strict=True):
            key = (item.desc.strip(), tuple(grid.quantize(np.array(item.bbox)).tolist()))
            is_read_D[row] = left[key] > 0
            left[key] -= 1
    return is_read_D


def _label_read(name: str, markers: str | MarkerFamily, grid: CoordGrid) -> str | None:
    """Return a label as it is read from a text, None if it is not read."""
    if isinstance(markers, str) and find_thoughts(name) == ([], None):
        return name.strip()  # between the markers of any family of ours
    from coord_codec import Instance, Object  # needs pydantic
    from coord_eval.parse.parser import parse_answer

    alone = Instance(image="any", objects=(Object(desc=name, bbox=(0.0, 0.0, 1.0, 1.0)),))
    answer = parse_answer(encode_target(alone, markers=markers, grid=grid), markers, grid=grid)
    return answer.objects[0].desc if len(answer) == 1 else None
