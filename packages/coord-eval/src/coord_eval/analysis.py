"""Everything beyond the headline numbers, computed when somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coord_eval.confusion import confusion
from coord_eval.error_kinds import error_costs
from coord_eval.localisation import by_object_count, by_rank, by_size, count_errors, edge_bias, macro_table
from coord_eval.ranked import ranked_matches
from coord_eval.thresholds import PROBABILITIES, f1_curve, reliability

if TYPE_CHECKING:
    from coord_eval.evaluation import Evaluation


def analyse(evaluation: Evaluation, bins: int) -> dict[str, Any]:
    """Return the ``analysis`` part of ``evaluation.json``; each key's function documents it.

    Args:
        evaluation: The scored answers.
        bins: Units per picture side in which errors are given.
    """
    truth, detections, matches = evaluation.truth, evaluation.detections, evaluation.matches
    ranked = ranked_matches(truth, detections, [0.5])
    objects = int((~truth.crowd_N).sum())
    counted_D = ~ranked.ignored_TD[0]
    calibrated = evaluation.score_source in PROBABILITIES
    return {
        "macro": macro_table(truth, detections, matches),
        "class_agnostic_recall": evaluation.detection_class_agnostic["0.5"]["recall"],
        "count": count_errors(truth, detections, matches),
        "edge_bias": edge_bias(truth, detections, matches, bins),
        "by_size": by_size(truth, matches) if truth.sizes_known else {},
        "by_object_count": by_object_count(truth, detections, matches),
        "by_rank": by_rank(detections, matches),
        "f1_against_threshold": f1_curve(detections.scores_D, ranked, objects),
        "reliability": reliability(detections.scores_D, ranked.hit_TD[0], counted_D) if calibrated else None,
        "errors": error_costs(truth, detections, ranked) if np.any(objects) else {},
        "confusion": confusion(truth, detections, evaluation.matches_any_label),
    }
