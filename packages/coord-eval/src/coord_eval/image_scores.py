"""Figures of single pictures.

Shape legend: I images, D detections.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coord_eval.evaluation import Evaluation


def image_table(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return a row for each picture: objects, boxes, hits and F1 at IoU .5, mean IoU.

    F1 is 1 where nothing was there and nothing was answered. Crowd regions and boxes in them take no part.
    """
    truth, matches, images = evaluation.truth, evaluation.matches, len(evaluation.truth)
    regular_N = ~truth.crowd_N
    hit_D = matches.iou_D >= 0.5
    counted_D = hit_D | (matches.crowd_D < 0.5)
    objects_I = np.bincount(truth.image_N[regular_N], minlength=images)
    answered_I = np.bincount(evaluation.detections.image_D[counted_D], minlength=images)
    hits_I = np.bincount(evaluation.detections.image_D[hit_D], minlength=images)
    iou_I = np.bincount(truth.image_N[regular_N], matches.iou_N[regular_N], minlength=images)
    total_I = objects_I + answered_I
    f1_I = np.divide(2 * hits_I, total_I, out=np.ones(images), where=total_I > 0)
    mean_I = np.divide(iou_I, objects_I, out=np.zeros(images), where=objects_I > 0)
    columns = zip(truth.image_ids, truth.file_names, objects_I, answered_I, hits_I, f1_I, mean_I, strict=True)
    return [
        {
            "image_id": image_id,
            "image": name,
            "objects": int(objects),
            "answered": int(answered),
            "hits": int(hits),
            "f1": float(f1),
            "mean_iou": float(iou),
        }
        for image_id, name, objects, answered, hits, f1, iou in columns
    ]
