"""The size in which boxes fit the pixels best, in which boxes at different places are compared.

Otherwise a wrong move that places some sides of too large or too small boxes on edges would seem to fit better than the
right one.

Shapes: n boxes of a sample, I images.
"""

from __future__ import annotations

import numpy as np

from coord_data.inspection.numbers.edges import Sample
from coord_data.sources.read_as import inflate

_TRIED_SIZES = (1.0, 0.76, 0.82, 0.88, 0.94, 1.06, 1.12)


def in_best_size(boxes_n4: np.ndarray, sample: Sample) -> tuple[float, np.ndarray]:
    """Return the size, as a factor, in which boxes have the largest mean onset over images, and the onset [I] in it."""
    of_sizes = sample.onset(np.stack([inflate(boxes_n4, size) for size in _TRIED_SIZES]))
    best = max(range(len(_TRIED_SIZES)), key=lambda k: finite_mean(of_sizes[k]))
    return _TRIED_SIZES[best], of_sizes[best]


def best_onset(boxes_n4: np.ndarray, sample: Sample) -> float:
    """Return the largest mean onset of the boxes over several box sizes."""
    return finite_mean(in_best_size(boxes_n4, sample)[1])


def finite_mean(values_I: np.ndarray) -> float:
    """Return the mean of the finite values; -1, less than any onset, if there is none."""
    finite = values_I[np.isfinite(values_I)]
    return float(finite.mean()) if len(finite) else -1.0
