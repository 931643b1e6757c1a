"""A monotone map from score to share of hits, by isotonic regression of groups of boxes of similar score.

Shapes: D detections, G groups of similar score.
"""

from __future__ import annotations

import numpy as np

_MOST_GROUPS = 15
Knots = tuple[tuple[float, float], ...]
"""Pairs of score and probability, both ascending."""


def isotonic(value_G: np.ndarray, weight_G: np.ndarray) -> np.ndarray:
    """Return the ascending values [G] nearest to some values in weighted squares: pool adjacent violators.

    Example:
        >>> isotonic(np.array([0.1, 0.5, 0.3, 0.9]), np.array([1.0, 1.0, 3.0, 1.0])).tolist()
        [0.1, 0.35, 0.35, 0.9]
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, own in zip(value_G.tolist(), weight_G.tolist(), strict=True):
        mean, weight, length = value, own, 1
        while blocks and blocks[-1][0] >= mean:
            before, weight_before, length_before = blocks.pop()
            mean = (before * weight_before + mean * weight) / (weight_before + weight)
            weight, length = weight + weight_before, length + length_before
        blocks.append((mean, weight, length))
    return np.repeat([mean for mean, _, _ in blocks], [length for *_, length in blocks])


def fit_knots(
    score_D: np.ndarray, hit_D: np.ndarray, prior: Knots | float, prior_boxes: float, highest: int = 0
) -> Knots:
    """Return the monotone map from score to share of hits.

    Args:
        score_D: scores in [0, 1]
        hit_D: whether each box is a hit
        prior: the share, or the map, towards which the groups are smoothed
        prior_boxes: the weight of the prior in each group, in boxes
        highest: halve the group of the highest scores while each half has so many boxes; 0 for not at all
    """
    order = np.argsort(score_D, kind="stable")
    score_d, hit_d = score_D[order], hit_D[order].astype(np.float64)
    groups = int(np.clip(round(len(score_d) ** 0.5 / 2), 2, _MOST_GROUPS))
    # A group ends where a score ends, so that equal scores are in one group.
    wanted = [n * len(score_d) // groups for n in range(1, groups)]
    half = len(score_d) // groups // 2
    while highest and half >= highest:
        wanted.append(len(score_d) - half)
        half //= 2
    starts = np.unique(np.r_[0, np.searchsorted(score_d, score_d[wanted], "left")])
    count_G = np.diff(np.r_[starts, len(score_d)])
    mean_G = np.add.reduceat(score_d, starts) / count_G
    prior_G = np.full(len(starts), prior) if isinstance(prior, float) else interpolate(prior, mean_G)
    weight_G = count_G + prior_boxes
    share_G = (np.add.reduceat(hit_d, starts) + prior_boxes * prior_G) / weight_G
    fitted_G = isotonic(share_G, weight_G)
    # One knot for each run of equal values, at its mean score.
    runs = np.unique(fitted_G, return_index=True)[1]
    boxes = np.add.reduceat(count_G, runs)
    at = np.add.reduceat(mean_G * count_G, runs) / boxes
    return tuple(zip(at.tolist(), fitted_G[runs].tolist(), strict=True))


def interpolate(knots: Knots, score_D: np.ndarray) -> np.ndarray:
    """Return the probabilities [D] of scores, by straight lines between the knots."""
    at, probability = zip(*knots, strict=True)
    probability_D: np.ndarray = np.interp(score_D, at, probability)
    return probability_D
