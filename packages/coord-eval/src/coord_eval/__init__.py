"""Parse the boxes that a vision-language model wrote as text and score them as COCO does."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coord_codec import InputError
    from coord_codec.images import ImageError, ImageFacts, decode_image, image_facts, to_rgb
    from coord_eval.boxes.detections import Detections
    from coord_eval.boxes.ground_truth import GroundTruth
    from coord_eval.calibration.calibration import Calibration, fit_calibration
    from coord_eval.comparison.compare import Comparison, compare
    from coord_eval.comparison.differences import Difference
    from coord_eval.comparison.training import TrainingCurves, training_curves
    from coord_eval.diagnosis.answers import diagnose
    from coord_eval.evaluation import Evaluation
    from coord_eval.fusion.choice import FusionChoice, FusionTrial, choose_fusion
    from coord_eval.fusion.ensemble import Ensemble, fuse_predictions
    from coord_eval.fusion.fuse import Fusion, fuse
    from coord_eval.intake.ground_truth import load_ground_truth
    from coord_eval.intake.objects import ScoredObject, scored_objects
    from coord_eval.labelling.export import to_coco_results, to_fiftyone, to_supervision, write_exports
    from coord_eval.metrics.ceiling import oracle_predictions
    from coord_eval.metrics.coco import COCO_KEYS
    from coord_eval.metrics.expressions import ExpressionScores, score_expression_files, score_expressions
    from coord_eval.metrics.lvis import LvisScores, score_lvis
    from coord_eval.metrics.metric import Figure, Metric, ratio_over_images
    from coord_eval.metrics.metric_table import METRICS, figure_of, register_metric
    from coord_eval.metrics.thresholds import Threshold, ThresholdCurve, threshold_curve
    from coord_eval.page_options import ReportSection
    from coord_eval.parse.answer import DROP_REASONS, Answer, Drop, ParsedObject
    from coord_eval.parse.formats import FORMATS, TextFormat, register_format
    from coord_eval.parse.parser import parse_answer
    from coord_eval.parts import merge
    from coord_eval.report.shown import Shown, show_metric
    from coord_eval.resampling.bootstrap import Resamples, resample
    from coord_eval.scoring import score
    from coord_eval.settings import (
        SCORE_SOURCES,
        AnswerSettings,
        CeilingSettings,
        CocoParams,
        LabelSettings,
        ReportSettings,
    )

# Modules are imported on first use, so that `coord-eval --help` and the parser do not load NumPy.
_MODULES = {
    "coord_codec": ("InputError",),
    "coord_eval.comparison.compare": ("Comparison", "compare"),
    "coord_eval.comparison.differences": ("Difference",),
    "coord_eval.comparison.training": ("TrainingCurves", "training_curves"),
    "coord_eval.fusion.fuse": ("Fusion", "fuse"),
    "coord_eval.fusion.choice": ("FusionChoice", "FusionTrial", "choose_fusion"),
    "coord_eval.fusion.ensemble": ("Ensemble", "fuse_predictions"),
    "coord_eval.calibration.calibration": ("Calibration", "fit_calibration"),
    "coord_eval.metrics.thresholds": ("Threshold", "ThresholdCurve", "threshold_curve"),
    "coord_eval.boxes.ground_truth": ("GroundTruth",),
    "coord_eval.intake.ground_truth": ("load_ground_truth",),
    "coord_eval.boxes.detections": ("Detections",),
    "coord_eval.labelling.export": ("to_coco_results", "to_fiftyone", "to_supervision", "write_exports"),
    "coord_codec.images": ("ImageError", "ImageFacts", "decode_image", "image_facts", "to_rgb"),
    "coord_eval.resampling.bootstrap": ("Resamples", "resample"),
    "coord_eval.metrics.coco": ("COCO_KEYS",),
    "coord_eval.intake.objects": ("ScoredObject", "scored_objects"),
    "coord_eval.parse.answer": ("DROP_REASONS", "Answer", "Drop", "ParsedObject"),
    "coord_eval.parse.formats": ("FORMATS", "TextFormat", "register_format"),
    "coord_eval.parse.parser": ("parse_answer",),
    "coord_eval.page_options": ("ReportSection",),
    "coord_eval.scoring": ("score",),
    "coord_eval.settings": (
        "SCORE_SOURCES",
        "AnswerSettings",
        "CeilingSettings",
        "CocoParams",
        "LabelSettings",
        "ReportSettings",
    ),
    "coord_eval.parts": ("merge",),
    "coord_eval.metrics.ceiling": ("oracle_predictions",),
    "coord_eval.evaluation": ("Evaluation",),
    "coord_eval.metrics.metric_table": ("METRICS", "figure_of", "register_metric"),
    "coord_eval.metrics.metric": ("Figure", "Metric", "ratio_over_images"),
    "coord_eval.report.shown": ("Shown", "show_metric"),
    "coord_eval.diagnosis.answers": ("diagnose",),
    "coord_eval.metrics.lvis": ("LvisScores", "score_lvis"),
    "coord_eval.metrics.expressions": ("ExpressionScores", "score_expression_files", "score_expressions"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "COCO_KEYS",
    "DROP_REASONS",
    "FORMATS",
    "METRICS",
    "SCORE_SOURCES",
    "Answer",
    "AnswerSettings",
    "Calibration",
    "CeilingSettings",
    "CocoParams",
    "Comparison",
    "Detections",
    "Difference",
    "Drop",
    "Ensemble",
    "Evaluation",
    "ExpressionScores",
    "Figure",
    "Fusion",
    "FusionChoice",
    "FusionTrial",
    "GroundTruth",
    "ImageError",
    "ImageFacts",
    "InputError",
    "LabelSettings",
    "LvisScores",
    "Metric",
    "ParsedObject",
    "ReportSection",
    "ReportSettings",
    "Resamples",
    "ScoredObject",
    "Shown",
    "TextFormat",
    "Threshold",
    "ThresholdCurve",
    "TrainingCurves",
    "choose_fusion",
    "compare",
    "decode_image",
    "diagnose",
    "figure_of",
    "fit_calibration",
    "fuse",
    "fuse_predictions",
    "image_facts",
    "load_ground_truth",
    "merge",
    "oracle_predictions",
    "parse_answer",
    "ratio_over_images",
    "register_format",
    "register_metric",
    "resample",
    "score",
    "score_expression_files",
    "score_expressions",
    "score_lvis",
    "scored_objects",
    "show_metric",
    "threshold_curve",
    "to_coco_results",
    "to_fiftyone",
    "to_rgb",
    "to_supervision",
    "training_curves",
    "write_exports",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # slow to import

        return version("coord-eval")
    if name not in _HOME:
        from coord_codec.other_words import missing_name

        raise missing_name(__name__, name, __all__)
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
