"""Findings about all boxes of a set together: what their numbers mean, and whether they belong to their images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coord_trainer.inspection.numbers import rewrite
from coord_trainer.inspection.numbers.differences import differences, shifted
from coord_trainer.inspection.numbers.edges import STANDS_OUT, Sample
from coord_trainer.inspection.numbers.findings import Finding, Severity
from coord_trainer.inspection.numbers.meaning import IMPOSSIBLE, declared_meaning, find_meaning, rough_ways
from coord_trainer.inspection.numbers.mixture import in_one_meaning, in_one_unit
from coord_trainer.inspection.numbers.offsets import Offset, find_offsets
from coord_trainer.inspection.numbers.raw import RawBoxes
from coord_trainer.inspection.numbers.reading import Meaning, Shift
from coord_trainer.inspection.numbers.shuffle import find_pairs

ENOUGH = 30
"""Images from which on right boxes stand out on the pixels, unless they are loose."""
_LOOSE = 0.15
"""Margin, as a share of the object's size, from which on boxes are too large to be a habit of annotators."""


@np.errstate(over="ignore", invalid="ignore")  # of numbers near the end of their range
def examine_geometry(
    raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample, may_be_shuffled: bool = True
) -> tuple[list[Finding], Meaning]:
    """Return the findings, and the meaning of the numbers that the others build on."""
    raw, findings = in_one_unit(raw, sizes_I2)
    own = declared_meaning(raw, sizes_I2, sample)
    if not findings:
        raw, findings = in_one_meaning(raw, own, sizes_I2, sample)
        own = declared_meaning(raw, sizes_I2, sample) if findings else own
    found, certain = find_meaning(own, raw, sizes_I2, sample)
    findings += _differences(raw, own, found, certain) if found is not own else []
    known = ("resized",) * (found.copy is not None) + ("shifted_x", "shifted_y") * (found.shift is not None)
    moved = find_offsets(found.boxes_N4, sample, known) if certain or findings else []
    sizes = np.nanmedian(sizes_I2, axis=0)
    for offset in moved:
        evidence = f"edges that begin at the sides: {offset.before:.3f} as they are, {offset.after:.3f} moved"
        evidence += f", z {offset.z:.1f}"
        code, severity, message, fix = _describe(offset, sizes, raw)
        findings.append(Finding(code, severity, message, evidence, len(raw), fix))
    if certain or moved or not may_be_shuffled:
        return findings, found
    of_others = _of_other_images(own, raw, sizes_I2, sample)
    return of_others or findings or _unexplained(own, sample, len(raw)), own if of_others else found


def _unexplained(own: Meaning, sample: Sample, count: int) -> list[Finding]:
    """Return what is told where neither pixels nor range say what the numbers mean."""
    if own.inside < IMPOSSIBLE:
        message = "the numbers fit no known order and unit, and the boxes of many have no size or leave their images"
        evidence = f"as they are read, {own.inside:.0%} of the boxes have a size and lie in their images"
        return [Finding("unknown_numbers", "error", message, evidence, count, "look at the page and at their source")]
    images = len(sample.maps)
    if own.z >= STANDS_OUT or not images:  # where no image can be compared, another finding says why
        return []
    message = "the pixels say nothing of the boxes: loose ones, or wrong ones in a way that is not known here"
    if images < ENOUGH:
        message = f"{images} images are too few for the pixels to say whether the boxes lie where they should"
    evidence = f"edges under them: z {own.z:.1f} on {images} images, {STANDS_OUT:g} would speak for them"
    return [Finding("no_evidence", "note", message, evidence, count, "look at the page")]


def _describe(offset: Offset, sizes: np.ndarray, raw: RawBoxes) -> tuple[str, Severity, str, str]:
    """Return code, severity, message and what mends it."""
    value = offset.value
    if offset.code == "resized":
        much = f"{abs(1 / value - 1):.0%} too {'small' if value > 1 else 'large'}"
        message = f"all coordinates are about {much}: boxes of a resized copy?"
        return "resized", "error", message, rewrite.stretch(raw.layout, value)
    if offset.code == "tightness":
        fix = rewrite.inflate(raw.layout, value)
        if value > 1:
            return "too_small", "error", f"boxes are about {1 - 1 / value:.0%} smaller than what they show", fix
        # Many annotators leave a margin, and a model learns it: only a wide one is a fault.
        severity: Severity = "warning" if 1 / offset.least >= 1 + _LOOSE else "note"
        return "too_large", severity, f"boxes are about {1 / value - 1:.0%} larger than what they show", fix
    axis = offset.code == "shifted_y"
    pixels = value * sizes[int(axis)]
    message, _ = shifted(raw, Shift(*((0.0, pixels) if axis else (pixels, 0.0)), in_pixels=True))
    _, fix = shifted(raw, Shift(*((0.0, value) if axis else (value, 0.0)), in_pixels=False))
    return "shifted", "error", message, fix


def _differences(raw: RawBoxes, own: Meaning, found: Meaning, certain: bool) -> list[Finding]:
    evidence = (
        f"{own.inside:.0%} of the boxes lie in their images as they are read, {found.inside:.0%} like this; "
        f"edges under them: z {own.z:.1f} as read, {found.z:.1f} like this, {len(found.evidence_I)} images"
    )
    if not certain:
        evidence += "; chosen by the numbers' range, not confirmed by the pixels: look at the page first"
    parts = differences(raw, own, found)
    return [Finding(code, "error", message, evidence, len(raw), fix) for code, message, fix in parts]


def _of_other_images(own: Meaning, raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> list[Finding]:
    """Return that images are shuffled, and what is wrong besides once boxes are given back; empty if they are not."""
    image_J = np.zeros(len(sample.maps), np.int64)
    image_J[sample.image_n] = raw.image_N[sample.rows_n]
    pairs = find_pairs(rough_ways(raw, sizes_I2, own), sample, sizes_I2[image_J])
    if pairs is None:
        return []
    evidence = (
        f"boxes do not lie on edges of their own images (z {own.z:.1f}), but on those of others (z {pairs.z:.1f})"
    )
    kept_n = np.isin(sample.image_n, list(pairs.image_of))
    owner_n = np.array([pairs.image_of[image] for image in sample.image_n[kept_n].tolist()], np.int64)
    rows_n = sample.rows_n[kept_n]
    given_back = replace(
        raw,
        image_N=image_J[owner_n],
        numbers_N4=raw.numbers_N4[rows_n],
        labels=tuple(raw.labels[row] for row in rows_n.tolist()),
    )
    again = replace(sample, rows_n=np.arange(len(rows_n)), image_n=owner_n)
    further, _ = examine_geometry(given_back, sizes_I2, again, may_be_shuffled=False)
    besides = [replace(finding, count=len(raw)) for finding in further if finding.severity != "note"]
    return [shuffled(evidence, len(raw)), *besides]


def shuffled(evidence: str, count: int) -> Finding:
    """Return the finding that boxes belong to other images of the set."""
    message = "images and annotations are shuffled: boxes belong to other images of the set"
    return Finding("shuffled", "error", message, evidence, count, "check how file names and image ids were joined")
