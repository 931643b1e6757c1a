"""Sets of which a part of the images has its numbers in another unit or order: no one meaning fits them all.

Shapes: I images, N boxes, n boxes of a sample, p boxes of a part.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coord_trainer.inspection.numbers import rewrite
from coord_trainer.inspection.numbers.differences import differences
from coord_trainer.inspection.numbers.edges import STANDS_OUT, Sample, is_inside, z_value
from coord_trainer.inspection.numbers.findings import SPOILS, Finding, by_share
from coord_trainer.inspection.numbers.meaning import boxes_as, declared_meaning, find_meaning
from coord_trainer.inspection.numbers.raw import RawBoxes
from coord_trainer.inspection.numbers.reading import AS_GOOD, PLAUSIBLE, Meaning

_ALL = 0.95
"""Share of the images from which on the whole set has another unit, which `meaning` finds."""
_LEAST = 5  # images of a part
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
    if raw.unit == "norm1000":  # bins of a record that says so
        return raw, []
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
    line = rewrite.rescale(raw.layout, "unit" if in_pixels else "pixels", raw.unit)
    fix = f"in these images {line}{'' if in_pixels else '; or divide by 1000 where they are thousandths'}"
    finding = Finding("mixed_units", by_share(count, total), message, evidence, count, fix)
    factor_I2 = np.where(other_I[:, None], sizes_I2 if in_pixels else 1 / sizes_I2, 1)
    numbers_N4 = raw.numbers_N4 * np.tile(factor_I2, 2)[raw.image_N]
    return replace(raw, numbers_N4=numbers_N4), [finding]


def in_one_meaning(raw: RawBoxes, own: Meaning, sizes_I2: np.ndarray, sample: Sample) -> tuple[RawBoxes, list[Finding]]:
    """Return the numbers as they are declared, and which images have others: those that their boxes leave.

    Boxes of the other images must stand out on the pixels as they are read, and those of these images in another way,
    by which the others fit less.

    Args:
        raw: the numbers of the set
        own: what they are declared to mean
        sizes_I2: width and height of the images
        sample: what is compared with pixels
    """
    if own.inside >= PLAUSIBLE:
        return raw, []
    given_I, leave_I = (
        np.bincount(image_N, minlength=len(raw.files)) > 0
        for image_N in (raw.image_N, raw.image_N[~is_inside(own.boxes_N4)])
    )
    count, total = int(leave_I.sum()), int(given_I.sum())
    stays_i = np.ones(len(sample.maps), bool)
    stays_i[sample.image_n] = ~leave_I[raw.image_N[sample.rows_n]]
    if not max(_LEAST, SPOILS * total) <= count < _ALL * total or z_value(own.evidence_I[stays_i]) < STANDS_OUT:
        return raw, []
    rows_p = np.flatnonzero(leave_I[raw.image_N])
    labels = tuple(raw.labels[row] for row in rows_p.tolist())
    part = replace(raw, image_N=raw.image_N[rows_p], numbers_N4=raw.numbers_N4[rows_p], labels=labels)
    chosen_n = np.isin(sample.rows_n, rows_p)
    of_part = replace(sample, rows_n=np.searchsorted(rows_p, sample.rows_n[chosen_n]), image_n=sample.image_n[chosen_n])
    own_part = declared_meaning(part, sizes_I2, of_part)
    found, certain = find_meaning(own_part, part, sizes_I2, of_part)
    if not certain or found is own_part:
        return raw, []
    elsewhere_I = sample.evidence(boxes_as(found, raw, sizes_I2))
    if z_value((own.evidence_I - np.nan_to_num(elsewhere_I))[stays_i]) < AS_GOOD:
        return raw, []
    told = differences(part, own_part, found)
    message = (
        f"the boxes of at least {count} of {total} images are unlike the others: {'; '.join(m for _, m, _ in told)}"
    )
    first = raw.files[int(np.flatnonzero(leave_I)[0])]
    evidence = f"edges under them: z {found.z:.1f} like this, {own_part.z:.1f} as they are read; "
    evidence += f"under the others {z_value(own.evidence_I[stays_i]):.1f} as they are read; the first: {first}"
    fix = f"in these images {'; then '.join(line for _, _, line in told)}"
    numbers_N4 = raw.numbers_N4.copy()
    numbers_N4[rows_p] = _written(boxes_as(found, part, sizes_I2), raw.layout)
    numbers_N4[rows_p] *= np.tile(_side(raw, sizes_I2)[raw.image_N[rows_p]], 2)
    return replace(raw, numbers_N4=numbers_N4), [
        Finding("mixed_units", by_share(count, total), message, evidence, count, fix)
    ]


def _side(raw: RawBoxes, sizes_I2: np.ndarray) -> np.ndarray:
    if raw.unit != "pixels":
        return np.full_like(sizes_I2, 1000 if raw.unit == "norm1000" else 1)
    sides_I2: np.ndarray = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    return sides_I2


def _written(corners_N4: np.ndarray, layout: str) -> np.ndarray:
    low_N2, high_N2 = corners_N4[:, :2], corners_N4[:, 2:]
    if layout == "xyxy":
        return corners_N4
    places_N2 = low_N2 if layout == "xywh" else (low_N2 + high_N2) / 2
    return np.concatenate([places_N2, high_N2 - low_N2], axis=1)
