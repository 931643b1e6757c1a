"""Suppression of near-duplicates: of boxes that overlap, the one of the highest score counts.

Shapes: N boxes of one label.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Overlaps = Callable[[int, np.ndarray], np.ndarray]
"""Function of a box's index and the indices of n others that returns how much they overlap [n]."""


def nms(score_N: np.ndarray, overlaps: Overlaps, threshold: float) -> list[tuple[int, ...]]:
    """Keep the box of the highest score, leave out those that overlap it by more than a threshold, and so on.

    Returns:
        For each kept box its index and the indices of those that it suppressed.

    Example:
        >>> iou_NN = np.array([[1.0, 0.7, 0.1], [0.7, 1.0, 0.2], [0.1, 0.2, 1.0]])
        >>> nms(np.array([0.5, 0.9, 0.8]), lambda n, others: iou_NN[n, others], 0.5)
        [(1, 0), (2,)]
    """
    left = np.argsort(-score_N, kind="stable")
    kept = []
    while len(left):
        first, others = int(left[0]), left[1:]
        is_near_n = overlaps(first, others) > threshold
        kept.append((first, *others[is_near_n].tolist()))
        left = others[~is_near_n]
    return kept


def soft_nms(score_N: np.ndarray, overlaps: Overlaps, threshold: float, sigma: float | None = None) -> np.ndarray:
    """Lower the scores of boxes that overlap one of a higher score, instead of leaving them out (Bodla et al. 2017).

    Args:
        score_N: scores
        overlaps: how much boxes overlap
        threshold: an overlap o above it multiplies a score by 1 - o
        sigma: multiply by exp(-o² / sigma) instead, for any overlap

    Returns:
        The lowered scores [N].

    Example:
        >>> iou_NN = np.array([[1.0, 0.75], [0.75, 1.0]])
        >>> soft_nms(np.array([0.5, 0.9]), lambda n, others: iou_NN[n, others], 0.5).tolist()
        [0.125, 0.9]
    """
    lowered_N = np.array(score_N, np.float64)
    left = np.arange(len(lowered_N))
    while len(left):
        best = int(lowered_N[left].argmax())
        first, left = int(left[best]), np.delete(left, best)
        overlap_n = overlaps(first, left)
        if sigma is None:
            factor_n = np.where(overlap_n > threshold, 1 - overlap_n, 1.0)
        else:
            factor_n = np.exp(-(overlap_n**2) / sigma)
        lowered_N[left] *= factor_n
    return lowered_N
