"""A data set in which all labels are one, for localisation alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coord_eval.detections import Detections
from coord_eval.truth import GroundTruth

_NAME = "(any label)"


def one_label(truth: GroundTruth, detections: Detections) -> tuple[GroundTruth, Detections]:
    """Return objects and answers with every label, unknown ones included, turned into the same one.

    Scored as usual the result has the numbers of COCO's ``useCats=0``. Among equal scores and equal overlaps order
    decides; within a picture it is that of the labels, as COCO has it, unknown ones last.
    """
    by_N = np.argsort(truth.category_N, kind="stable")
    merged = replace(
        truth,
        categories=(_NAME,),
        category_ids=(1,),
        image_N=truth.image_N[by_N],
        category_N=np.zeros(len(by_N), np.int64),
        boxes_N4=truth.boxes_N4[by_N],
        area_N=truth.area_N[by_N],
        crowd_N=truth.crowd_N[by_N],
    )
    by_D = np.argsort(detections.category_D, kind="stable")
    boxes = replace(detections.take(by_D), category_D=np.zeros(len(by_D), np.int64), unknown=())
    return merged, boxes
