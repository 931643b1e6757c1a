"""Findings about images that a set contains twice, or that a held-out set shares with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coord_codec import Instance
from coord_codec.counts import counted
from coord_data.alike import Boxes, Pair, alike_images, boxes_by_image, duplicates_in, have_same_boxes, same_boxes_of
from coord_data.finding import Finding, Severity, by_share
from coord_data.image_file import ImageFile

_LISTED = 10_000
"""Number of pairs that a finding lists; the images of a still camera have millions."""


def duplicate_images(names: Sequence[str], files: Sequence[ImageFile], instances: Iterable[Instance]) -> list[Finding]:
    """Report images that occur twice, those of them that have different boxes, and images that look alike.

    Args:
        names: paths of the images; one that occurs again has another record
        files: what a look at each told
        instances: the records
    """
    instances = list(instances)  # read twice
    boxes, boxes_of_records = boxes_by_image(instances), dict[str, list[Boxes]]()
    for instance in instances:
        boxes_of_records.setdefault(instance.image, []).extend(boxes_by_image([instance]).values())

    def agree(one: str, other: str) -> bool:
        if one != other:
            return same_boxes_of(one, other, boxes)
        records = boxes_of_records.get(one, [])
        return all(have_same_boxes(records[0], record) for record in records[1:])

    pairs = duplicates_in(names, files, boxes)
    same, alike = [pair for pair in pairs if pair.same], [pair for pair in pairs if not pair.same]
    conflicting = [pair for pair in same if pair.kind == "equal" and not agree(names[pair.first], names[pair.second])]
    option = "exact" if {pair.kind for pair in same} == {"equal"} else "near"
    kinds: tuple[tuple[str, list[Pair], str, str], ...] = (
        (
            "conflicting_boxes",
            conflicting,
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
        if found:
            severity: Severity = "note" if found is alike else by_share(len(found), len(files))
            message = f"{counted(len(found), 'pair of images', 'pairs of images')} {what}"
            findings.append(_finding(code, severity, message, found, names, names, fix))
    return findings


def leakage(
    names: Sequence[str], files: Sequence[ImageFile], held_names: Sequence[str], held_files: Sequence[ImageFile]
) -> list[Finding]:
    """Report held-out images that are also in the training set, and those that look like a training image.

    Args:
        names: paths of the training images
        files: properties of their files
        held_names: paths of the held-out images
        held_files: properties of their files
    """
    findings, leaked = [], set[int]()
    pairs = alike_images(files, held_files)
    for same in (True, False):
        if not (chosen := [pair for pair in pairs if pair.same == same and pair.second not in leaked]):
            continue
        held = {pair.second for pair in chosen}
        leaked |= held
        message, fix = "are training images: their score measures memorisation", "remove them from one of the two sets"
        if not same:
            message = "look like training images, for example forms with one layout or frames of one video"
            fix = f"if they show the same scene, {fix}"
        message = f"{len(held)} of {len(held_files)} held-out images {message}"
        found = _finding("leakage", "error" if same else "warning", message, chosen, names, held_names, fix)
        first = chosen[0]
        evidence = f"the first: {held_names[first.second]}, and {names[first.first]} of the training set ({first.how})"
        findings.append(replace(found, evidence=evidence, count=len(held)))
    return findings


def _finding(
    code: str,
    severity: Severity,
    message: str,
    pairs: Sequence[Pair],
    first_names: Sequence[str],
    second_names: Sequence[str],
    fix: str,
) -> Finding:
    """Return a finding about pairs of images, with all of them."""
    first = pairs[0]
    evidence = f"the first: {first_names[first.first]} and {second_names[first.second]} ({first.how})"
    if len(pairs) > _LISTED:
        evidence += f"; the first {_LISTED} pairs are listed"
    listed = tuple((first_names[pair.first], second_names[pair.second]) for pair in pairs[:_LISTED])
    return Finding(code, severity, message, evidence, len(pairs), fix, listed)
