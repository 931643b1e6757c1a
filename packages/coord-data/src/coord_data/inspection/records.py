"""Findings about single records: files, sizes, repeated boxes, numbers of objects, refusals."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Set
from pathlib import Path, PurePosixPath

import numpy as np

from coord_codec import AnnotationSet
from coord_codec.coco.reader import AREA_TOO_LARGE, NOT_AROUND
from coord_codec.counts import counted, counted_note
from coord_codec.images import LEAST_SPAN
from coord_data.finding import Finding, by_share
from coord_data.finding_codes import Severity
from coord_data.inspection.numbers.geometry import shuffled
from coord_data.inspection.numbers.laid_out import ranges
from coord_data.looking.image_file import MISSING, where_it_is
from coord_data.looking.image_paths import split_of
from coord_data.looking.looks import Looks
from coord_data.records import Records
from coord_data.sources.raw_boxes import RawBoxes

USUAL_CROWDS = 0.1
"""Share of crowd regions that is no finding."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number without a pattern, which spreads the bits of hashes."""


def unreadable_images(raw: RawBoxes, files: Looks, annotations: Path) -> list[Finding]:
    """Report image files that are missing, damaged or outside the image folder."""
    faults = [(raw.files[i], fault) for i, fault in files.faults.items()]
    if not faults:
        return []
    evidence = f"the first: {faults[0][0] or 'an image without a name'}: {faults[0][1]}"
    severity = by_share(len(faults), len(files))
    message = f"{len(faults)} of {counted(len(files), 'image')} cannot be used: left out with the boxes"
    missing_name = next((name for name, fault in faults if fault == MISSING), None)
    hint = where_it_is(missing_name, annotations) if missing_name is not None else ""
    fix = f"check --images, or replace the files{hint and f'; the first is found with --images{hint}'}"
    return [Finding("unreadable_image", severity, message, evidence, len(faults), fix)]


def deep_images(looks: Looks) -> list[Finding]:
    """Report images of more than 8 bits that nearly become uniform when they are scaled to 8 bits.

    12-bit data in a file of 16 bits take up a sixteenth of its scale, thermal images often a few values of it. They
    are not stretched when they are decoded: the values of one image, which is all that prediction has, show its light
    and not its depth, and a scale of each image's own would make equal objects unequal.
    """
    is_deep_I, span_I = _deep(looks)
    span_D = span_I[is_deep_I]
    if not (count := int((span_D < LEAST_SPAN).sum())):
        return []
    low, high = looks.ranges[is_deep_I][:, 0].min(), looks.ranges[is_deep_I][:, 1].max()
    message = f"{count} of {counted(len(span_D), 'image')} of more than 8 bits nearly become uniform in 8 bits, which "
    message += "training and prediction use"
    bits = int(max(high, 0)).bit_length()
    evidence = f"values of the set: {low:g} to {high:g}, of {bits} bits; the {counted(count, 'image')} have at most "
    evidence += f"{span_D[span_D < LEAST_SPAN].max() + 1} of 256 grey levels"
    fix = f"write 8-bit images for training and prediction alike: (value - {low:g}) * 255 / {high - low:g}"
    return [Finding("deep_images", by_share(count, len(looks)), message, evidence, count, fix)]


def nearly_uniform(looks: Looks) -> np.ndarray:
    """Return which images of more than 8 bits nearly become uniform in 8 bits, [I]: their pixels tell nothing."""
    is_deep_I, span_I = _deep(looks)
    nearly_I: np.ndarray = is_deep_I & (span_I < LEAST_SPAN)
    return nearly_I


def _deep(looks: Looks) -> tuple[np.ndarray, np.ndarray]:
    """Return which images have more than 8 bits, [I], and the number of grey levels that each of these spans."""
    is_deep_I = np.isfinite(looks.ranges).all(axis=1) & (looks.slots >= 0)
    span_I = np.zeros(len(looks), np.int64)
    if is_deep_I.any():
        grey = np.asarray(looks.grey_K[looks.slots[is_deep_I]])
        span_I[is_deep_I] = grey.max(axis=1).astype(np.int64) - grey.min(axis=1)
    return is_deep_I, span_I


def splits_together(raw: RawBoxes) -> list[Finding]:
    """Report images of several splits that were read as one set."""
    counts: Counter[str] = Counter()
    for name, folder_count in Counter(os.path.dirname(file) for file in raw.files).items():  # noqa: PTH120
        splits = [part for part in PurePosixPath(name.replace("\\", "/")).parts if split_of(part)]
        counts.update({splits[0].lower(): folder_count} if splits else {})
    if len(set(map(split_of, counts))) < 2:
        return []
    evidence = ", ".join(f"{count} of {name}" for name, count in counts.items())
    message = f"images of {len(counts)} splits are read as one set: a model would be trained on what it is tested with"
    fix = "name the annotations of one split; --heldout names those of another"
    return [Finding("splits_together", "warning", message, evidence, counts.total(), fix)]


