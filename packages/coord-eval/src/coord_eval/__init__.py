"""Read the boxes that a language model wrote and score them the COCO way."""

from coord_eval.answer import DROP_REASONS, Answer, Drop, ParsedObject
from coord_eval.bootstrap import Resamples, resample
from coord_eval.coco import COCO_KEYS
from coord_eval.comparison import Comparison, Difference, compare
from coord_eval.detections import Detections
from coord_eval.errors import InputError
from coord_eval.evaluation import Evaluation
from coord_eval.exporting import to_coco_results, to_fiftyone, to_supervision, write_exports
from coord_eval.expressions import ExpressionScores, score_expression_files, score_expressions
from coord_eval.lvis import LvisScores, score_lvis
from coord_eval.parsing import FORMATS, parse_answer
from coord_eval.ranking import SCORE_SOURCES
from coord_eval.report import ReportSection
from coord_eval.scoring import oracle_predictions, score
from coord_eval.truth import GroundTruth
from coord_eval.truth_files import load_ground_truth

__all__ = [
    "COCO_KEYS",
    "DROP_REASONS",
    "FORMATS",
    "SCORE_SOURCES",
    "Answer",
    "Comparison",
    "Detections",
    "Difference",
    "Drop",
    "Evaluation",
    "ExpressionScores",
    "GroundTruth",
    "InputError",
    "LvisScores",
    "ParsedObject",
    "ReportSection",
    "Resamples",
    "compare",
    "load_ground_truth",
    "oracle_predictions",
    "parse_answer",
    "resample",
    "score",
    "score_expression_files",
    "score_expressions",
    "score_lvis",
    "to_coco_results",
    "to_fiftyone",
    "to_supervision",
    "write_exports",
]
