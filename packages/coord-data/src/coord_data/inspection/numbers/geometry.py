"""Findings about all boxes of a set together: order, unit and position, and whether they belong to their images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from coord_codec.counts import counted, fixed
from coord_data.finding import Finding
from coord_data.finding_codes import Severity
from coord_data.inspection.numbers.background import Background, gain_beside
from coord_data.inspection.numbers.differences import command, differences, reading_of, shifted
from coord_data.inspection.numbers.edges import SIGNIFICANT, Sample
from coord_data.inspection.numbers.find_meaning import IMPOSSIBLE, candidate_placements, declared_meaning, find_meaning
from coord_data.inspection.numbers.meaning import PLAUSIBLE, Meaning, Shift
from coord_data.inspection.numbers.mixture import in_one_meaning, in_one_unit
from coord_data.inspection.numbers.offsets import Offset, find_offsets
from coord_data.inspection.numbers.shuffle import find_pairs
from coord_data.inspection.numbers.trial import kept_inside, objection_to
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import Change, ReadAs

ENOUGH = 30
"""Number of images from which correct boxes fit the pixels clearly, unless the boxes are loose."""
_SURE = 5.0
"""z of the gain, over groups of look-alikes, from which a correction by the pixels alone is sure."""
_LOOSE = 0.15
"""Margin, as a share of the object's size, from which boxes count as too large; annotators often leave smaller ones."""


@np.errstate(over="ignore", invalid="ignore")  # numbers near the limit of float64
def examine_geometry(
    raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample, may_be_shuffled: bool = True
) -> tuple[list[Finding], Meaning]:
    """Return the findings, and the most likely meaning of the numbers."""
    raw, findings = in_one_unit(raw, sizes_I2)
    own = declared_meaning(raw, sizes_I2, sample)
    if not findings:
        raw, findings = in_one_meaning(raw, own, sizes_I2, sample)
        own = declared_meaning(raw, sizes_I2, sample) if findings else own
    meaning, certain = find_meaning(own, raw, sizes_I2, sample)
    background = None
    if meaning is not own and own.inside >= PLAUSIBLE:  # the pixels alone speak against the stated numbers
        background = gain_beside(own.boxes.of(sample.rows_n), meaning.boxes.of(sample.rows_n), sample)
        if background.explains:
            meaning, certain, background = own, own.z >= SIGNIFICANT, None
    reading = reading_of(raw, own, meaning)
    severity = _severity(background, sample.z_of_groups(meaning.evidence_I - own.evidence_I))
    of_meaning = _differences(raw, own, meaning, certain, background, severity) if meaning is not own else []
    excluded = ("resized",) * (meaning.copy is not None) + ("shifted",) * (meaning.shift is not None)
    offsets = []
    if certain or findings or of_meaning:
        offsets = find_offsets(meaning.boxes.of(sample.rows_n), sample, excluded)
    moved_N4 = meaning.boxes.of(slice(None if offsets else 0))
    for k, offset in enumerate(offsets):
        offsets[k] = kept_inside(offset, moved_N4)
        moved_N4 = offsets[k].move(moved_N4)
    of_offsets = [_offset_finding(offset, np.nanmedian(sizes_I2, axis=0), len(raw)) for offset in offsets]
    findings += _with_command(reading, of_meaning, of_offsets, partial(_tried, raw, own, sizes_I2, sample))
    if certain or offsets or not may_be_shuffled:
        return findings, meaning
    shuffle_findings = _shuffle_findings(own, raw, sizes_I2, sample)
    return shuffle_findings or findings or _unexplained(own, sample, len(raw)), own if shuffle_findings else meaning


def _with_command(
    reading: ReadAs,
    of_meaning: Sequence[Finding],
    of_offsets: Sequence[tuple[Finding, tuple[Change, ...]]],
    tried: Callable[[ReadAs], str],
) -> list[Finding]:
    """Return the findings with the command that corrects all of them at once.

    Of what is only a note, such as a margin that annotators left, the command of that note alone takes care.
    """

    def proposed(finding: Finding, reading: ReadAs, besides: str = "") -> Finding:
        return replace(finding, fix=tried(reading) + besides, read_as=str(reading))

    faulty = [changes for finding, changes in of_offsets if finding.severity != "note"]
    corrected = replace(reading, changes=(*reading.changes, *chain(*faulty)))
    of_copies = dict.fromkeys(("padded", "resized"), ", or use the copies and their sizes")
    findings = [proposed(found, corrected, of_copies.get(found.code, "")) for found in of_meaning]
    for finding, changes in of_offsets:
        own = changes if finding.severity == "note" else ()
        findings.append(proposed(finding, replace(corrected, changes=(*corrected.changes, *own))))
    return findings


def _tried(raw: RawBoxes, own: Meaning, sizes_I2: np.ndarray, sample: Sample, reading: ReadAs) -> str:
    """Return the command of a reading, if it holds for boxes that lie in their images as stated."""
    objection = (
        objection_to(reading, raw, own.boxes.of(slice(None)), sizes_I2, sample) if own.inside >= PLAUSIBLE else ""
    )
    return f"look at the page; no command, since {objection} ({reading})" if objection else command(reading)


