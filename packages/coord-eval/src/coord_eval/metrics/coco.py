"""The twelve COCO metrics (Lin et al. 2014, https://cocodataset.org/#detection-eval), in two ways.

- `coco_scores` runs a backend, pycocotools or faster-coco-eval. `coco` and `per_class` of an evaluation are its values,
  so that they equal those of pycocotools to the last digit.
- `ApTable` and the functions on it compute the same metrics from our own matching (`match.matching`), also under
  image weights, which no backend supports. They serve intervals, AP with a constant score, AP of any label, the
  ceiling and error costs.

Tests verify that both agree within 1e-12 for labels, thresholds, areas, limits, ties and crowd regions, and that
weights agree with pycocotools on copies of the images.

Shapes: B weightings, I images, T IoU thresholds, R recall points, K categories, A area ranges, M detection limits,
d detections of one category by descending score, h those of them that are hits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_eval.boxes.detections import Detections
from coord_eval.intake.ground_truth import GroundTruth
from coord_eval.match.matching import MAX_DETECTIONS, RankedMatches, Scored
from coord_eval.metrics.sums import LabelSums, Measure, mean_of_present, ratio

RECALL_POINTS = np.linspace(0.0, 1.0, 101)
"""COCO's 101 recall values at which precision is sampled."""


class ApTable:
    """COCO's precision and recall of one set of matches.

    An image of weight 2 counts as two copies of it, whose boxes are next to each other among equal scores.
    """

    def __init__(self, truth: GroundTruth, detections: Detections, matches: RankedMatches) -> None:
        self.names, self.images = len(truth.categories), len(truth)
        self._matches, self._detections = matches, detections
        counted_N = matches.counted_N
        self._objects = LabelSums(truth.category_N[counted_N], truth.image_N[counted_N], self.names, self.images)
        # Detections that are ignored at every threshold do not change the result.
        relevant_D = (detections.category_D < self.names) & ~matches.ignored_TD.all(axis=0)
        order = matches.order_D[relevant_D[matches.order_D]]
        order = order[np.argsort(detections.category_D[order], kind="stable")]
        bounds = np.searchsorted(detections.category_D[order], np.arange(self.names + 1))
        self._labels = [_Label(matches, detections, order[bounds[k] : bounds[k + 1]]) for k in range(self.names)]

    def average_precision(self, weights_BI: np.ndarray | None = None) -> np.ndarray:
        """Return AP [B, T, K], NaN for categories without objects; without weights each image counts once."""
        weights_BI = self._weights(weights_BI)
        objects_BK = self._objects(weights_BI)
        ap_BTK = np.full((len(weights_BI), len(self._matches.thresholds), self.names), np.nan)
        for k in np.nonzero(objects_BK.any(axis=0))[0]:
            rows_B = objects_BK[:, k] > 0
            ap_BTK[rows_B, :, k] = self._labels[k].average_precision(weights_BI[rows_B], objects_BK[rows_B, k])
        return ap_BTK

    def average_recall(self, limit: int, weights_BI: np.ndarray | None = None) -> np.ndarray:
        """Return recall [B, K], the mean over thresholds, of the `limit` best boxes of each label and image."""
        weights_BI = self._weights(weights_BI)
        rows = np.nonzero(self._matches.hit_TD & (self._matches.place_D < limit))[1]
        hits = LabelSums(self._detections.category_D[rows], self._detections.image_D[rows], self.names, self.images)
        objects_BK = self._objects(weights_BI)
        return ratio(hits(weights_BI), len(self._matches.thresholds) * objects_BK)

    def _weights(self, weights_BI: np.ndarray | None) -> np.ndarray:
        return np.ones((1, self.images), np.int32) if weights_BI is None else weights_BI.astype(np.int32)


