"""Intersection over union of boxes, `xywh`."""

from __future__ import annotations

import numpy as np


def box_iou(a: np.ndarray, b: np.ndarray, crowd_b: np.ndarray | bool = False) -> np.ndarray:
    """Return the IoU of `xywh` boxes [..., 4]; leading axes are broadcast, so `a[:, None], b` gives all pairs.

    Args:
        a: boxes, in the unit of `b`
        b: boxes
        crowd_b: where true, divide the intersection by the area of `a`: COCO's rule for crowd regions, by which a box
            inside a region has an IoU of 1, however large the region is

    Returns:
        Values in [0, 1]; 0 where the union has no area.

    Example:
        >>> box_iou(np.array([0.0, 0, 2, 2]), np.array([[1.0, 0, 2, 2], [4, 4, 1, 1]])).round(3).tolist()
        [0.333, 0.0]
    """
    # NumPy multiplies two columns much faster than it reduces an axis of length two.
    ends = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    sides = np.clip(ends - np.maximum(a[..., :2], b[..., :2]), 0, None)
    intersection = sides[..., 0] * sides[..., 1]
    area_a = a[..., 2] * a[..., 3]
    union = np.where(crowd_b, area_a, area_a + b[..., 2] * b[..., 3] - intersection)
    iou: np.ndarray = np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
    return iou
