"""Similarity of shapes: IoU of masks, IoU of oriented boxes, OKS of keypoints, distance of points.

Shapes: D detections and G objects of one image and label; points in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import shapely
from pycocotools import mask as masks
from pycocotools.cocoeval import Params

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


def oriented_iou(found_D: Sequence[Points], true_G: Sequence[Points]) -> np.ndarray:
    """Return IoU [D, G] of oriented boxes, exact up to rounding; 0 for a self-intersecting box.

    Example:
        >>> diamond, square = [(1, 0), (2, 1), (1, 2), (0, 1)], [(0, 0), (2, 0), (2, 2), (0, 2)]
        >>> oriented_iou([diamond], [square]).tolist()
        [[0.5]]
    """
    iou = np.zeros((len(found_D), len(true_G)))
    predicted, true = ([shapely.Polygon(points) for points in shapes] for shapes in (found_D, true_G))
    for d, box in enumerate(predicted):
        for g, true_one in enumerate(true):
            if box.is_valid and true_one.is_valid and box.intersects(true_one):
                inner = box.intersection(true_one).area
                iou[d, g] = inner / (box.area + true_one.area - inner)
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