class _Label:
    """The boxes of one category by descending score."""

    def __init__(self, matches: RankedMatches, detections: Detections, rows_d: np.ndarray) -> None:
        self._image_d = detections.image_D[rows_d]
        self._counted_Td = ~matches.ignored_TD[:, rows_d]
        self._hit_Th = [np.nonzero(hit_d)[0] for hit_d in matches.hit_TD[:, rows_d]]

    def average_precision(self, weights_BI: np.ndarray, objects_B: np.ndarray) -> np.ndarray:
        """Return AP [B, T]: the mean over 101 recalls of the highest precision at that recall or a higher one.

        Recall increases only at hits, so only hits are considered: each covers the recall values above the recall at
        the previous hit, up to its own.
        """
        weights_Bd = weights_BI[:, self._image_d]
        ap_BT = np.zeros((len(weights_BI), len(self._hit_Th)))
        counted_d: np.ndarray | None = None
        for t, hit_h in enumerate(self._hit_Th):
            if not len(hit_h):
                continue
            if counted_d is None or not np.array_equal(counted_d, self._counted_Td[t]):
                counted_d = self._counted_Td[t]
                boxes_Bd = np.cumsum(weights_Bd * counted_d, axis=1, dtype=np.int32)
            hits_Bh = np.cumsum(weights_Bd[:, hit_h], axis=1, dtype=np.int32)
            precision_Bh = hits_Bh / np.maximum(boxes_Bd[:, hit_h], 1)
            best_Bh = np.maximum.accumulate(precision_Bh[:, ::-1], axis=1)[:, ::-1]
            reached_Bh = np.searchsorted(RECALL_POINTS, hits_Bh / objects_B[:, None], side="right")
            points_Bh = np.diff(reached_Bh, axis=1, prepend=0)
            ap_BT[:, t] = (best_Bh * points_Bh).sum(axis=1) / len(RECALL_POINTS)
        return ap_BT


COCO_KEYS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
"""Names of the twelve metrics, in the order of `COCOeval.stats`."""
BACKENDS = ("pycocotools", "faster-coco-eval")
"""Libraries that compute the twelve metrics; the second needs the extra `fast` and gives the same values."""


@dataclass(frozen=True, eq=False)
class CocoScores:
    """Result of one evaluation by a backend.

    Attributes:
        summary: the twelve metrics; -1 where no object of that kind exists, as in pycocotools
        precision_TRKAM: interpolated precision, -1 for categories without objects
        recall_TKAM: highest recall, -1 for categories without objects
    """

    summary: dict[str, float]
    precision_TRKAM: np.ndarray
    recall_TKAM: np.ndarray

    def per_category(self) -> tuple[np.ndarray, np.ndarray]:
        """Return AP and AP50 of each category, -1 where it has no objects."""
        precision_TRK = self.precision_TRKAM[:, :, :, 0, -1]
        categories = range(precision_TRK.shape[2])
        return (
            np.array([mean_present(precision_TRK[:, :, k]) for k in categories]),
            np.array([mean_present(precision_TRK[0, :, k]) for k in categories]),
        )


def coco_scores(truth: GroundTruth, detections: Detections, backend: str = "pycocotools") -> CocoScores:
    """Compute the twelve metrics with a backend.

    Detections with labels that the ground truth does not have belong to no category that COCO averages over. Image and
    annotation ids are replaced by 1, 2, ... in the order in which pycocotools would process the original ids, since it
    interprets id 0 as "no match".

    Raises:
        InputError: for an unknown backend, or one that is not installed
    """
    coco_class, evaluator_class = _backend(backend)
    crowd_N = truth.crowd_N.astype(int)
    objects = _records("iscrowd", truth.image_N, truth.category_N, truth.boxes_N4, truth.area_N, crowd_N)
    known = detections.take(np.nonzero(detections.category_D < len(truth.categories))[0])
    area_D = known.boxes_D4[:, 2] * known.boxes_D4[:, 3]
    boxes = _records("score", known.image_D, known.category_D, known.boxes_D4, area_D, known.scores_D)
    evaluator = evaluator_class(*(indexed(coco_class, truth, rows) for rows in (objects, boxes)), "bbox")
    evaluator.evaluate()
    evaluator.accumulate()
    precision, recall = evaluator.eval["precision"], evaluator.eval["recall"]
    return CocoScores(_summarize(precision, recall, truth.sizes_known), precision, recall)


