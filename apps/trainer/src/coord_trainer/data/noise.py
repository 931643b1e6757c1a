"""Noise objects, the sequence augmentation of Pix2Seq (Chen et al., 2022, section 2.3).

Random boxes that are called `noise` fill the end of each target, up to `data.noise_objects` objects. The model learns
to tell an object from noise by the label where it used to learn when to stop, so that answers can be decoded to a given
number of objects, ranked by the probability of their labels. Where a noise box lies is not learnt: its coordinates are
not supervised, and no slot holds it.
"""

from __future__ import annotations

import random
from dataclasses import replace

from coord_codec import Object, SequenceLayout
from coord_trainer.config.sections import DataSection

NOISE = "noise"
"""The label of noise objects; no class of the data may have it."""

_SHORTEST = 0.02


def noise_objects(count: int, seed: int) -> list[Object]:
    """Return so many objects with random boxes.

    Args:
        count: how many; none below 1
        seed: the same boxes for the same seed

    Example:
        >>> [found.desc for found in noise_objects(2, 0)]
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
    """Return labels and layout of a target with noise objects, whose coordinates are not supervised.

    Args:
        labels: one sample's, [T]; -100 where nothing is learnt
        layout: of these labels
        real: objects of the target that are no noise, in front of those that are
    """
    hidden = {position for found in layout.objects[real:] for position in found.coord_positions}
    shown = tuple(position for position in layout.coord_positions if position not in hidden)
    labels = [-100 if position in hidden else label for position, label in enumerate(labels)]
    return labels, replace(layout, objects=layout.objects[:real], coord_positions=shown)


def ignored_labels(data: DataSection) -> tuple[str, ...]:
    """Return the labels in answers that stand for no object."""
    return (NOISE,) if data.noise_objects else ()
