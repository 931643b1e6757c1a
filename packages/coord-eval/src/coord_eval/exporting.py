"""The detections for other tools."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_eval.errors import InputError
from coord_eval.evaluation import Evaluation
from coord_eval.image_scores import image_table
from coord_eval.writing import write_text

if TYPE_CHECKING:
    import supervision


def to_coco_results(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return a COCO results list: what ``COCO.loadRes`` and FiftyOne's ``add_coco_labels`` read.

    Boxes with unknown labels have no category id and are left out; the evaluation's counts tell how many.
    """
    truth, detections = evaluation.truth, evaluation.detections
    columns = zip(
        detections.image_D.tolist(),
        detections.category_D.tolist(),
        detections.boxes_D4.tolist(),
        detections.scores_D.tolist(),
        strict=True,
    )
    return [
        {
            "image_id": truth.image_ids[image],
            "category_id": truth.category_ids[category],
            "bbox": box,
            "score": score,
        }
        for image, category, box, score in columns
        if category < len(truth.categories)
    ]


def to_supervision(evaluation: Evaluation) -> dict[str, supervision.Detections]:
    """Return one ``supervision.Detections`` for each file name.

    ``class_id`` is the index of the label, unknown labels from the number of labels on; ``data["class_name"]`` has
    the words. Needs the extra ``supervision``.

    Raises:
        InputError: When supervision is not installed.
    """
    try:
        import supervision as sv
    except ImportError as error:
        raise InputError("supervision is not installed; pip install coord-eval[supervision]") from error
    truth, detections = evaluation.truth, evaluation.detections
    names = np.array([*truth.categories, *detections.unknown], dtype=object)
    result = {}
    for image, name in enumerate(truth.file_names):
        rows = np.nonzero(detections.image_D == image)[0]
        if not len(rows):
            result[name] = sv.Detections.empty()
            continue
        x, y, w, h = detections.boxes_D4[rows].T
        labels = detections.category_D[rows]
        result[name] = sv.Detections(
            xyxy=np.stack([x, y, x + w, y + h], axis=1),
            confidence=detections.scores_D[rows],
            class_id=labels,
            data={"class_name": names[labels].astype(str)},
        )
    return result


def to_fiftyone(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return a record for each picture in the shape of FiftyOne's ``Detections`` labels.

    ``{"filepath", "detections": [{"label", "bounding_box": [x, y, width, height] in [0, 1], "confidence"}]}``;
    ``fo.Detection(**item)`` takes each item as it is, unknown labels included.

    Raises:
        InputError: When a picture has no size to divide by.
    """
    truth, detections = evaluation.truth, evaluation.detections
    if not np.isfinite(truth.sizes_I2).all():
        raise InputError("fiftyone: the ground truth lacks picture sizes, and FiftyOne wants boxes in [0, 1]")
    names = [*truth.categories, *detections.unknown]
    records = [{"filepath": name, "detections": []} for name in truth.file_names]
    unit_D4 = detections.boxes_D4 / np.tile(truth.sizes_I2, 2)[detections.image_D]
    for d, image in enumerate(detections.image_D.tolist()):
        records[image]["detections"].append(
            {
                "label": names[detections.category_D[d]],
                "bounding_box": unit_D4[d].tolist(),
                "confidence": float(detections.scores_D[d]),
            }
        )
    return records


def write_exports(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write ``images.csv``, ``classes.csv``, ``coco_results.json`` and ``fiftyone.json`` into a folder.

    Raises:
        OSError: When the folder cannot be written.
        InputError: When the ground truth lacks picture sizes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "images.csv": _csv(image_table(evaluation)),
        "classes.csv": _csv([{"class": name, **row} for name, row in evaluation.per_class.items()]),
        "coco_results.json": json.dumps(to_coco_results(evaluation)) + "\n",
        "fiftyone.json": json.dumps(to_fiftyone(evaluation)) + "\n",
    }
    for name, text in contents.items():
        write_text(folder / name, text)
    return [folder / name for name in contents]


def _csv(rows: list[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    if rows:
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return buffer.getvalue()


def _cell(value: object) -> object:
    """Keep a spreadsheet from running a label or file name as a formula."""
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )
