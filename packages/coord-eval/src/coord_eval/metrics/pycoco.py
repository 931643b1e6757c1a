"""pycocotools as the reference, without its printing; nothing process-wide is redirected, so that threads can score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from types import FunctionType
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth


def _print_nothing(*_: object, **__: object) -> None:
    """Take the place of `print`."""


def _quiet(function: Callable[..., Any]) -> Any:
    """Return a copy of a function for which `print` prints nothing."""
    names = {**function.__globals__, "print": _print_nothing}
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


class QuietCOCO(COCO):  # type: ignore[misc]  # pycocotools has no types
    """pycocotools' index of annotations."""

    createIndex = _quiet(COCO.createIndex)


_accumulate, _summarize = _quiet(COCOeval.accumulate), _quiet(COCOeval.summarize)


class QuietCOCOeval(COCOeval):  # type: ignore[misc]
    """pycocotools' evaluation, a category after the other, since its records of all would take most of the memory."""

    def evaluate(self: Any) -> None:
        """Evaluate and accumulate; of a category only the images with an object or a box, as others count nothing."""
        self._prepare()
        of_all, parts = self.params, []
        images: dict[int, list[int]] = {}
        for image, category in sorted({*self._gts, *self._dts}):
            images.setdefault(category, []).append(image)
        for categories in [[category] for category in of_all.catIds] or [[]]:
            self.params = self._paramsEval = own = copy(of_all)
            own.catIds = categories
            own.imgIds = [image for category in categories for image in images.get(category, ())]
            pairs = [(image, category) for category in categories for image in own.imgIds]
            similarity = self.computeOks if own.iouType == "keypoints" else self.computeIoU
            self.ious = {pair: similarity(*pair) for pair in pairs}
            self.evalImgs = [self.evaluateImg(*pair, area, own.maxDets[-1]) for area in own.areaRng for pair in pairs]
            _accumulate(self)
            parts.append(self.eval)
        axes = {"precision": 2, "recall": 1}
        self.eval = {name: np.concatenate([part[name] for part in parts], axis) for name, axis in axes.items()}
        self.params = of_all

    summarize = _summarize


def by_pycocotools(truth: GroundTruth, detections: Detections) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield precision [T, R, K] and recall [L, T, K] of all, small, medium and large objects; -1 for undefined.

    Detections with labels that the ground truth does not have belong to no category that COCO averages over. Image and
    annotation ids are replaced by 1, 2, ... in the order in which pycocotools would process the original ids, since it
    takes the id 0 for "no match".
    """
    crowd_N = truth.crowd_N.astype(int)
    objects = _records("iscrowd", truth.image_N, truth.category_N, truth.boxes_N4, truth.area_N, crowd_N)
    known = detections.take(np.flatnonzero(detections.category_D < len(truth.categories)))
    area_D = known.boxes_D4[:, 2] * known.boxes_D4[:, 3]
    boxes = _records("score", known.image_D, known.category_D, known.boxes_D4, area_D, known.scores_D)
    evaluator = QuietCOCOeval(_indexed(truth, objects), _indexed(truth, boxes), "bbox")
    evaluator.evaluate()
    precision_TRKAL, recall_TKAL = evaluator.eval["precision"], evaluator.eval["recall"]
    for area in range(recall_TKAL.shape[2]):
        yield precision_TRKAL[:, :, :, area, -1], recall_TKAL[:, :, area].transpose(2, 0, 1)


def _indexed(truth: GroundTruth, annotations: list[dict[str, Any]]) -> Any:
    """Return an indexed `COCO` object; it is built here since `loadRes` does not accept an empty list."""
    coco = QuietCOCO()
    coco.dataset = {
        "images": [{"id": i + 1} for i in range(len(truth))],
        "categories": [{"id": k + 1} for k in range(len(truth.categories))],
        "annotations": annotations,
    }
    coco.createIndex()
    return coco


def _records(key: str, *columns: np.ndarray) -> list[dict[str, Any]]:
    """Return a COCO record for each box, from the columns image, category, box, area and `key`."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        {"id": n, "image_id": image + 1, "category_id": category + 1, "bbox": box, "area": area, key: value}
        for n, (image, category, box, area, value) in enumerate(rows, 1)
    ]
