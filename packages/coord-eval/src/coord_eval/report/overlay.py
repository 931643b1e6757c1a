"""Draws ground truth and answers over their image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from coord_codec import Geometry, geometry_of
from coord_codec.pages import Drawn, Gallery, image_svg, label_key, label_slots
from coord_codec.pages.boxes import Fate
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.sorting import stable_order
from coord_eval.intake.stated_shapes import drawn_points
from coord_eval.match.matching import Scored
from coord_eval.page_options import ImageRoot
from coord_eval.report.photograph import photograph

_LONGEST_NAME = 120


def overlay(evaluation: Scored, image: int, root: ImageRoot | None = None) -> tuple[str, str | None]:
    """Draw ground truth and answer over one image: colours stand for labels, line styles for hits and errors.

    Args:
        evaluation: the scored answers
        image: index of the image in the ground truth
        root: folder of the images, or a function from their names to their files; None draws on an empty background

    Returns:
        The SVG, and the reason why it does not contain the image, None if it does.
    """
    images = Gallery()
    svg = Overlays(evaluation, root, images).draw(image)
    return svg, next(iter(images.notes), None)


def shown_name(truth: GroundTruth, image: int) -> str:
    """Return the file name of an image for display: shortened, and without the folders of an absolute path."""
    name = truth.file_names[image].replace("\\", "/") or str(truth.image_ids[image])
    if name.startswith("/") or ":/" in name[:3] or ".." in name.split("/"):
        name = name.rpartition("/")[2]
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 :]}"


class Overlays:
    """Draws images of one evaluation like `overlay`, and takes them from those of a page.

    With a threshold of the score only boxes from there on are drawn, unless the page sets another; a box is then a hit
    if COCO's matching by descending score says so, which lower scores do not change.
    """

    def __init__(
        self, evaluation: Scored, root: ImageRoot | None, images: Gallery, threshold: float | None = None
    ) -> None:
        truth, detections = evaluation.truth, evaluation.detections
        self._evaluation, self._root, self._images, self._threshold = evaluation, root, images, threshold
        self._found_at: dict[int, float] = {}  # by the index of an object
        if threshold is not None:
            object_D = evaluation.ranked.object_D
            hit_d = np.flatnonzero(object_D >= 0)
            self._found_at = dict(zip(object_D[hit_d].tolist(), detections.scores_D[hit_d].tolist(), strict=True))
        self._slots = slots_of(evaluation)
        self._objects, self._answers = RowsOfImages(truth.image_N), RowsOfImages(detections.image_D)

    def draw(self, image: int) -> str:
        """Return the SVG of an image."""
        truth, detections = self._evaluation.truth, self._evaluation.detections
        objects_n, rows_d = self._objects[image], self._answers[image]
        boxes_K4 = np.concatenate([truth.boxes_N4[objects_n], detections.boxes_D4[rows_d]])
        size = drawn_size(truth, image, boxes_K4[:, :2] + boxes_K4[:, 2:])
        name = shown_name(truth, image)
        read = self._images.read(name, partial(photograph, self._root, truth.file_names[image]))
        boxes = [*self._objects_of(objects_n, size), *self._answers_of(rows_d, size)]
        threshold = -math.inf if self._threshold is None else self._threshold
        return image_svg(name, size, boxes, None if read is None else self._images.embed(read), threshold)

    @property
    def _stated_kind(self) -> Geometry | None:
        """The geometry of shapes that stand as a COCO file states them."""
        pairs = self._evaluation.shape_pairs
        return geometry_of(pairs.geometry) if pairs is not None and pairs.geometry else None

    def _objects_of(self, objects_n: np.ndarray, size: tuple[float, float]) -> Iterator[Drawn]:
        truth, pairs = self._evaluation.truth, self._evaluation.shape_pairs
        # Shapes are matched at a threshold of their own measure, so that every matched shape is a hit.
        hit_n = self._evaluation.matches.iou_N[objects_n] >= 0.5 if pairs is None else pairs.similarity_N[objects_n] > 0
        if self._threshold is not None:
            hit_n = np.array([n in self._found_at for n in objects_n.tolist()], bool)
        for n, is_hit in zip(objects_n.tolist(), hit_n.tolist(), strict=True):
            name = truth.categories[truth.category_N[n]]
            fate: Fate = "crowd" if truth.crowd_N[n] else "truth" if is_hit else "missed"
            shape = truth.shapes[n] if truth.shapes else None
            kind = geometry_of(shape.type) if shape else self._stated_kind
            points = list(kind.outline(shape.coordinates)) if shape and kind else []
            if kind is not None and truth.stated_N is not None:
                points = [(x / size[0], y / size[1]) for x, y in drawn_points(truth.stated_N[n], kind.name)]
            slot = self._slots[truth.category_N[n]]
            tip = f"ground truth: {name}"
            box, found_at = _corners(truth.boxes_N4[n], size), self._found_at.get(n)
            if fate != "missed":
                yield Drawn(name, box, fate, tip, slot, False, points, kind, up_to=found_at)
            if fate == "missed" or found_at is not None:
                yield Drawn(name, box, "missed", f"{tip}, missed", slot, True, points, kind, above=found_at)

    def _answers_of(self, rows_d: np.ndarray, size: tuple[float, float]) -> Iterator[Drawn]:
        truth, detections, pairs = self._evaluation.truth, self._evaluation.detections, self._evaluation.shape_pairs
        fit_D = self._evaluation.matches.iou_D if pairs is None else pairs.similarity_D
        hit_D = fit_D >= 0.5 if pairs is None else fit_D > 0
        if self._threshold is not None:
            fit_D, (hit_D,) = self._evaluation.matches.best_D, self._evaluation.ranked.hit_TD
        measure = "IoU" if pairs is None else "similarity"
        own = (geometry_of(shape.type) for shape in truth.shapes or () if shape is not None)
        kind = next(own, self._stated_kind)
        for d in rows_d.tolist():
            name = detections.table.labels[detections.category_D[d]]
            tip = f"answer: {name}, {measure} {fit_D[d]:.2f}, score {detections.scores_D[d]:.3g}"
            points = [(x / size[0], y / size[1]) for x, y in detections.shapes[d]] if detections.shapes else []
            fate: Fate = "hit" if hit_D[d] else "false"
            up_to = None if self._threshold is None else float(detections.scores_D[d])
            slot, box = self._slots[detections.category_D[d]], _corners(detections.boxes_D4[d], size)
            yield Drawn(name, box, fate, tip, slot, points=points, kind=kind, up_to=up_to)


class RowsOfImages:
    """The rows of each image, in their order; of `rows_x` alone if given."""

    def __init__(self, image_X: np.ndarray, rows_x: np.ndarray | None = None) -> None:
        rows_x = np.arange(len(image_X)) if rows_x is None else rows_x
        self._rows_x = rows_x[stable_order(image_X[rows_x])]
        self._image_x = image_X[self._rows_x]

    def __getitem__(self, image: int) -> np.ndarray:
        first, end = np.searchsorted(self._image_x, [image, image + 1])
        return np.asarray(self._rows_x[first:end])


def slots_of(evaluation: Scored) -> tuple[int, ...]:
    """Return the place of the colour of each label: those of the categories, then those of unknown labels."""
    counts = np.bincount(evaluation.truth.category_N, minlength=len(evaluation.truth.categories))
    names = evaluation.detections.table.labels
    slots = label_slots([*(names[k] for k in np.argsort(-counts, kind="stable").tolist()), *names])
    return tuple(slots[name] for name in names)


def label_colours(evaluation: Scored, *others: Scored) -> str:
    """Return the colours and numbers of the labels that have objects or boxes, as HTML.

    Of several evaluations of the same images it names those of the ground truth, whose colours are the same in all.
    """
    names, slots = evaluation.detections.table.labels, slots_of(evaluation)
    used = {*evaluation.truth.category_N.tolist(), *evaluation.detections.category_D.tolist()}
    for other in others:
        both = used.union(other.detections.category_D.tolist())
        used = {k for k in both if k < len(evaluation.truth.categories)}
    return label_key({names[k]: slots[k] for k in sorted(used, key=slots.__getitem__)})


def _corners(box: np.ndarray, size: tuple[float, float]) -> tuple[float, float, float, float]:
    x, y, w, h = box.tolist()
    return (x / size[0], y / size[1], (x + w) / size[0], (y + h) / size[1])


def drawn_size(truth: GroundTruth, image: int, ends_K2: np.ndarray) -> tuple[float, float]:
    """Return width and height of an image; if they are unknown, the extent of boxes that end at these points."""
    width, height = truth.sizes_I2[image].tolist()
    if not truth.sizes_known or np.isfinite(width + height):
        return width, height
    right, bottom = ends_K2.max(axis=0, initial=1.0).tolist()
    return right, bottom
