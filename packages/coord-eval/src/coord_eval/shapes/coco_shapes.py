"""Scores of masks and keypoints of a COCO results list, by pycocotools, whose figures they are to the last bit.

Shapes: D detections, N objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pycocotools import mask as masks

from coord_codec import InputError
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.match.matching import ShapePairs
from coord_eval.metrics.pycoco import QuietCOCO, QuietCOCOeval
from coord_eval.shapes.similarity import COCO_SIGMAS, OTHER_SIGMA

MEASURES: Mapping[str, tuple[str, str]] = {
    "polygon": ("segm", "IoU of masks (pycocotools, as COCO scores `segm`)"),
    "keypoints": ("keypoints", "object keypoint similarity (pycocotools, as COCO scores `keypoints`)"),
}
"""Kind of COCO's evaluation by geometry, and the measure in words."""
_KEYS = {
    "segm": ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"),
    "keypoints": ("AP", "AP50", "AP75", "APm", "APl", "AR", "AR50", "AR75", "ARm", "ARl"),
}


class _Matching(QuietCOCOeval):
    """The evaluation, which keeps the pairs of the first threshold."""

    def evaluateImg(self: Any, image: int, category: int, area: Any, limit: int) -> Any:  # noqa: N802
        """Evaluate an image, and keep its pairs if all sizes are asked for."""
        found = super().evaluateImg(image, category, area, limit)
        if found is not None and area == self.params.areaRng[0]:
            own = self.ious[image, category]
            places = {gt["id"]: n for n, gt in enumerate(self._gts[image, category])}
            for d, (det, object_) in enumerate(zip(found["dtIds"], found["dtMatches"][0], strict=True)):
                if object_:
                    self.matched.append((int(det), int(object_), float(own[d, places[int(object_)]])))
        return found


def score_coco_shapes(truth: GroundTruth, found: Detections, geometry: str) -> tuple[dict[str, Any], ShapePairs]:
    """Return the figures of COCO's `segm` or `keypoints` evaluation, and the pairs of its first threshold.

    Objects without an outline have that of their box, as have detections; those without keypoints are ignored, and
    detections without are not scored. The scores are named as those of `score_shapes`.

    Raises:
        InputError: sizes of images are unknown, masks are of another size, or numbers of keypoints differ
    """
    kind, measure = MEASURES[geometry]
    objects = _objects(truth, kind)
    count = max((len(row["keypoints"]) for row in objects), default=0) if kind == "keypoints" else 0
    if kind == "keypoints" and not count:
        raise InputError("ground truth: no object has keypoints, which geometry keypoints scores; use geometry box")
    boxes = _detections(truth, found, kind, count)
    try:
        run = _Matching(_indexed(truth, objects), _indexed(truth, boxes), kind)
        run.matched = []
        if count and count // 3 != len(COCO_SIGMAS):
            run.params.kpt_oks_sigmas = np.full(count // 3, OTHER_SIGMA)
        run.evaluate()
        run.summarize()
    except Exception as error:  # pycocotools raises what its C code does
        if isinstance(error, InputError):
            raise
        raise InputError(f"predictions: pycocotools cannot score these shapes: {error}") from error
    pairs = ShapePairs(np.zeros(len(found)), np.zeros(len(truth.image_N)), geometry)
    for d, n, similarity in run.matched:
        pairs.similarity_D[d - 1] = pairs.similarity_N[n - 1] = similarity
    stated = found.stated_D if found.stated_D is not None else np.full(len(found), None)
    field = "segmentation" if kind == "segm" else "keypoints"
    counted_N = ~truth.crowd_N
    return {
        "geometry": geometry,
        "measure": measure,
        "objects": int(counted_N.sum()),
        "without_shape": sum(shape is None or field not in shape for shape in stated),
        **dict(zip(_KEYS[kind], run.stats.tolist(), strict=True)),
        "mean": float(pairs.similarity_N[counted_N].sum()) / max(int(counted_N.sum()), 1),
    }, pairs


def _indexed(truth: GroundTruth, rows: list[dict[str, Any]]) -> Any:
    coco = QuietCOCO()
    sizes = truth.sizes_I2
    if not truth.sizes_known or np.isnan(sizes).any():
        raise InputError("ground truth: sizes of images are missing, without which masks cannot be drawn; add them")
    images = [{"id": i + 1, "width": int(w), "height": int(h)} for i, (w, h) in enumerate(sizes.tolist())]
    categories = [{"id": k + 1} for k in range(len(truth.categories))]
    coco.dataset = {"images": images, "categories": categories, "annotations": rows}
    coco.createIndex()
    return coco


def _objects(truth: GroundTruth, kind: str) -> list[dict[str, Any]]:
    stated = truth.stated_N if truth.stated_N is not None else np.full(len(truth.image_N), None)
    columns = (truth.image_N, truth.category_N, truth.boxes_N4, truth.area_N, truth.crowd_N.astype(int))
    rows = []
    for n, (image, category, box, area, crowd) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        own = stated[n] or {}
        row = {"id": n + 1, "image_id": image + 1, "category_id": category + 1, "bbox": box, "area": area}
        row |= {"iscrowd": crowd}
        if kind == "segm":
            row["segmentation"] = own.get("segmentation") or [_outline(box)]
        else:
            points = own.get("keypoints") or []
            row |= {"keypoints": points, "num_keypoints": own.get("num_keypoints", sum(v > 0 for v in points[2::3]))}
        rows.append(row)
    if kind == "keypoints":
        count = max((len(row["keypoints"]) for row in rows), default=0)
        for row in rows:
            row["keypoints"] = row["keypoints"] or [0] * count
    return rows


def _detections(truth: GroundTruth, found: Detections, kind: str, count: int) -> list[dict[str, Any]]:
    """Return the records of detections; `count` is the number of values of an object's keypoints."""
    if found.stated_D is None:
        return []
    columns = (found.image_D, found.category_D, found.boxes_D4, found.scores_D)
    rows = []
    for d, (image, category, box, score) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        own = found.stated_D[d] or {}
        if category >= len(truth.categories) or (kind == "keypoints" and "keypoints" not in own):
            continue
        row = {"id": d + 1, "image_id": image + 1, "category_id": category + 1, "bbox": box, "score": score}
        row["area"] = box[2] * box[3]
        width, height = truth.sizes_I2[image].tolist()
        if kind == "segm":
            row["segmentation"] = mask = own.get("segmentation") or [_outline(box)]
            if isinstance(mask, Mapping) and mask["size"] != [height, width]:
                found_size, size = (f"{w:g} x {h:g} pixels" for h, w in (mask["size"], (height, width)))
                raise InputError(
                    f"predictions: a mask of {found_size} for image {truth.image_ids[image]!r}, which has {size}"
                )
        else:
            row["keypoints"] = own["keypoints"]
            if len(row["keypoints"]) != count:
                numbers = f"{count // 3} keypoints, found {len(row['keypoints']) // 3}"
                raise InputError(f"predictions: an object of image {truth.image_ids[image]!r}: expected {numbers}")
        if "area" in own:  # no box is stated, so that the area is that of the shape
            row["area"] = _area(row["segmentation"], int(width), int(height)) if own["area"] is None else own["area"]
        rows.append(row)
    return rows


def _area(outlines: list[list[float]], width: int, height: int) -> float:
    return float(masks.area(masks.merge(masks.frPyObjects(outlines, height, width))))


def _outline(box: list[float]) -> list[float]:
    """Return the corners of a box in the order of pycocotools' `loadRes`."""
    x, y, width, height = box
    return [x, y, x, y + height, x + width, y + height, x + width, y]
