"""Detects sets in which the boxes of some images are in another unit or order than those of the others.

Shapes: I images, N boxes, n boxes of a sample, p boxes of a part.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coord_codec.counts import fixed
from coord_data.finding import SPOILS, Finding, by_share
from coord_data.inspection.numbers.differences import command, differences, reading_of
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample, z_value
from coord_data.inspection.numbers.find_meaning import boxes_as, declared_meaning, find_meaning
from coord_data.inspection.numbers.laid_out import ranges
from coord_data.inspection.numbers.meaning import AS_GOOD, PLAUSIBLE, Meaning
from coord_data.sources.raw_boxes import RawBoxes, as_centres
from coord_data.sources.read_as import ReadAs

_ALL = 0.95
"""Share of the images from which the whole set counts as in another unit, which `meaning` detects."""
_LEAST = 5  # smallest number of images of a part
_PIXELS = 10
"""Number from which numbers are pixels, and not fractions of boxes that leave their image."""


def in_one_unit(raw: RawBoxes, sizes_I2: np.ndarray) -> tuple[RawBoxes, list[Finding]]:
    """Return the boxes with all numbers in the declared unit, and the finding about images in another unit."""
    largest_I, fractional_I = np.zeros(len(raw.files)), np.zeros(len(raw.files), bool)
    for rows in ranges(len(raw)):
        image_n, numbers_n4 = raw.image_N[rows], raw.numbers_N4[rows]
        np.maximum.at(largest_I, image_n, np.abs(numbers_n4).max(axis=1))
        fractional_I[image_n[(numbers_n4 % 1 != 0).any(axis=1)]] = True
    has_boxes_I = np.bincount(raw.image_N, minlength=len(raw.files)) > 0
    if raw.unit == "norm1000":  # each record states that it is in bins
        return raw, []
    in_pixels = raw.unit == "pixels"
    # A box of a few pixels in the corner has integer numbers; fractions outside an image are hardly larger than 1.
    other_I = has_boxes_I & ((largest_I <= 1) & fractional_I if in_pixels else largest_I > 2)
    count, total = int(other_I.sum()), int(has_boxes_I.sum())
    few = not in_pixels and count < SPOILS * total  # the reader refuses them
    if not count or few or count >= _ALL * total or largest_I[has_boxes_I & ~other_I].max() < _PIXELS * in_pixels:
        return raw, []
    first = raw.files[int(np.flatnonzero(other_I)[0])]
    other, usual = ("fractions, 0 to 1", "pixels") if in_pixels else ("pixels or thousandths", "fractions, 0 to 1")
    message = f"the boxes of {count} of {total} images are in {other}; the others are in {usual}"
    evidence = f"median of the largest number of an image: {np.median(largest_I[other_I]):.3g} in these, "
    evidence += f"{np.median(largest_I[has_boxes_I & ~other_I]):.3g} in the others; the first: {first}"
    fix = _apart(ReadAs(unit="unit" if in_pixels else "pixels"))
    if not in_pixels:
        fix += ", or norm1000 where they are thousandths"
    finding = Finding("mixed_units", by_share(count, total), message, evidence, count, fix)
    factor_I2 = np.where(other_I[:, None], sizes_I2 if in_pixels else 1 / sizes_I2, 1)
    numbers_N4 = raw.numbers_N4 * np.tile(factor_I2, 2)[raw.image_N]
    return raw.with_numbers(numbers_N4), [finding]


def in_one_meaning(raw: RawBoxes, own: Meaning, sizes_I2: np.ndarray, sample: Sample) -> tuple[RawBoxes, list[Finding]]:
    """Return the boxes with all numbers in the declared meaning, and the finding about images with another meaning.

    Images whose boxes leave them are candidates. Their boxes must fit the pixels under another meaning, and the boxes
    of the other images must fit under the declared meaning, and better than under the other one.
    """
    if own.inside >= PLAUSIBLE:
        return raw, []
    has_boxes_I, leaves_I = (
        np.bincount(image_N, minlength=len(raw.files)) > 0
        for image_N in (raw.image_N, raw.image_N[~own.boxes.are_inside()])
    )
    count, total = int(leaves_I.sum()), int(has_boxes_I.sum())
    stays_i = np.ones(len(sample.maps), bool)
    stays_i[sample.image_n] = ~leaves_I[raw.image_N[sample.rows_n]]
    if not max(_LEAST, SPOILS * total) <= count < _ALL * total or z_value(own.evidence_I[stays_i]) < SIGNIFICANT:
        return raw, []
    rows_p = np.flatnonzero(leaves_I[raw.image_N])
    part = raw.of_boxes(rows_p)
    chosen_n = np.isin(sample.rows_n, rows_p)
    subset = replace(sample, rows_n=np.searchsorted(rows_p, sample.rows_n[chosen_n]), image_n=sample.image_n[chosen_n])
    own_part = declared_meaning(part, sizes_I2, subset)
    meaning, certain = find_meaning(own_part, part, sizes_I2, subset)
    if not certain or meaning is own_part:
        return raw, []
    alternative_I = sample.evidence(boxes_as(meaning, raw, sizes_I2)[sample.rows_n])
    if z_value((own.evidence_I - np.nan_to_num(alternative_I))[stays_i]) < AS_GOOD:
        return raw, []
    changes = differences(part, own_part, meaning)
    listed = "; ".join(message for _, message in changes)
    message = f"the boxes of at least {count} of {total} images are unlike the others: {listed}"
    first = raw.files[int(np.flatnonzero(leaves_I)[0])]
    evidence = f"edges at their sides: z {fixed(meaning.z, 1)} corrected, {fixed(own_part.z, 1)} as stated; at those "
    evidence += f"of the others {z_value(own.evidence_I[stays_i]):.1f} as stated; the first: {first}"
    fix = _apart(reading_of(part, own_part, meaning))
    corners_p4 = boxes_as(meaning, part, sizes_I2)
    if raw.layout != "xyxy":
        centres_p4 = as_centres(corners_p4)
        corners_p4 = np.hstack([corners_p4[:, :2] if raw.layout == "xywh" else centres_p4[:, :2], centres_p4[:, 2:]])
    extents_I2 = np.where(np.isfinite(raw.stated_I2), raw.stated_I2, sizes_I2)
    if raw.unit != "pixels":
        extents_I2 = np.full_like(sizes_I2, 1000 if raw.unit == "norm1000" else 1)
    numbers_N4 = raw.numbers_N4.copy()
    numbers_N4[rows_p] = corners_p4 * np.tile(extents_I2[part.image_N], 2)
    finding = Finding("mixed_units", by_share(count, total), message, evidence, count, fix)
    return raw.with_numbers(numbers_N4), [finding]


def _apart(reading: ReadAs) -> str:
    """Return the correction of images whose numbers are unlike those of the others."""
    return f"prepare these images apart from the others: {command(reading)}"