def _unexplained(own: Meaning, sample: Sample, count: int) -> list[Finding]:
    """Return the finding for boxes about which neither the pixels nor the range of the numbers give evidence."""
    if own.inside < IMPOSSIBLE:
        message = "the numbers fit no known order and unit: as stated, many boxes have no area or leave their images"
        evidence = f"as stated, {own.inside:.0%} of the boxes have an area and lie inside their images"
        return [Finding("unknown_numbers", "error", message, evidence, count, "check the page and the data source")]
    images = len(sample.maps)
    if own.z >= SIGNIFICANT or not images:  # where no image can be compared, another finding says why
        return []
    message = "the pixels do not confirm the boxes: they are loose, or wrong in a way that is not detected"
    if images < ENOUGH:
        few = counted(images, "image is", "images are")
        message = f"{few} too few to confirm the position of the boxes from the pixels"
    found = f"z {fixed(own.z, 1)} on {counted(images, 'image')}"
    evidence = f"edges at the sides of boxes: {found}, {SIGNIFICANT:g} would confirm them"
    return [Finding("no_evidence", "note", message, evidence, count, "look at the page")]


def _offset_finding(offset: Offset, size: np.ndarray, count: int) -> tuple[Finding, tuple[Change, ...]]:
    """Return the finding of a small error of all boxes, without the command, and what has been done to the boxes."""
    severity: Severity = "error"
    changes: tuple[Change, ...]
    if offset.code == "shifted":
        x, y = offset.step  # either may be 0
        code, message = "shifted", shifted(Shift(x * size[0], y * size[1], in_pixels=True))
        changes = Shift(x, y, in_pixels=False).changes
    elif offset.code == "resized":
        stated = 1 / offset.step[0]
        code, changes = "resized", (Change("scaled", stated),)
        error = f"{abs(stated - 1):.0%} too {'small' if stated < 1 else 'large'}"
        message = f"all coordinates are about {error}, as if the boxes were drawn on resized copies"
    else:
        stated = 1 / offset.step[0]
        changes = (Change("enlarged", stated),)
        if stated < 1:
            code, message = "too_small", f"boxes are about {1 - stated:.0%} smaller than their objects"
        else:
            # Many annotators leave a margin, which a model learns; only a wide margin is a fault.
            severity = "warning" if 1 / offset.least >= 1 + _LOOSE else "note"
            code, message = "too_large", f"boxes are about {stated - 1:.0%} larger than their objects"
    evidence = f"mean edge onset at the sides of boxes: {offset.before:.3f} as stated, {offset.after:.3f} corrected"
    if severity == "error":
        severity = _severity(offset.background, offset.z_of_groups)
    evidence += f", z {fixed(offset.z, 1)}{_compared(offset.background, severity)}"
    return Finding(code, severity, message, evidence, count, ""), changes


def _severity(background: Background | None, z: float) -> Severity:
    """Return `warning` for boxes inside their images that fit better corrected, unless that surely holds.

    It does if boxes beside the objects gain less, and the gain is far beyond what the best of many readings has (`z`,
    with each group of look-alikes counted once). Boxes outside their images, without a background, are always wrong.
    """
    return "error" if background is None or (background.is_ruled_out and z >= _SURE) else "warning"


def _compared(background: Background | None, severity: Severity) -> str:
    """Return the comparison with the background as the end of the evidence, and what to do where it leaves doubt."""
    doubt = "; not sure: compare both readings on the page" if severity == "warning" else ""
    return "" if background is None else f"; {background.words}{doubt}"


def _differences(
    raw: RawBoxes, own: Meaning, meaning: Meaning, certain: bool, background: Background | None, severity: Severity
) -> list[Finding]:
    """Return the findings about order, unit and orientation, without the command."""
    evidence = (
        f"{own.inside:.0%} of the boxes lie inside their images as stated, {meaning.inside:.0%} corrected; edges at "
        f"their sides: z {fixed(own.z, 1)} as stated, {fixed(meaning.z, 1)} corrected, "
        f"{counted(len(meaning.evidence_I), 'image')}"
    )
    if meaning.copy and meaning.as_good:
        evidence += "; copies of {:.4g} to {:.4g} fit as well".format(*meaning.as_good)
    if not certain:
        evidence += "; inferred from the range of the numbers, not confirmed by the pixels: look at the page first"
    evidence += _compared(background, severity)
    return [
        Finding(code, severity, message, evidence, len(raw), "") for code, message in differences(raw, own, meaning)
    ]


def _shuffle_findings(own: Meaning, raw: RawBoxes, sizes_I2: np.ndarray, sample: Sample) -> list[Finding]:
    """Return the finding that images are shuffled and the findings that remain after reassignment; else none."""
    image_J = np.zeros(len(sample.maps), np.int64)
    image_J[sample.image_n] = raw.image_N[sample.rows_n]
    found = find_pairs(candidate_placements(raw, sizes_I2, own, sample.rows_n), sample, sizes_I2[image_J])
    if found is None:
        return []
    z, image_of = found
    evidence = f"boxes do not lie on edges of their own images (z {fixed(own.z, 1)}), "
    evidence += f"but on those of other images (z {fixed(z, 1)})"
    kept_n = np.isin(sample.image_n, list(image_of))
    owner_n = np.array([image_of[image] for image in sample.image_n[kept_n].tolist()], np.int64)
    rows_n = sample.rows_n[kept_n]
    reassigned = raw.of_boxes(rows_n).in_images(image_J[owner_n])
    new_sample = replace(sample, rows_n=np.arange(len(rows_n)), image_n=owner_n)
    further, _ = examine_geometry(reassigned, sizes_I2, new_sample, may_be_shuffled=False)
    remaining = [replace(finding, count=len(raw)) for finding in further if finding.severity != "note"]
    return [shuffled(evidence, len(raw)), *remaining]


def shuffled(evidence: str, count: int) -> Finding:
    """Return the finding that images and annotations are shuffled."""
    message = "images and annotations are shuffled: boxes belong to other images of the set"
    return Finding("shuffled", "error", message, evidence, count, "check how file names and image ids were joined")
