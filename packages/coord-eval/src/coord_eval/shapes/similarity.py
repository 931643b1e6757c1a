"""Similarity of shapes: IoU of masks, IoU of outlines, OKS of keypoints, distance of points.

`SIMILARITIES` is the table of measures that a geometry may name.

Shapes: D detections and G objects of one image and label; points in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from pycocotools import mask as masks
from pycocotools.cocoeval import Params

from coord_codec import Geometry, InputError

Points = Sequence[tuple[float, float]]

_SUBPIXELS = 8
"""Cells per pixel along each axis of a mask; pycocotools alone would round outlines to whole pixels."""
COCO_SIGMAS = Params(iouType="keypoints").kpt_oks_sigmas
"""OKS constants of COCO's 17 keypoints of a person."""
OTHER_SIGMA = 0.05
"""OKS constant of other keypoints, about the mean of COCO's."""


def mask_iou(found_D: Sequence[Points], true_G: Sequence[Points], size: tuple[float, float]) -> np.ndarray:
    """Return IoU [D, G] of the areas inside outlines, with pycocotools' masks.

    Args:
        found_D: predicted outlines
        true_G: ground-truth outlines
        size: width and height of the image in pixels

    Example:
        >>> square = [(0, 0), (8, 0), (8, 8), (0, 8)]
        >>> half = [(0, 0), (8, 0), (8, 4), (0, 4)]
        >>> mask_iou([half], [square, half], (10, 10)).tolist()
        [[0.5, 1.0]]
    """
    if not len(found_D) or not len(true_G):
        return np.zeros((len(found_D), len(true_G)))
    width, height = (round(side * _SUBPIXELS) for side in size)
    drawn = [
        masks.frPyObjects([[c * _SUBPIXELS for point in points for c in point] for points in shapes], height, width)
        for shapes in (found_D, true_G)
    ]
    iou: np.ndarray = np.asarray(masks.iou(*drawn, [0] * len(true_G))).reshape(len(found_D), len(true_G))
    return iou


def outline_iou(found_D: Sequence[Points], true_G: Sequence[Points]) -> np.ndarray:
    """Return IoU [D, G] of the areas inside outlines, exact up to rounding; 0 for an outline that intersects itself.

    Example:
        >>> diamond, square = [(1, 0), (2, 1), (1, 2), (0, 1)], [(0, 0), (2, 0), (2, 2), (0, 2)]
        >>> outline_iou([diamond], [square]).tolist()
        [[0.5]]

    Raises:
        InputError: shapely is not installed
    """
    try:
        import shapely
    except ImportError as error:
        raise InputError("outline_iou needs shapely, which is not installed: pip install shapely") from error
    iou = np.zeros((len(found_D), len(true_G)))
    predicted, true = ([shapely.Polygon(points) for points in shapes] for shapes in (found_D, true_G))
    for d, found in enumerate(predicted):
        for g, true_one in enumerate(true):
            if found.is_valid and true_one.is_valid and found.intersects(true_one):
                inner = found.intersection(true_one).area
                iou[d, g] = inner / (found.area + true_one.area - inner)
    return iou


def keypoint_similarity(
    found_D: Sequence[Points], true_G: Sequence[Points], seen_GP: np.ndarray, area_G: np.ndarray
) -> np.ndarray:
    """Return object keypoint similarity [D, G]: mean over labelled points of exp(-d² / (2 · area · (2σ)²)).

    That is COCO's OKS; it is 0 for detections with another number of points.

    Args:
        found_D: predicted points
        true_G: ground-truth points
        seen_GP: whether each ground-truth point is labelled
        area_G: areas of the objects in square pixels
    """
    similarity = np.zeros((len(found_D), len(true_G)))
    count = seen_GP.shape[1] if len(true_G) else 0
    sigmas = COCO_SIGMAS if count == len(COCO_SIGMAS) else np.full(count, OTHER_SIGMA)
    for d, points in enumerate(found_D):
        if len(points) != count:
            continue
        for g, other in enumerate(true_G):
            squared = ((np.array(points) - np.array(other)) ** 2).sum(axis=1)
            exponent = squared / (2 * sigmas) ** 2 / (area_G[g] + np.spacing(1)) / 2
            similarity[d, g] = np.exp(-exponent[seen_GP[g]]).mean()
    return similarity


