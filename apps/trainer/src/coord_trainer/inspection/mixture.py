"""Sets of which a part of the images has its numbers in another unit: no one meaning fits them all.

Shapes: I images, N boxes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coord_trainer.inspection.findings import SPOILS, Finding, by_share
from coord_trainer.inspection.raw import RawBoxes

_ALL = 0.95
"""Share of the images from which on the whole set has another unit, which `meaning` finds."""
_PIXELS = 10
"""Numbers that reach so far are no fractions of an image that some boxes leave."""


def in_one_unit(raw: RawBoxes, sizes_I2: np.ndarray) -> tuple[RawBoxes, list[Finding]]:
    """Return the numbers in the unit that is declared, and which images have them in another one.

    Args:
        raw: the numbers of the set
        sizes_I2: width and height of the images
    """
    largest_I = np.zeros(len(raw.files))
    np.maximum.at(largest_I, raw.image_N, np.abs(raw.numbers_N4).max(axis=1))
    broken_I = np.zeros(len(raw.files), bool)
    np.logical_or.at(broken_I, raw.image_N, (raw.numbers_N4 % 1 != 0).any(axis=1))
    given_I = np.bincount(raw.image_N, minlength=len(raw.files)) > 0
    in_pixels = raw.unit == "pixels"
    # A box of a few pixels in the corner has whole numbers; a fraction lies little above 1 where it leaves its image.
    other_I = given_I & ((largest_I <= 1) & broken_I if in_pixels else largest_I > 2)
    count, total = int(other_I.sum()), int(given_I.sum())
    few = not in_pixels and count < SPOILS * total  # these are refused
    if not count or few or count >= _ALL * total or largest_I[given_I & ~other_I].max() < _PIXELS * in_pixels:
        return raw, []
    first = raw.files[int(np.flatnonzero(other_I)[0])]
    found, usual = ("fractions, 0 to 1", "pixels") if in_pixels else ("pixels or thousandths", "fractions, 0 to 1")
    message = f"the boxes of {count} of {total} images are {found}; the others are {usual}"
    evidence = f"largest number of an image: {np.median(largest_I[other_I]):.3g} in these, "
    evidence += f"{np.median(largest_I[given_I & ~other_I]):.3g} in the others, medians; the first: {first}"
    finding = Finding("mixed_units", by_share(count, total), message, evidence, count, f"write all of them as {usual}")
    factor_I2 = np.where(other_I[:, None], sizes_I2 if in_pixels else 1 / sizes_I2, 1)
    numbers_N4 = raw.numbers_N4 * np.tile(factor_I2, 2)[raw.image_N]
    return replace(raw, numbers_N4=numbers_N4), [finding]