def stated_sizes(raw: RawBoxes, files: Looks, explained: Set[int], unit: str, boxes_fit: bool) -> list[Finding]:
    """Report images whose stated size differs from the size of the file.

    Args:
        raw: the boxes as the annotation file states them
        files: what looks at the image files told
        explained: indices of images whose stated size differs because of their EXIF orientation
        unit: unit of the boxes where it is known: `pixels` of the files, or `stated`
        boxes_fit: whether the boxes fit their own images, so that at most the stated sizes are shuffled
    """
    sizes_I2, stated_I2 = files.sizes, raw.stated_I2
    is_known_I = (sizes_I2 > 0).all(axis=1) & np.isfinite(stated_I2).all(axis=1)
    differing = np.flatnonzero(is_known_I & (stated_I2 != sizes_I2).any(axis=1)).tolist()
    pairs = {
        i: (tuple(map(int, stated_I2[i].tolist())), tuple(sizes_I2[i].tolist()))
        for i in differing
        if i not in explained
    }
    if not pairs:
        return []
    first, (stated, actual) = next(iter(pairs.items()))
    evidence = f"the first: {raw.files[first]} is {actual[0]} x {actual[1]}, stated {stated[0]} x {stated[1]}"
    is_swap = all(stated == actual[::-1] for stated, actual in pairs.values())
    stated_sizes, actual_sizes = (Counter(sizes[k] for sizes in pairs.values()) for k in range(2))
    matching = (stated_sizes & actual_sizes).total()  # one short of all where a list lost a row
    permuted = matching == len(pairs) or (matching >= 0.9 * len(pairs) and len(stated_sizes) >= 3)
    if permuted and not boxes_fit and not is_swap and len(pairs) >= 3:
        evidence = f"{matching} of {len(pairs)} stated sizes are those of other images of the set; {evidence}"
        return [shuffled(evidence, len(pairs))]
    swapped = " (width and height are exchanged)" if is_swap else ""
    message = f"the stated size of {counted(len(pairs), 'image')} is not the size of the file{swapped}; left out"
    fix = "state the size of the files"
    if raw.unit == "pixels":
        evidence += {"pixels": "; the boxes fit the files", "stated": "; the boxes fit the stated sizes"}.get(unit, "")
        fix += "" if unit == "pixels" else ", and scale the boxes to it"
    severity = by_share(len(pairs), len(files))
    return [Finding("size_mismatch", severity, message, evidence, len(pairs), fix)]


def duplicate_boxes(raw: RawBoxes) -> list[Finding]:
    """Report boxes that occur more than once in an image with the same description."""
    codes = dict[str, int]()
    code_L = np.array([codes.setdefault(label, len(codes)) for label in raw.table.labels], np.int64)
    rows_n = _may_repeat(raw, code_L)
    columns = _rounded(raw, code_L, rows_n)
    order_n = np.lexsort(columns)
    differs_n = np.any([column[order_n[1:]] != column[order_n[:-1]] for column in columns], axis=0)
    group_n = np.cumsum(np.concatenate([[False], differs_n])) if len(rows_n) else np.zeros(0, np.int64)
    counts = np.bincount(group_n)
    if not (extra := len(rows_n) - len(counts)):
        return []
    first_of_group = np.minimum.reduceat(rows_n[order_n], np.cumsum(counts) - counts)
    first = int(np.where(counts > 1, first_of_group, len(raw)).argmin())
    row, times = int(first_of_group[first]), int(counts[first])
    box = [round(value, 4) for value in raw.numbers_N4[row].tolist()]
    evidence = f"the first: {raw.label(row)!r} at {box} occurs {times} times in {raw.files[raw.image_N[row]]}"
    message = f"{extra} of {counted(len(raw), 'box repeats', 'boxes repeat')} another box and its description; the "
    message += "model learns to repeat itself"
    return [Finding("duplicates", by_share(extra, len(raw)), message, evidence, extra, "keep one of each")]


def _rounded(raw: RawBoxes, code_L: np.ndarray, rows: slice | np.ndarray) -> list[np.ndarray]:
    """Return columns that are equal for boxes which repeat each other: rounded numbers, description and image."""
    numbers_4n = raw.numbers_N4[rows].T.copy()
    for column_n in numbers_4n:
        is_small_n = np.abs(column_n) < 1e11  # rounding 1e308 overflows
        column_n[is_small_n] = np.round(column_n[is_small_n], 4)
    return [*numbers_4n[::-1], code_L[raw.table.label_N[rows]], raw.image_N[rows]]


def _may_repeat(raw: RawBoxes, code_L: np.ndarray) -> np.ndarray:
    """Return the boxes with the hash of another one; hashes of all boxes take less memory than what they are of."""
    hash_N = np.zeros(len(raw), np.uint64)
    for rows in ranges(len(raw)):
        for column_n in _rounded(raw, code_L, rows):
            bits_n = (column_n + 0.0).view(np.uint64)  # -0 is 0
            hash_N[rows] = (hash_N[rows] ^ bits_n) * _MULTIPLIER
            hash_N[rows] ^= hash_N[rows] >> np.uint64(29)
    order_N = np.argsort(hash_N)
    hash_N = hash_N[order_N]
    is_same_N = hash_N[1:] == hash_N[:-1]
    return np.unique(np.concatenate([order_N[1:][is_same_N], order_N[:-1][is_same_N]]))