def nearness(found_D: Sequence[Points], true_G: Sequence[Points], size: tuple[float, float]) -> np.ndarray:
    """Return 1 minus the distance [D, G] of single points as a fraction of the image's diagonal.

    Example:
        >>> nearness([[(0, 0)]], [[(3, 4)]], (6, 8)).tolist()
        [[0.5]]
    """
    predicted = np.array([points[0] for points in found_D]).reshape(-1, 1, 2)
    true = np.array([points[0] for points in true_G]).reshape(1, -1, 2)
    distance: np.ndarray = np.hypot(*np.moveaxis(predicted - true, -1, 0))
    return 1 - distance / float(np.hypot(*size))


@dataclass(frozen=True)
class TrueShapes:
    """Ground-truth shapes of one image that predicted shapes are compared with.

    Attributes:
        points_G: the points of each shape in pixels, as `Geometry.outline` gives them
        labelled_G: whether each of these points is labelled
        area_G: area of each object in square pixels
        size: width and height of the image in pixels
    """

    points_G: Sequence[Points]
    labelled_G: Sequence[np.ndarray]
    area_G: np.ndarray
    size: tuple[float, float]


@dataclass(frozen=True)
class Similarity:
    """A measure of how similar shapes are, between 0 and 1.

    Attributes:
        name: key in `SIMILARITIES`
        about: the measure in words, as `evaluation.json` and the report name it
        compare: takes the points of D predicted shapes and `TrueShapes`, returns their similarity [D, G]
        thresholds: lowest similarities of a hit, over which AP is averaged
        names: names of the AP at single thresholds, and their positions in `thresholds`
    """

    name: str
    about: str
    compare: Callable[[Sequence[Points], TrueShapes], np.ndarray]
    thresholds: tuple[float, ...] = tuple(Params(iouType="bbox").iouThrs.tolist())
    names: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"AP50": 0, "AP75": 5}))


def _oks(found_D: Sequence[Points], true: TrueShapes) -> np.ndarray:
    """Return OKS [D, G]; objects with different numbers of keypoints are compared one at a time."""
    columns = [
        keypoint_similarity(found_D, [points], labelled[None], area[None])
        for points, labelled, area in zip(true.points_G, true.labelled_G, true.area_G, strict=True)
    ]
    return np.concatenate(columns, axis=1) if columns else np.zeros((len(found_D), 0))


DISTANCES = (0.01, 0.02, 0.05)
"""Largest distances of a hit for points, as fractions of the image's diagonal."""
_ALL = (
    Similarity(
        "mask_iou",
        "IoU of masks (pycocotools, 8 x 8 cells a pixel)",
        lambda found_D, true: mask_iou(found_D, true.points_G, true.size),
    ),
    Similarity("outline_iou", "IoU of outlines (shapely)", lambda found_D, true: outline_iou(found_D, true.points_G)),
    Similarity("oks", "object keypoint similarity (COCO)", _oks),
    Similarity(
        "nearness",
        "distance as a fraction of the image's diagonal",
        lambda found_D, true: nearness(found_D, true.points_G, true.size),
        tuple(1 - distance for distance in DISTANCES),
        MappingProxyType({f"AP@{d:g}".replace("0.", "."): t for t, d in enumerate(DISTANCES)}),
    ),
)
SIMILARITIES: Mapping[str, Similarity] = MappingProxyType({measure.name: measure for measure in _ALL})
"""Measures by name: `mask_iou` and `outline_iou` of closed outlines, `oks` of keypoints, `nearness` of single points.
Boxes are compared by the COCO metrics themselves."""


def similarity_of(kind: Geometry) -> Similarity:
    """Return the measure by which the shapes of a geometry are compared.

    Raises:
        InputError: if the geometry names no known measure
    """
    measure = SIMILARITIES.get(kind.similarity) if isinstance(kind.similarity, str) else kind.similarity
    if not isinstance(measure, Similarity):
        raise InputError(
            f"geometry {kind.name}: similarity: expected {', '.join(SIMILARITIES)} or a "
            f"coord_eval.shapes.similarity.Similarity of your own, found {kind.similarity!r:.80}"
        )
    return measure
