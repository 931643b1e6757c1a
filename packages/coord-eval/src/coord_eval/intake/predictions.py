"""Predictions of a model, text answers or boxes, as files and objects state them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coord_eval.intake.objects_as_records import records_of
from coord_eval.intake.prediction_files import records_in_file
from coord_eval.intake.records import ImageOrder, Loaded


def read_predictions(path: str | Path, order: ImageOrder = None) -> Loaded:
    """Read predictions from a file; with an order of images, answers that name none are those of these images.

    It is `predictions.jsonl`, JSON lines of COCO results, a JSON file with a list of either, with a COCO data set whose
    annotations have scores, or with `{image_id: text}`, a table (`.csv`, `.parquet`), or `-` for JSON lines from
    standard input. A folder is one of label files, as `read_text_files` reads it, and a `.txt` a file of MOT results.

    Raises:
        InputError: naming file, line and field
    """
    return records_in_file(path).loaded(order)


def from_records(
    records: Iterable[Mapping[str, Any]] | Mapping[Any, Any], source: str = "predictions", order: ImageOrder = None
) -> Loaded:
    """Turn dictionaries into predictions, or into COCO results if they have a `bbox` and no `text`.

    A pandas table, pycocotools' `COCO` with scores, a COCO data set with scores, `{image_id: text}`, supervision's
    `[(image_id, Detections), ...]`, torchmetrics' dictionaries and the results of a `Detector` are accepted too; boxes
    without a confidence get 1. An empty list is an empty results list.

    Raises:
        InputError: naming record and field
    """
    return records_of(records, source).loaded(order)
