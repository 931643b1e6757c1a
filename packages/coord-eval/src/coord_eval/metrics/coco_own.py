"""COCO's AP and AR with the caller's IoU thresholds, areas and detection limits, and precision-recall curves.

They are computed from our own matching; tests verify that they equal pycocotools with the same parameters.
"""

from __future__ import annotations

from coord_codec import InputError
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.match.matching import AREAS, ranked_matches_by_area
from coord_eval.metrics.coco import RECALL_POINTS, CocoScores, mean_present, precision_recall
from coord_eval.settings import CocoParams


def own_scores(truth: GroundTruth, detections: Detections, params: CocoParams) -> dict[str, float]:
    """Return `AP`, `AP@<IoU>`, `AR@<limit>`, `AP_<area>` and `AR_<area>`; -1 where a metric is undefined.

    Raises:
        InputError: for areas if the ground truth does not state image sizes
    """
    if params.areas and not truth.sizes_known:
        raise InputError("areas: the ground truth states no image sizes")
    thresholds, limits = list(params.iou_thresholds), sorted(params.max_detections)
    ranges = [AREAS[0], *params.ranges.values()]
    matches_by_area = ranked_matches_by_area(truth, detections, thresholds, limits[-1], ranges)
    all_areas, *by_area = (precision_recall(truth, detections, matches, limits) for matches in matches_by_area)
    values = {"AP": all_areas.precision_TRK}
    values |= {f"AP@{threshold:g}": all_areas.precision_TRK[t] for t, threshold in enumerate(thresholds)}
    values |= {f"AR@{limit}": recall_TK for limit, recall_TK in zip(limits, all_areas.recall_LTK, strict=True)}
    for name, part in zip(params.areas, by_area, strict=True):
        values |= {f"AP_{name}": part.precision_TRK, f"AR_{name}": part.recall_LTK[-1]}
    return {name: mean_present(part) for name, part in values.items()}


def pr_curves(scores: CocoScores) -> dict[str, list[float]]:
    """Return COCO's precision at 101 recalls, averaged over labels with objects, at IoU .5, .75 and over .5:.95.

    The means of the curves are AP50, AP75 and AP; `recall` contains the recalls.
    """
    precision_TRK = scores.all_areas.precision_TRK
    present_TRk = precision_TRK[:, :, (precision_TRK > -1).all(axis=(0, 1))]
    if not present_TRk.size:
        return {}
    curves = {"0.5": present_TRk[0], "0.75": present_TRk[5], "0.5:0.95": present_TRk.mean(axis=0)}
    return {"recall": RECALL_POINTS.tolist(), **{name: part.mean(axis=1).tolist() for name, part in curves.items()}}
