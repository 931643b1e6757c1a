"""The twelve COCO numbers, by pycocotools or faster-coco-eval.

pycocotools (Lin et al. 2014, https://cocodataset.org/#detection-eval) is the reference, and it has habits
that turn an honest file into wrong numbers: it takes id 0 for "no match", prints to stdout, asserts on
unknown ids. So it is handed ids of our own, from 1 in the order in which it would have visited the originals.

Shape legend: T IoU thresholds, R recall points, K categories, A area ranges, M detection limits.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_eval.detections import Detections
from coord_eval.errors import InputError
from coord_eval.truth import GroundTruth

#: Names of the twelve numbers, in the order of ``COCOeval.stats``.
COCO_KEYS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
_SIZED = {"APs", "APm", "APl", "ARs", "ARm", "ARl"}
#: What can compute the twelve numbers; the second needs the extra ``fast`` and gives the same ones.
BACKENDS = ("pycocotools", "faster-coco-eval")
MAX_DETECTIONS = (1, 10, 100)


@dataclass(frozen=True, eq=False)
class CocoScores:
    """What one COCO evaluation yields.

    Attributes:
        summary: The twelve numbers; -1 where no object of that kind exists, as pycocotools has it.
        precision_TRKAM: Interpolated precision, -1 for categories without truth.
        recall_TKAM: Highest recall, -1 for categories without truth.
    """

    summary: dict[str, float]
    precision_TRKAM: np.ndarray
    recall_TKAM: np.ndarray

    def per_category(self) -> tuple[np.ndarray, np.ndarray]:
        """Return AP and AP50 of each category, -1 where it has no truth."""
        precision_TRK = self.precision_TRKAM[:, :, :, 0, -1]
        categories = range(precision_TRK.shape[2])
        return (
            np.array([_mean(precision_TRK[:, :, k]) for k in categories]),
            np.array([_mean(precision_TRK[0, :, k]) for k in categories]),
        )


def coco_scores(truth: GroundTruth, detections: Detections, backend: str = "pycocotools") -> CocoScores:
    """Evaluate boxes the COCO way.

    Detections whose label the ground truth doesn't have belong to no category that COCO averages over: they
    are hits for nobody, and as with every category without truth its own AP is left out of the mean.

    Args:
        truth: The objects.
        detections: The answers, at most the 100 best per image and category count.
        backend: One of :data:`BACKENDS`.

    Raises:
        InputError: For an unknown backend, or one that is not installed.
    """
    coco_class, evaluator_class = _backend(backend)
    with contextlib.redirect_stdout(io.StringIO()):
        objects = _index(coco_class, truth, _truth_records(truth))
        boxes = _index(coco_class, truth, _detection_records(truth, detections))
        evaluator = evaluator_class(objects, boxes, "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
    precision, recall = evaluator.eval["precision"], evaluator.eval["recall"]
    return CocoScores(summarize(precision, recall, truth.sizes_known), precision, recall)


def summarize(
    precision_TRKAM: np.ndarray, recall_TKAM: np.ndarray, sizes_known: bool = True
) -> dict[str, float]:
    """Return the twelve numbers, as ``COCOeval.summarize`` computes them, without its printing.

    Args:
        precision_TRKAM: T = .50:.05:.95, R = 0:.01:1, A = all, small, medium, large, M = 1, 10, 100.
        recall_TKAM: The same axes without R.
        sizes_known: False leaves the six sized numbers at -1.
    """
    values = [
        _mean(precision_TRKAM[:, :, :, 0, 2]),
        _mean(precision_TRKAM[0, :, :, 0, 2]),
        _mean(precision_TRKAM[5, :, :, 0, 2]),
        *(_mean(precision_TRKAM[:, :, :, area, 2]) for area in (1, 2, 3)),
        *(_mean(recall_TKAM[:, :, 0, limit]) for limit in (0, 1, 2)),
        *(_mean(recall_TKAM[:, :, area, 2]) for area in (1, 2, 3)),
    ]
    summary = dict(zip(COCO_KEYS, values, strict=True))
    return (
        summary if sizes_known else {key: -1.0 if key in _SIZED else value for key, value in summary.items()}
    )


def beyond_limit(detections: Detections) -> int:
    """Count the detections that COCO leaves out: beyond 100 per image and category."""
    if not len(detections):
        return 0
    pairs = np.stack([detections.image_D, detections.category_D], axis=1)
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    return int(np.clip(counts - MAX_DETECTIONS[-1], 0, None).sum())


def _mean(values: np.ndarray) -> float:
    """Mean over the entries that exist (pycocotools marks the others -1); -1 when none does."""
    present = values[values > -1]
    return float(present.mean()) if present.size else -1.0


def _backend(name: str) -> tuple[type, type]:
    """Return the ``COCO`` and ``COCOeval`` classes of a backend."""
    if name == "pycocotools":
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        return COCO, COCOeval
    if name not in BACKENDS:
        raise InputError(f"backend: expected one of {', '.join(BACKENDS)}, found {name!r}")
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError as error:
        raise InputError(f"backend {name}: not installed; pip install coord-eval[fast]") from error
    return COCO, COCOeval_faster


def _index(coco_class: type, truth: GroundTruth, annotations: list[dict[str, Any]]) -> Any:
    """Return an indexed ``COCO`` object; made by hand since ``loadRes`` cannot take an empty list."""
    coco = coco_class()
    coco.dataset = {
        "images": [{"id": i + 1} for i in range(len(truth))],
        "categories": [{"id": k + 1} for k in range(len(truth.categories))],
        "annotations": annotations,
    }
    coco.createIndex()
    return coco


def _truth_records(truth: GroundTruth) -> list[dict[str, Any]]:
    columns = zip(
        (truth.image_N + 1).tolist(),
        (truth.category_N + 1).tolist(),
        truth.boxes_N4.tolist(),
        truth.area_N.tolist(),
        truth.crowd_N.astype(int).tolist(),
        strict=True,
    )
    return [
        {"id": n, "image_id": image, "category_id": category, "bbox": box, "area": area, "iscrowd": crowd}
        for n, (image, category, box, area, crowd) in enumerate(columns, 1)
    ]


def _detection_records(truth: GroundTruth, detections: Detections) -> list[dict[str, Any]]:
    columns = zip(
        (detections.image_D + 1).tolist(),
        (detections.category_D + 1).tolist(),
        detections.boxes_D4.tolist(),
        detections.scores_D.tolist(),
        strict=True,
    )
    return [
        {
            "id": n,
            "image_id": image,
            "category_id": category,
            "bbox": box,
            "area": box[2] * box[3],
            "score": score,
        }
        for n, (image, category, box, score) in enumerate(columns, 1)
        if category <= len(truth.categories)
    ]
