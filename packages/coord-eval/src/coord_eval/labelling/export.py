"""Exports detections for other tools: COCO results, supervision, FiftyOne, CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec import geometry_of
from coord_codec.box_transforms import LAYOUTS
from coord_codec.files import InputError, write_text
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.stated_shapes import SHAPES
from coord_eval.labelling import fiftyone_samples
from coord_eval.metrics.detection import image_table
from coord_eval.metrics.figures import Figures

if TYPE_CHECKING:
    import supervision


def _in_pixels(evaluation: Figures) -> GroundTruth:
    """Return the ground truth; raise an InputError if its boxes are not in pixels, but fractions of unknown sizes."""
    if not evaluation.truth.sizes_known:
        raise InputError("export: the ground truth states no image sizes, so boxes in pixels are unknown; add them")
    return evaluation.truth


def to_coco_results(evaluation: Figures) -> list[dict[str, Any]]:
    """Return a COCO results list, as `COCO.loadRes` and FiftyOne's `add_coco_labels` read it.

    Shapes are its `segmentation` or `keypoints`; those of a results list stay as it states them.

    Boxes with unknown labels have no category id and are left out; the evaluation's `counts` contain their number.

    Raises:
        InputError: if the ground truth states no image sizes, so that boxes in pixels are unknown
    """
    ground_truth, detections = _in_pixels(evaluation), evaluation.detections
    image_ids, category_ids = ground_truth.image_ids, ground_truth.category_ids
    columns = (detections.image_D, detections.category_D, detections.boxes_D4, detections.scores_D)
    rows = zip(*(column.tolist() for column in columns), _coco_shapes(evaluation), strict=True)
    return [
        {"image_id": image_ids[image], "category_id": category_ids[category], "bbox": box, "score": score, **shape}
        for image, category, box, score, shape in rows
        if category < len(category_ids)
    ]


def _coco_shapes(evaluation: Figures) -> Iterator[Mapping[str, Any]]:
    """Yield the COCO fields of the shape of each detection; nothing for a box."""
    found = evaluation.detections
    if found.stated_D is not None:
        for shape in found.stated_D:
            own = {key: value for key, value in (shape or {}).items() if key in SHAPES}
            if isinstance(mask := own.get("segmentation"), Mapping) and isinstance(mask["counts"], bytes):
                own["segmentation"] = {**mask, "counts": mask["counts"].decode()}
            yield own
        return
    closed = bool(found.shapes) and geometry_of(evaluation.shapes["geometry"]).closed
    for points in found.shapes or ((),) * len(found):
        if not points:
            yield {}
        elif closed:
            yield {"segmentation": [[value for point in points for value in point]]}
        else:
            yield {"keypoints": [value for x, y in points for value in (x, y, 2 if (x, y) != (0, 0) else 0)]}


def to_supervision(evaluation: Figures) -> dict[str, supervision.Detections]:
    """Return one `supervision.Detections` for each file name; requires the extra `supervision`.

    `class_id` is the index of the label, with unknown labels after those of the data set; `data["class_name"]` holds
    the labels as text.

    Raises:
        InputError: if supervision is not installed, or if the ground truth states no image sizes
    """
    try:
        import supervision as sv
    except ImportError as error:
        raise InputError("supervision is not installed; pip install supervision") from error
    ground_truth, detections = _in_pixels(evaluation), evaluation.detections
    names = np.array(detections.table.labels, dtype=object)
    result = {}
    for image, name in enumerate(ground_truth.file_names):
        rows = np.nonzero(detections.image_D == image)[0]
        labels = detections.category_D[rows]
        result[name] = sv.Detections.empty()
        if len(rows):
            result[name] = sv.Detections(
                xyxy=LAYOUTS["xywh"](detections.boxes_D4[rows]),
                confidence=detections.scores_D[rows],
                class_id=labels,
                data={"class_name": names[labels].astype(str)},
            )
    return result


def to_fiftyone(evaluation: Figures) -> list[dict[str, Any]]:
    """Return a record for each image, `{"filepath", "detections"}`, as `labelling.fiftyone_samples` writes them.

    `fo.Detection(**item)` accepts each detection as it is, unknown labels included.

    Raises:
        InputError: if the size of an image is unknown
    """
    ground_truth, detections = evaluation.truth, evaluation.detections
    if not np.isfinite(ground_truth.sizes_I2).all():
        raise InputError("fiftyone: the ground truth lacks image sizes, and FiftyOne needs boxes in [0, 1]")
    names, corners_D4 = detections.table.labels, LAYOUTS["xywh"](detections.boxes_D4)
    sizes = zip(ground_truth.file_names, ground_truth.sizes_I2.tolist(), strict=True)
    records: list[dict[str, Any]] = [{"image": name, "width": w, "height": h, "objects": []} for name, (w, h) in sizes]
    columns = (detections.image_D, detections.category_D, corners_D4, detections.scores_D)
    for image, category, box, score in zip(*(column.tolist() for column in columns), strict=True):
        records[image]["objects"].append({"desc": names[category], "bbox_xyxy": box, "score": score})
    return fiftyone_samples(records)


def write_exports(evaluation: Figures, folder: str | Path) -> list[Path]:
    """Write `images.csv`, `classes.csv`, `coco_results.json` and `fiftyone.json` into a folder.

    Raises:
        OSError: if the folder cannot be written
        InputError: if the ground truth lacks image sizes
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    images = image_table(evaluation)
    contents = {
        "images.csv": _csv([dict(zip(images, row, strict=True)) for row in zip(*images.values(), strict=True)]),
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
    """Escape text that a spreadsheet would evaluate as a formula, and replace NUL, which CSV cannot hold."""
    if not isinstance(value, str):
        return value
    value = value.replace("\0", "\ufffd")
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
