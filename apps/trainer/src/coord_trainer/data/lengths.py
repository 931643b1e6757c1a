"""Samples that are longer than `training.max_length`, found before the first step without encoding any image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coord_codec import InputError, Instance
from coord_trainer.data.large.records import Records


@dataclass(frozen=True)
class Lengths:
    """How many tokens samples have, from the first one and what the others have more or less.

    Args:
        around: tokens of a sample besides those of its answer and its image
        answer: tokens of an answer
        image: tokens of an image of that width and height
    """

    around: int
    answer: Callable[[str], int]
    image: Callable[[int, int], int]

    def of(self, instance: Instance, text: str) -> int:
        """Return the number of tokens of one sample."""
        return self.around + self.image(instance.width, instance.height) + self.answer(text)

    def bound(self, instance: Instance, text: str) -> int:
        """Return a number that it cannot exceed, without tokenising: a token is a byte at least."""
        return self.around + self.image(instance.width, instance.height) + len(text.encode())


def longer_than(
    limit: int, lengths: Lengths, instances: Sequence[Instance], write: Callable[[Instance], str]
) -> list[tuple[Instance, int]]:
    """Return the instances whose samples have more than `limit` tokens, with their number; the longest first."""
    found = []
    if isinstance(instances, Records):  # read only those that may be too long
        sizes_U2, kind_N = np.unique(instances.image_sizes, axis=0, return_inverse=True)
        tokens_U = np.array([lengths.image(int(w), int(h)) if w and h else 0 for w, h in sizes_U2])
        bound_N = lengths.around + tokens_U[kind_N.ravel()] + instances.text_bounds
        instances = [instances[int(i)] for i in np.flatnonzero(bound_N > limit)]
    for instance in instances:
        if not instance.width or not instance.height:
            continue
        text = write(instance)
        if lengths.bound(instance, text) > limit and (length := lengths.of(instance, text)) > limit:
            found.append((instance, length))
    return sorted(found, key=lambda pair: -pair[1])


def report_long_samples(found: Sequence[tuple[str, int]], total: int, limit: int, truncation: str | None) -> str | None:
    """Return the line that says what `training.truncation_strategy` cuts; None when nothing is too long.

    Args:
        found: which samples are too long, in words, with their number of tokens; the longest first
        total: samples of the set
        limit: tokens that a sample may have
        truncation: `left`, `right`, or None where nothing may be cut

    Raises:
        InputError: samples are too long, and nothing may be cut.
    """
    if not found:
        return None
    which_one, length = found[0]
    which = (
        f"{len(found)} of {total} samples have more than training.max_length={limit} tokens, the longest {length} "
        f"({which_one})"
    )
    if truncation in ("left", "right"):
        side = "their last objects are" if truncation == "right" else "the beginning of their text is"
        return f"{which}: {side} cut off (training.truncation_strategy={truncation})"
    raise InputError(
        f"{which}: raise training.max_length, lower data.max_objects or data.max_pixels, or allow cutting the answers' "
        "ends with training.truncation_strategy=right"
    )
