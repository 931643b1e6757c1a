"""Parse the boxes that a vision-language model wrote as text and score them as COCO does."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coord_codec import InputError
    from coord_codec.images import ImageError, ImageFacts, decode_image, image_facts, to_rgb
    from coord_eval.comparison import Comparison, Difference, compare
    from coord_eval.data.ground_truth import GroundTruth, load_ground_truth
    from coord_eval.data.predictions import Detections
    from coord_eval.evaluation import Evaluation, oracle_predictions, score
    from coord_eval.export import to_coco_results, to_fiftyone, to_supervision, write_exports
    from coord_eval.intake.ranking import SCORE_SOURCES
    from coord_eval.metrics.bootstrap import Resamples, resample
    from coord_eval.metrics.coco import COCO_KEYS
    from coord_eval.metrics.own import CocoParams
    from coord_eval.objects import ScoredObject, scored_objects
    from coord_eval.parse.answer import DROP_REASONS, Answer, Drop, ParsedObject
    from coord_eval.parse.formats import FORMATS, TextFormat, register_format
    from coord_eval.parse.parser import parse_answer
    from coord_eval.report.evaluation import ReportSection
    from coord_eval.suites.lvis import LvisScores, score_lvis
    from coord_eval.suites.refcoco import ExpressionScores, score_expression_files, score_expressions

# Modules are imported on first use, so that `coord-eval --help` and the parser do not load NumPy.
_MODULES = {
    "coord_codec": ("InputError",),
    "coord_eval.comparison": ("Comparison", "Difference", "compare"),
    "coord_eval.data.ground_truth": ("GroundTruth", "load_ground_truth"),
    "coord_eval.data.predictions": ("Detections",),
    "coord_eval.export": ("to_coco_results", "to_fiftyone", "to_supervision", "write_exports"),
    "coord_codec.images": ("ImageError", "ImageFacts", "decode_image", "image_facts", "to_rgb"),
    "coord_eval.intake.ranking": ("SCORE_SOURCES",),
    "coord_eval.metrics.bootstrap": ("Resamples", "resample"),
    "coord_eval.metrics.coco": ("COCO_KEYS",),
    "coord_eval.metrics.own": ("CocoParams",),
    "coord_eval.objects": ("ScoredObject", "scored_objects"),
    "coord_eval.parse.answer": ("DROP_REASONS", "Answer", "Drop", "ParsedObject"),
    "coord_eval.parse.formats": ("FORMATS", "TextFormat", "register_format"),
    "coord_eval.parse.parser": ("parse_answer",),
    "coord_eval.report.evaluation": ("ReportSection",),
    "coord_eval.evaluation": ("Evaluation", "oracle_predictions", "score"),
    "coord_eval.suites.lvis": ("LvisScores", "score_lvis"),
    "coord_eval.suites.refcoco": ("ExpressionScores", "score_expression_files", "score_expressions"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "COCO_KEYS",
    "DROP_REASONS",
    "FORMATS",
    "SCORE_SOURCES",
    "Answer",
    "CocoParams",
    "Comparison",
    "Detections",
    "Difference",
    "Drop",
    "Evaluation",
    "ExpressionScores",
    "GroundTruth",
    "ImageError",
    "ImageFacts",
    "InputError",
    "LvisScores",
    "ParsedObject",
    "ReportSection",
    "Resamples",
    "ScoredObject",
    "TextFormat",
    "compare",
    "decode_image",
    "image_facts",
    "load_ground_truth",
    "oracle_predictions",
    "parse_answer",
    "register_format",
    "resample",
    "score",
    "score_expression_files",
    "score_expressions",
    "score_lvis",
    "scored_objects",
    "to_coco_results",
    "to_fiftyone",
    "to_rgb",
    "to_supervision",
    "write_exports",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
