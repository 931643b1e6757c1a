"""Average precision of shapes as in COCO for masks and keypoints: pycocotools' matching with another similarity.

The ceiling is the score of the ground truth itself, simplified and quantised as in a target text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coord_codec import CoordGrid, Geometry
from coord_codec.boxes import SmallBoxError
from coord_eval.boxes.detections import Detections
from coord_eval.intake.ground_truth import GroundTruth
from coord_eval.match.matching import ShapePairs
from coord_eval.metrics.coco import indexed, mean_present
from coord_eval.metrics.pycoco import QuietCOCO, QuietCOCOeval
from coord_eval.shapes.similarity import Points, Similarity, TrueShapes, similarity_of


def score_shapes(
    truth: GroundTruth, detections: Detections, kind: Geometry, grid: CoordGrid
) -> tuple[dict[str, Any], ShapePairs | None]:
    """Score the shapes of the answers.

    Args:
        truth: ground truth with shapes
        detections: detections with shapes
        kind: the geometry of both
        grid: grid that quantises the ceiling

    Returns:
        Scores and pairs; empty and None for boxes. The scores are `geometry`, `measure`, `objects`, `without_shape`
        (number of detections without a shape), `mean` (mean similarity of objects to the matched shape, 0 for missed
        ones), `AP` with `AP50` and `AP75` (for points `AP@.01`, `AP@.02` and `AP@.05`), and `ceiling` with the same
        scores and the number of `simplified` outlines.
    """
    if kind.is_box or truth.shapes is None:
        return {}, None
    objects = [n for n, shape in enumerate(truth.shapes) if shape is not None]
    shapes = [shape for shape in truth.shapes if shape is not None]
    sizes = [tuple(truth.sizes_I2[truth.image_N[n]]) for n in objects]
    measure = similarity_of(kind)
    true = [_in_pixels(kind, shape.coordinates, size) for shape, size in zip(shapes, sizes, strict=True)]
    labelled = [np.array([v > 0 for v in s.visibility] or [True] * len(p)) for s, p in zip(shapes, true, strict=True)]
    index = {n: i for i, n in enumerate(objects)}
    table = _Table(truth, objects, true, labelled, measure)
    known_D = detections.category_D < len(truth.categories)
    rows = [d for d, points in enumerate(detections.shapes) if points and known_D[d]]
    scores, matched = table.score(
        [detections.shapes[d] for d in rows],
        detections.image_D[rows],
        detections.category_D[rows],
        detections.scores_D[rows],
    )
    encoded, encoded_objects, simplified = [], [], 0
    for n, shape, size in zip(objects, shapes, sizes, strict=True):
        try:
            coordinates = kind.written(shape.coordinates, grid)
        except SmallBoxError:
            continue
        simplified += len(coordinates) < len(shape.coordinates)
        bins = tuple(grid.dequantize(grid.quantize(c)) for c in coordinates)
        encoded.append(_in_pixels(kind, bins, size))
        encoded_objects.append(n)
    encoded_N = np.array(encoded_objects, dtype=np.int64)
    ceiling, _ = table.score(encoded, truth.image_N[encoded_N], truth.category_N[encoded_N], np.ones(len(encoded_N)))
    similarities = table.pairwise(encoded, [index[n] for n in encoded_objects])
    pairs = ShapePairs(np.zeros(len(detections)), np.zeros(len(truth.image_N)))
    for d, i, similarity in matched:
        pairs.similarity_D[rows[d]] = pairs.similarity_N[objects[i]] = similarity
    return {
        "geometry": kind.name,
        "measure": measure.about,
        "objects": len(objects),
        "without_shape": len(detections) - len([points for points in detections.shapes if points]),
        **scores,
        "ceiling": {**ceiling, "mean": float(np.sum(similarities) / max(len(objects), 1)), "simplified": simplified},
    }, pairs


def _in_pixels(kind: Geometry, coordinates: tuple[float, ...], size: Sequence[float]) -> list[tuple[float, float]]:
    return [(x * size[0], y * size[1]) for x, y in kind.outline(coordinates)]


class _Table:
    """The ground-truth shapes, against which predicted ones are scored."""

    def __init__(
        self,
        truth: GroundTruth,
        objects: list[int],
        true: Sequence[Points],
        labelled: list[np.ndarray],
        measure: Similarity,
    ) -> None:
        self.truth, self.true, self.labelled, self.measure = truth, true, labelled, measure
        rows = [(truth.image_N[n], truth.category_N[n], truth.area_N[n], i) for i, n in enumerate(objects)]
        self.area = np.array([row[2] for row in rows])
        self.image = [int(row[0]) for row in rows]
        self.annotations = [_record(*row) for row in rows]

    def compare(self, predicted: Sequence[Points], indices: Sequence[int], image: int) -> np.ndarray:
        """Return the similarity [D, G] of predicted shapes to the ground-truth shapes with these indices."""
        width, height = map(float, self.truth.sizes_I2[image])
        true = TrueShapes(
            [self.true[i] for i in indices],
            [self.labelled[i] for i in indices],
            self.area[list(indices)],
            (width, height),
        )
        return self.measure.compare(predicted, true)

    def pairwise(self, predicted: Sequence[Points], indices: Sequence[int]) -> list[float]:
        """Return the similarity of each predicted shape to the ground-truth shape that `indices` assigns to it."""
        pairs = zip(predicted, indices, strict=True)
        return [float(self.compare([points], [i], self.image[i])[0, 0]) for points, i in pairs]

    def score(
        self, predicted: Sequence[Points], image_D: np.ndarray, category_D: np.ndarray, scores_D: np.ndarray
    ) -> tuple[dict[str, float], list[tuple[int, int, float]]]:
        """Return average precision and mean similarity, and the pairs that pycocotools matched."""
        detected = [
            {**_record(image, category, 1.0, d), "score": float(score)}
            for d, (image, category, score) in enumerate(zip(image_D, category_D, scores_D, strict=True))
        ]
        evaluator = _Evaluator(*(indexed(QuietCOCO, self.truth, rows) for rows in (self.annotations, detected)), "bbox")
        evaluator.compare = lambda dets, objects, image: self.compare([predicted[d] for d in dets], objects, image)
        evaluator.params.iouThrs = np.array(self.measure.thresholds)
        evaluator.params.areaRng, evaluator.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluator.evaluate()
        evaluator.accumulate()
        precision = evaluator.eval["precision"][:, :, :, 0, -1]
        single = {name: mean_present(precision[t]) for name, t in self.measure.names.items()}
        scores = {"AP": mean_present(precision), **single}
        pairs = list(evaluator.pairs())
        mean = sum(similarity for *_, similarity in pairs) / max(len(self.annotations), 1)
        return {**scores, "mean": mean}, pairs


def _record(image: Any, category: Any, area: Any, number: int) -> dict[str, Any]:
    ids = {"id": number + 1, "image_id": int(image) + 1, "category_id": int(category) + 1}
    return {**ids, "area": float(area), "iscrowd": 0, "number": number}


class _Evaluator(QuietCOCOeval):
    """pycocotools' evaluation with a similarity function of ours."""

    compare: Any

    def computeIoU(self, imgId: int, catId: int) -> Any:  # noqa: N802  (pycocotools' names)
        objects, dets = self._gts[imgId, catId], self._dts[imgId, catId]
        if not objects or not dets:
            return []
        order = np.argsort([-d["score"] for d in dets], kind="mergesort")[: self.params.maxDets[-1]]
        return self.compare([dets[i]["number"] for i in order], [o["number"] for o in objects], imgId - 1)

    def pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield the indices of detection and object and the similarity of each pair at the lowest threshold."""
        for result in self.evalImgs:
            if result is None:
                continue
            key = result["image_id"], result["category_id"]
            ious, ids = self.ious[key], [o["id"] for o in self._gts[key]]
            number = {o["id"]: o["number"] for o in self._gts[key]}
            row_of = {d: i for i, d in enumerate(result["dtIds"])}
            for g, det in enumerate(result["gtMatches"][0]):
                if det:
                    truth = result["gtIds"][g]
                    similarity = float(ious[row_of[int(det)]][ids.index(truth)])
                    yield int(det) - 1, number[truth], similarity