def coco_measure(scored: Scored) -> Measure:
    """Prepare AP, AP50, AP75 and AR with 1, 10 and 100 detections from our own matching, NaN where undefined."""
    table = ApTable(scored.truth, scored.detections, scored.coco_matches)

    def measure(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        recall = {f"AR{limit}": table.average_recall(limit, weights_BI) for limit in MAX_DETECTIONS}
        return ap_summary(table, weights_BI) | {name: mean_of_present(part) for name, part in recall.items()}

    return measure


def coco_measure_by_size(scored: Scored) -> Measure:
    """Prepare AP and AR of small, medium and large objects from our own matching; empty if sizes are unknown."""
    tables = [ApTable(scored.truth, scored.detections, matches) for matches in scored.coco_matches_by_size]

    def measure(weights_BI: np.ndarray) -> dict[str, np.ndarray]:
        values = {}
        for size, table in zip("sml", tables, strict=False):
            values[f"AP{size}"] = mean_of_present(table.average_precision(weights_BI))
            values[f"AR{size}"] = mean_of_present(table.average_recall(MAX_DETECTIONS[-1], weights_BI))
        return values

    return measure


def own_summary(scored: Scored) -> dict[str, float]:
    """Return the twelve metrics from our own matching, -1 where one is undefined."""
    once = np.ones((1, len(scored.truth)), np.int32)
    values = coco_measure(scored)(once) | coco_measure_by_size(scored)(once)
    floats = {key: float(values[key][0]) if key in values else np.nan for key in COCO_KEYS}
    return {key: -1.0 if np.isnan(value) else value for key, value in floats.items()}


def ap_summary(table: ApTable, weights_BI: np.ndarray, ending: str = "") -> dict[str, np.ndarray]:
    """Return AP, AP50 and AP75 [B], the mean over labels; `ending` is added to the names."""
    ap_BTK = table.average_precision(weights_BI)
    parts = {"AP": ap_BTK, "AP50": ap_BTK[:, 0], "AP75": ap_BTK[:, 5]}
    return {f"{name}{ending}": mean_of_present(part) for name, part in parts.items()}


def scores_by_class(
    ground_truth: GroundTruth, detections: Detections, scores: CocoScores
) -> dict[str, dict[str, float]]:
    """Return AP, AP50, objects and detections of each category that has either."""
    ap_K, ap50_K = scores.per_category()
    names = len(ground_truth.categories)
    objects_K = np.bincount(ground_truth.category_N[~ground_truth.crowd_N], minlength=names)
    detections_K = np.bincount(detections.category_D[detections.category_D < names], minlength=names)
    rows = zip(ground_truth.categories, ap_K, ap50_K, objects_K, detections_K, strict=True)
    return {
        name: {"AP": float(ap), "AP50": float(ap50), "objects": int(objects), "detections": int(boxes)}
        for name, ap, ap50, objects, boxes in rows
        if objects or boxes
    }


def beyond_limit(detections: Detections) -> int:
    """Count the detections that COCO leaves out: those beyond the best 100 of each image and category."""
    if not len(detections):
        return 0
    keys_D = detections.image_D * (detections.category_D.max() + 1) + detections.category_D
    counts = np.unique(keys_D, return_counts=True)[1]
    return int(np.clip(counts - MAX_DETECTIONS[-1], 0, None).sum())


def mean_present(values: np.ndarray) -> float:
    """Return the mean of the values other than NaN and -1, which pycocotools uses for undefined; -1 without any."""
    present = values[values > -1]
    return float(present.mean()) if present.size else -1.0


def _summarize(precision_TRKAM: np.ndarray, recall_TKAM: np.ndarray, sizes_known: bool) -> dict[str, float]:
    """Return the twelve metrics as `COCOeval.summarize` computes them; those by size are -1 without image sizes."""
    values = [
        mean_present(precision_TRKAM[:, :, :, 0, 2]),
        mean_present(precision_TRKAM[0, :, :, 0, 2]),
        mean_present(precision_TRKAM[5, :, :, 0, 2]),
        *(mean_present(precision_TRKAM[:, :, :, area, 2]) if sizes_known else -1.0 for area in (1, 2, 3)),
        *(mean_present(recall_TKAM[:, :, 0, limit]) for limit in (0, 1, 2)),
        *(mean_present(recall_TKAM[:, :, area, 2]) if sizes_known else -1.0 for area in (1, 2, 3)),
    ]
    return dict(zip(COCO_KEYS, values, strict=True))


def _backend(name: str) -> tuple[type, type]:
    """Return the `COCO` and `COCOeval` classes of a backend."""
    if name == "pycocotools":
        from coord_eval.metrics.pycoco import QuietCOCO, QuietCOCOeval

        return QuietCOCO, QuietCOCOeval
    if name not in BACKENDS:
        raise InputError(f"backend: expected one of {', '.join(BACKENDS)}, found {name!r}")
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError as error:
        raise InputError(f"backend {name}: not installed; pip install faster-coco-eval") from error
    return COCO, COCOeval_faster


def indexed(coco_class: type, truth: GroundTruth, annotations: list[dict[str, Any]]) -> Any:
    """Return an indexed `COCO` object; it is built here since `loadRes` does not accept an empty list."""
    coco = coco_class()
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