def object_counts(raw: RawBoxes, max_objects: int) -> list[Finding]:
    """Report images with more objects than a target text may contain."""
    counts_I = np.bincount(raw.image_N, minlength=len(raw.files))
    if not (beyond := int(np.maximum(counts_I - max_objects, 0).sum())):
        return []
    images = counted(int((counts_I > max_objects).sum()), "image has", "images have")
    evidence = f"{images} more objects, up to {counts_I.max()} ({raw.files[int(counts_I.argmax())]})"
    objects = counted(len(raw), "object")
    message = f"{beyond} of {objects} are beyond max_objects={max_objects}, and left out of training"
    severity: Severity = "error" if beyond >= 0.25 * len(raw) else "warning"
    fix = f"data.max_objects={counts_I.max()} in training; coord-data inspect SRC --max-objects {counts_I.max()}"
    return [Finding("too_many_objects", severity, message, evidence, beyond, fix)]


def one_off(raw: RawBoxes) -> list[Finding]:
    """Report integer pixel boxes whose coordinates count from 1, as in Pascal VOC."""
    if raw.unit != "pixels" or not len(raw) or (raw.numbers_N4 % 1).any():
        return []
    low = raw.numbers_N4[:, :2]
    at_one, at_zero = int((low == 1).sum()), int((low <= 0).sum())
    if at_one < 5 or at_zero or at_one < 2 * (low == 2).sum():
        return []
    message = "coordinates seem to count from 1, as in Pascal VOC: every box lies one pixel too far right and down"
    evidence = f"{at_one} left or upper sides are at 1, none at 0"
    return [Finding("one_off", "note", message, evidence, len(raw), "subtract 1 from x and y")]


def no_boxes(annotations: AnnotationSet, raw: RawBoxes) -> list[Finding]:
    """Report a set in which no image has a box; where records have a `query`, empty answers may be intended."""
    if len(raw) or annotations.problems:
        return []
    severity: Severity = "note" if any(getattr(item, "query", None) for item in annotations.instances) else "error"
    message = f"none of {counted(len(raw.files), 'image')} has a box: the model would learn to answer nothing"
    told = (counted_note(count, note) for note, count in annotations.notes.items())
    evidence = "; ".join((f"the first: {raw.files[0]}", *told))
    return [Finding("no_boxes", severity, message, evidence, len(raw.files), "check that the annotations are complete")]


def crowds(annotations: AnnotationSet) -> list[Finding]:
    """Report a set of many crowd regions: in COCO they are 1 % of the objects."""
    stated = Records.of(annotations.instances)
    targets = int(stated.target_counts.sum())
    total = stated.object_count
    if total - targets <= USUAL_CROWDS * total:
        return []
    message = f"crowd regions (iscrowd), which are no training targets: {total - targets} of {counted(total, 'object')}"
    evidence = f"{(total - targets) / total:.0%} of the objects; in COCO 1 %"
    fix = "set iscrowd to 0 where it is one object: some tools write an object with a hole so"
    return [Finding("crowds", "warning" if targets else "error", message, evidence, total - targets, fix)]


def contradicted(annotations: AnnotationSet, raw: RawBoxes) -> list[Finding]:
    """Report boxes of a COCO file that contradict the outline or the area which it states for the same object."""
    outline = "not around the outline of the same object", "write the box around the outline"
    area = "smaller than the area stated for the same object", "correct the box or the area"
    facts = ((NOT_AROUND, "box_and_outline", *outline), (AREA_TOO_LARGE, "box_and_area", *area))
    evidence = "stated twice in the annotations; training and scoring follow bbox"
    findings = []
    for note, code, how, fix in facts:
        if count := annotations.notes.get(note, 0):
            message = f"{count} of {counted(len(raw), 'box is', 'boxes are')} {how}"
            findings.append(Finding(code, by_share(count, len(raw)), message, evidence, count, fix))
    return findings


def refused(annotations: AnnotationSet, explained: bool, raw: RawBoxes) -> list[Finding]:
    """Report refused records and objects, without the refused boxes that a finding about all boxes explains."""
    problems = [p for p in annotations.problems if not (explained and (p.is_box or "bbox" in p.field))]
    if not problems:
        return []
    field_counts = Counter(p.field.rpartition(".")[2] or "record" for p in problems)
    fields_listed = ", ".join(f"{count} {name}" for name, count in field_counts.most_common(5))
    objects = sum(p.is_box for p in problems)
    records = len({p.where for p in problems if not p.is_box})  # one record may have several faults
    counts = [counted(count, name) for count, name in ((records, "record"), (objects, "object")) if count]
    verb = "is" if records + objects == 1 else "are"
    message = f"{' and '.join(counts)} {verb} refused ({fields_listed})"
    severities = by_share(records, len(raw.files) + records), by_share(objects, len(raw) + objects)
    severity: Severity = "error" if "error" in severities else "warning"
    fix = "correct or remove them; they are left out of training and scoring"
    return [Finding("refused", severity, message, f"the first: {problems[0]}", records + objects, fix)]
