"""Findings about images that a set contains twice, or that a held-out set shares with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coord_codec import Instance
from coord_codec.counts import counted
from coord_data.finding import Finding, by_share
from coord_data.finding_codes import Severity
from coord_data.looking.alike import (
    AlikePairs,
    Boxes,
    Targets,
    alike_images,
    duplicates_in,
    have_same_boxes,
    records_of,
)
from coord_data.looking.looks import Looks

_LISTED = 10_000
"""Number of pairs that a finding lists; the images of a still camera have millions."""


def duplicate_images(names: Sequence[str], looks: Looks, instances: Sequence[Instance]) -> list[Finding]:
    """Report images that occur twice, those of them that have different boxes, and images that look alike.

    An image whose name occurs again has a further record.
    """
    pairs, targets = duplicates_in(names, looks, instances)
    same, alike = pairs[pairs.is_same], pairs[~pairs.is_same]
    equal = same[same.is_equal]
    differ_P = ~targets.are_the_same(names, equal.pairs_P2)
    of_one_image = [at for at, (i, j) in enumerate(equal.pairs_P2.tolist()) if names[i] == names[j]]
    repeated = {names[equal[at].first] for at in of_one_image}
    boxes_of: dict[str, list[Boxes]] = {name: [] for name in repeated}
    for record in records_of(instances, repeated):
        boxes_of[record.image].append(Targets([record], repeated).of(record.image))
    for at in of_one_image:
        boxes = boxes_of[names[equal[at].first]]
        differ_P[at] = not all(have_same_boxes(boxes[0], other) for other in boxes[1:])
    option = "exact" if same.is_equal.all() else "near"
    kinds: tuple[tuple[str, AlikePairs, str, str], ...] = (
        (
            "conflicting_boxes",
            equal[differ_P],
            "are equal files with different boxes: no answer can be right for both",
            "keep one of each, with all its boxes; prepare --drop-duplicates exact keeps the first",
        ),
        (
            "duplicate_images",
            same,
            "are the same",
            f"keep one image, with all its boxes: prepare --drop-duplicates {option} keeps the first of each",
        ),
        (
            "duplicate_images",
            alike,
            "look alike, for example forms with one layout or frames of one video",
            "if they are copies, keep one image, with all its boxes",
        ),
    )
    findings = []
    for code, found, what, fix in kinds:
        if len(found):
            severity: Severity = "note" if found is alike else by_share(len(found), len(looks))
            message = f"{counted(len(found), 'pair of images', 'pairs of images')} {what}"
            findings.append(_finding(code, severity, message, found, names, names, fix))
    return findings


def leakage(names: Sequence[str], looks: Looks, held_names: Sequence[str], held_looks: Looks) -> list[Finding]:
    """Report held-out images that are also in the training set, and those that look like a training image."""
    findings, leaked = [], np.zeros(0, np.int64)
    pairs = alike_images(looks, held_looks)
    for same in (True, False):
        chosen = pairs[(pairs.is_same == same) & ~np.isin(pairs.seconds, leaked)]
        if not len(chosen):
            continue
        held = np.unique(chosen.seconds)
        leaked = np.union1d(leaked, held)
        message, fix = "are training images: their score measures memorisation", "remove them from one of the two sets"
        if not same:
            message = "look like training images, for example forms with one layout or frames of one video"
            fix = f"if they show the same scene, {fix}"
        message = f"{len(held)} of {len(held_looks)} held-out images {message}"
        found = _finding("leakage", "error" if same else "warning", message, chosen, names, held_names, fix)
        first = chosen[0]
        evidence = f"the first: {held_names[first.second]}, and {names[first.first]} of the training set ({first.how})"
        findings.append(replace(found, evidence=evidence + _uncompared(chosen), count=len(held)))
    return findings


def _uncompared(pairs: AlikePairs) -> str:
    """Return how many further pairs were not compared, as the end of the evidence."""
    return f"; {pairs.uncompared:,} further pairs with similar hashes were not compared" if pairs.uncompared else ""


def _finding(
    code: str,
    severity: Severity,
    message: str,
    pairs: AlikePairs,
    first_names: Sequence[str],
    second_names: Sequence[str],
    fix: str,
) -> Finding:
    """Return a finding about pairs of images, with all of them."""
    first = pairs[0]
    evidence = f"the first: {first_names[first.first]} and {second_names[first.second]} ({first.how})"
    if len(pairs) > _LISTED:
        evidence += f"; the first {_LISTED} pairs are listed"
    listed = tuple((first_names[i], second_names[j]) for i, j in pairs.pairs_P2[:_LISTED].tolist())
    return Finding(code, severity, message, evidence + _uncompared(pairs), len(pairs), fix, listed)
