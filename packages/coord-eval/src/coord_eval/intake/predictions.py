"""Predictions of a model, text answers or boxes, as files and objects state them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.objects_as_records import records_of
from coord_eval.intake.prediction_files import records_in_file
from coord_eval.intake.records import Loaded

PredictionSource = str | Path | Iterable[Mapping[str, Any]] | Mapping[Any, Any]
"""A path, the records that such a file contains, a table of them, or `{image_id: text}`."""


def load_predictions(predictions: PredictionSource, in_order_of: GroundTruth | None = None) -> Loaded:
    """Read predictions from a file or an object; answers that name no image are in the order of a ground truth.

    A file is `predictions.jsonl`, JSON lines of COCO results, a JSON file with a list of either, with a COCO data set
    whose annotations have scores, or with `{image_id: text}`, a table (`.csv`, `.parquet`), or `-` for JSON lines from
    standard input. A folder is one of label files, as `read_text_files` reads it, and a `.txt` a file of MOT results.

    An object is a list of such records, which are COCO results if they have a `bbox` and no `text`, a pandas table,
    pycocotools' `COCO` with scores, a COCO data set with scores, `{image_id: text}`, supervision's
    `[(image_id, Detections), ...]`, torchmetrics' dictionaries or the results of a `Detector`; boxes without a
    confidence get 1. An empty list is an empty results list.

    Raises:
        InputError: naming file, record and field; or numbers of answers and images differ
    """
    if isinstance(predictions, str | Path):
        records = records_in_file(predictions)
    else:
        records = records_of(predictions, "predictions")
    return records.loaded(None if in_order_of is None else in_order_of.ids_in_order)
