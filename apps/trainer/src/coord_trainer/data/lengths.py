"""Finds samples longer than `training.max_length` before the first step without encoding any image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coord_codec import InputError, Instance
from coord_codec.counts import counted
from coord_data.records import Records


@dataclass(frozen=True)
class Lengths:
    """Computes the number of tokens of samples.

    Args:
        around: number of tokens of a sample without its answer and its image
        answer: number of tokens of an answer
        image: number of tokens of an image of a width and height
    """

    around: int
    answer: Callable[[str], int]
    image: Callable[[int, int], int]

    def of(self, instance: Instance, text: str) -> int:
        """Return the number of tokens of a sample."""
        return self.around + self._image(instance) + self.answer(text)

    def bound(self, instance: Instance, text: str) -> int:
        """Return an upper bound of the number of tokens without tokenising: a token has at least one byte."""
        return self.around + self._image(instance) + len(text.encode())

    def _image(self, instance: Instance) -> int:
        assert instance.width is not None and instance.height is not None  # the reader has measured it
        return self.image(instance.width, instance.height)


def longer_than(
    limit: int, lengths: Lengths, instances: Sequence[Instance], write: Callable[[Instance], str]
) -> list[tuple[Instance, int]]:
    """Return the instances whose samples have more than `limit` tokens, with their token counts, longest first."""
    too_long = []
    records = Records.of(instances)  # only records that may be too long are read
    sizes_U2, kind_N = np.unique(records.image_sizes, axis=0, return_inverse=True)
    tokens_U = np.array([lengths.image(int(w), int(h)) if w and h else 0 for w, h in sizes_U2])
    bound_N = lengths.around + tokens_U[kind_N.ravel()] + records.text_bounds
    for instance in (instances[int(i)] for i in np.flatnonzero(bound_N > limit)):
        if not instance.width or not instance.height:
            continue
        text = write(instance)
        if lengths.bound(instance, text) > limit and (length := lengths.of(instance, text)) > limit:
            too_long.append((instance, length))
    return sorted(too_long, key=lambda pair: -pair[1])


def report_long_samples(long: Sequence[tuple[str, int]], total: int, limit: int, truncation: str | None) -> str | None:
    """Return a message on what `training.truncation_strategy` cuts off; None if no sample is too long.

    Args:
        long: description and number of tokens of each sample that is too long, longest first
        total: number of samples of the set
        limit: maximum number of tokens of a sample
        truncation: `left`, `right`, or None if samples must not be truncated

    Raises:
        InputError: samples are too long and must not be truncated.
    """
    if not long:
        return None
    longest, length = long[0]
    summary = (
        f"{len(long)} of {counted(total, 'sample has', 'samples have')} more than "
        f"training.max_length={limit} tokens, the longest {length} "
        f"({longest})"
    )
    if truncation in ("left", "right"):
        side = "their last objects are" if truncation == "right" else "the beginning of their text is"
        return f"{summary}: {side} cut off (training.truncation_strategy={truncation})"
    raise InputError(
        f"{summary}: raise training.max_length, lower data.max_objects or data.max_pixels, or allow cutting the "
        "ends of answers with training.truncation_strategy=right"
    )
