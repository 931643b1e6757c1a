"""Noise objects, the sequence augmentation of Pix2Seq (Chen et al., 2022, section 2.3).

Random boxes labelled `noise` are appended to each target, up to `data.noise_objects` objects. The model then learns to
tell objects from noise by their labels instead of learning when to stop, so that answers can be decoded to a fixed
number of objects, ranked by the probability of their labels. The positions of noise boxes are not learnt: their
coordinates are not supervised, and they have no object slots.
"""

from __future__ import annotations

import random
from dataclasses import replace

from coord_codec import Object, SequenceLayout
from coord_trainer.config.sections import DataSection

NOISE = "noise"
"""Label of noise objects; no class of the data may have this name."""

_SHORTEST = 0.02


def noise_objects(count: int, seed: int) -> list[Object]:
    """Return noise objects with random boxes.

    Args:
        count: number of objects; none if below 1
        seed: equal seeds give equal boxes

    Example:
        >>> [target.desc for target in noise_objects(2, 0)]
        ['noise', 'noise']
    """
    draw = random.Random(f"noise {seed}")

    def sides() -> tuple[float, float]:
        length = draw.uniform(_SHORTEST, 1)
        low = draw.uniform(0, 1 - length)
        return low, low + length

    boxes = (zip(sides(), sides(), strict=True) for _ in range(count))
    return [Object(desc=NOISE, bbox=tuple(c for corner in corners for c in corner)) for corners in boxes]


def without_noise(labels: list[int], layout: SequenceLayout, real: int) -> tuple[list[int], SequenceLayout]:
    """Return labels and layout of a target without supervision of the coordinates of noise objects.

    Args:
        labels: labels [T] of a sample; -100 for unsupervised tokens
        layout: layout of these labels
        real: number of objects that are not noise, which come first in the target
    """
    noise_positions = {position for target in layout.objects[real:] for position in target.coord_positions}
    coord_positions = tuple(position for position in layout.coord_positions if position not in noise_positions)
    labels = [-100 if position in noise_positions else label for position, label in enumerate(labels)]
    return labels, replace(layout, objects=layout.objects[:real], coord_positions=coord_positions)


def ignored_labels(data: DataSection) -> tuple[str, ...]:
    """Return the labels of answers that are not objects."""
    return (NOISE,) if data.noise_objects else ()
