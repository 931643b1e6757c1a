"""Average precision of shapes as in COCO for masks and keypoints: the matching of boxes with another similarity.

The ceiling is the score of the ground truth itself, simplified and quantised as in a target text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec import CoordGrid, Geometry, geometry_of
from coord_codec.boxes import SmallBoxError
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.match.matching import AREAS, ShapePairs, rank, ranked_matches_by_area
from coord_eval.match.overlaps import Pairs
from coord_eval.metrics.coco import ApTable, mean_present

if TYPE_CHECKING:
    from coord_eval.shapes.similarity import Points, Similarity


def score_shapes(
    truth: GroundTruth, detections: Detections, geometry: str | Geometry, grid: CoordGrid
) -> tuple[dict[str, Any], ShapePairs | None]:
    """Score the shapes of the answers.

    Args:
        truth: ground truth with shapes
        detections: detections with shapes
        geometry: the geometry of both
        grid: grid that quantises the ceiling

    Returns:
        Scores and pairs; empty and None for boxes. The scores are `geometry`, `measure`, `objects`, `without_shape`
        (number of detections without a shape), `mean` (mean similarity of objects to the matched shape, 0 for missed
        ones), `AP` with `AP50` and `AP75` (for points `AP@.01`, `AP@.02` and `AP@.05`), and `ceiling` with the same
        scores and the number of `simplified` outlines, which results lists, whose shapes pycocotools scores, have not.
    """
    kind = geometry_of(geometry)
    if truth.stated_N is not None:
        from coord_eval.shapes.coco_shapes import score_coco_shapes

        return score_coco_shapes(truth, detections, kind.name)
    if kind.is_box or truth.shapes is None:
        return {}, None
    from coord_eval.shapes.similarity import TrueShapes, similarity_of  # pycocotools, which boxes do without

    objects = [n for n, shape in enumerate(truth.shapes) if shape is not None]
    shapes = [shape for shape in truth.shapes if shape is not None]
    own = truth.take(np.array(objects, np.int64))
    sizes = [tuple(size) for size in own.sizes_I2[own.image_N].tolist()]
    measure = similarity_of(kind)
    true = [_in_pixels(kind, shape.coordinates, size) for shape, size in zip(shapes, sizes, strict=True)]
    labelled = [np.array([v > 0 for v in s.visibility] or [True] * len(p)) for s, p in zip(shapes, true, strict=True)]

    def compare(found_D: Sequence[Points], rows: Sequence[int]) -> np.ndarray:
        """Return the similarity [D, G] of shapes to objects of the same image."""
        points_G, labelled_G = [true[n] for n in rows], [labelled[n] for n in rows]
        return measure.compare(found_D, TrueShapes(points_G, labelled_G, own.area_N[list(rows)], sizes[rows[0]]))

    known_D = detections.category_D < len(truth.categories)
    rows = [d for d, points in enumerate(detections.shapes) if points and known_D[d]]
    scores, pairs = _scored(own, detections.take(np.array(rows, np.int64)), measure, compare)
    encoded, written, simplified = [], [], 0
    for n, (shape, size) in enumerate(zip(shapes, sizes, strict=True)):
        try:
            coordinates = kind.written(shape.coordinates, grid)
        except SmallBoxError:
            continue
        simplified += len(coordinates) < len(shape.coordinates)
        encoded.append(_in_pixels(kind, tuple(grid.dequantize(grid.quantize(c)) for c in coordinates), size))
        written.append(n)
    none_D4, ones_D = np.zeros((len(written), 4)), np.ones(len(written))
    columns = (own.image_N[written], own.category_N[written], none_D4, ones_D, np.zeros(len(written)))
    answered = Detections.of(own, *columns, shapes=encoded)
    ceiling, _ = _scored(own, answered, measure, compare)
    own_similarity = sum(float(compare([points], [n])[0, 0]) for points, n in zip(encoded, written, strict=True))
    found = ShapePairs(np.zeros(len(detections)), np.zeros(len(truth.image_N)))
    found.similarity_D[np.array(rows, np.int64)[pairs.det_P]] = pairs.iou_P
    found.similarity_N[np.array(objects, np.int64)[pairs.object_P]] = pairs.iou_P
    return {
        "geometry": kind.name,
        "measure": measure.about,
        "objects": len(objects),
        "without_shape": len(detections) - len([points for points in detections.shapes if points]),
        **scores,
        "ceiling": {**ceiling, "mean": own_similarity / max(len(objects), 1), "simplified": simplified},
    }, found


def _in_pixels(kind: Geometry, coordinates: tuple[float, ...], size: Sequence[float]) -> list[tuple[float, float]]:
    return [(x * size[0], y * size[1]) for x, y in kind.outline(coordinates)]


def _scored(
    truth: GroundTruth,
    found: Detections,
    measure: Similarity,
    compare: Callable[[Sequence[Points], Sequence[int]], np.ndarray],
) -> tuple[dict[str, float], Pairs]:
    """Return average precision and mean similarity, and the pairs that are matched at the first threshold."""
    objects: dict[tuple[int, int], list[int]] = {}
    for n, key in enumerate(zip(truth.image_N.tolist(), truth.category_N.tolist(), strict=True)):
        objects.setdefault(key, []).append(n)
    answers: dict[tuple[int, int], list[int]] = {}
    for d, key in enumerate(zip(found.image_D.tolist(), found.category_D.tolist(), strict=True)):
        answers.setdefault(key, []).append(d)
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    for key in answers.keys() & objects.keys():
        own, true = answers[key], objects[key]
        similarity_DG = compare([found.shapes[d] for d in own], true)
        parts.append((np.repeat(own, len(true)), np.tile(true, len(own)), similarity_DG.ravel()))
    pairs = Pairs(*map(np.concatenate, zip(*parts, strict=True)))
    near = rank(truth, found, pairs.take(pairs.iou_P >= min(measure.thresholds)))
    (matches,) = ranked_matches_by_area(truth, found, measure.thresholds, areas=AREAS[:1], ranking=near)
    ap_TK = ApTable(truth, found, matches).average_precision()[0]
    matched = pairs.take(matches.object_D[pairs.det_P] == pairs.object_P)
    single = {name: mean_present(ap_TK[t]) for name, t in measure.names.items()}
    mean = float(matched.iou_P.sum()) / max(len(truth.image_N), 1)
    return {"AP": mean_present(ap_TK), **single, "mean": mean}, matched
