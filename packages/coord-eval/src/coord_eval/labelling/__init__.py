"""Annotation files of labelling tools, for records of boxes and shapes: pre-annotations for a person to correct."""

from coord_eval.labelling.file_names import places_of
from coord_eval.labelling.formats import (
    EXPORTS,
    Records,
    coco_annotations,
    coco_results,
    fiftyone_samples,
    labelstudio_prediction,
    labelstudio_tasks,
)
from coord_eval.labelling.objects import DetectedObject, one_line

__all__ = [
    "EXPORTS",
    "DetectedObject",
    "Records",
    "coco_annotations",
    "coco_results",
    "fiftyone_samples",
    "labelstudio_prediction",
    "labelstudio_tasks",
    "one_line",
    "places_of",
]
