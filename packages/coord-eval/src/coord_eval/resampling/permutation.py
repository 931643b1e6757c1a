"""Paired permutation test over images (Fisher 1935): the probability of a difference as large between equal runs.

If two runs are equal, their answers to an image are exchangeable. Each permutation exchanges the answers of each image
with probability one half and recomputes the metrics of both runs; nothing else is assumed.

Shapes: B permutations, I images; the doubled set has the images of the first run, then those of the second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.match.matching import Scored
from coord_eval.metrics.metric_table import prepare_figures

_CHUNK = 16
_ROUNDING = 1e-12


def exchange_p_values(
    first: Sequence[Scored], second: Sequence[Scored], permutations: int, seed: int, metrics: Collection[str]
) -> dict[str, float]:
    """Return for each metric the share of permutations with at least the difference of these two runs.

    Args:
        first: a matched run, once for each seed, whose mean counts
        second: another run with the same ground truth and as many seeds
        permutations: number of random permutations; no p-value is below `1 / (permutations + 1)`
        seed: seed of the permutations
        metrics: names, see `coord_eval.resample`; an undefined metric is left out
    """
    images = len(first[0].truth)
    computed = [prepare_figures(_doubled(a, b), metrics) for a, b in zip(first, second, strict=True)]
    rng = np.random.default_rng(seed)

    def differences(swapped_BI: np.ndarray) -> dict[str, np.ndarray]:
        a_BI, b_BI = (np.concatenate([part, 1 - part], axis=1) for part in (1 - swapped_BI, swapped_BI))
        pairs = [(compute(a_BI), compute(b_BI)) for compute in computed]
        return {name: np.mean([b[name] - a[name] for a, b in pairs], axis=0) for name in pairs[0][0]}

    observed = differences(np.zeros((1, images), np.int32))
    extreme = dict.fromkeys(observed, 0)
    for start in range(0, permutations, _CHUNK):
        swapped_BI = rng.integers(0, 2, (min(_CHUNK, permutations - start), images), np.int32)
        for name, difference_B in differences(swapped_BI).items():
            # A permutation with an undefined metric counts as extreme, which keeps the test conservative.
            extreme[name] += int((~(np.abs(difference_B) < abs(observed[name][0]) - _ROUNDING)).sum())
    return {
        name: (1 + extreme[name]) / (1 + permutations) for name, value in observed.items() if not np.isnan(value[0])
    }


def _doubled(first: Scored, second: Scored) -> Scored:
    """Return the two runs as one run with two copies of each image."""
    truth, images = first.truth, len(first.truth)
    both: GroundTruth = replace(
        truth,
        image_ids=truth.image_ids * 2,
        file_names=truth.file_names * 2,
        image_N=np.concatenate([truth.image_N, truth.image_N + images]),
        sizes_I2=np.tile(truth.sizes_I2, (2, 1)),
        category_N=np.tile(truth.category_N, 2),
        boxes_N4=np.tile(truth.boxes_N4, (2, 1)),
        area_N=np.tile(truth.area_N, 2),
        crowd_N=np.tile(truth.crowd_N, 2),
    )
    a, b = first.detections, second.detections
    # The unknown labels of the second run get indices after those of the first.
    unknown = b.category_D >= len(truth.categories)
    detections = Detections.of(
        both,
        image_D=np.concatenate([a.image_D, b.image_D + images]),
        category_D=np.concatenate([a.category_D, b.category_D + np.where(unknown, len(a.unknown), 0)]),
        boxes_D4=np.concatenate([a.boxes_D4, b.boxes_D4]),
        scores_D=np.concatenate([a.scores_D, b.scores_D]),
        rank_D=np.concatenate([a.rank_D, b.rank_D]),
        unknown=a.unknown + b.unknown,
    )
    return Scored(truth=both, detections=detections, score_source=first.score_source, bins=first.bins)
