"""The doctor's round: reads a set, looks at its images once, asks every question, and returns the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from coord_codec import AnnotationSet, InputError
from coord_trainer.data.formats.yolo import HeldOut
from coord_trainer.data.image_set import FULL_CHECK_LIMIT
from coord_trainer.data.usable.image import is_outside, outside_message
from coord_trainer.inspection import records
from coord_trainer.inspection.images import ImageFile, look_at_all
from coord_trainer.inspection.numbers.class_numbers import shifted_classes
from coord_trainer.inspection.numbers.edges import STANDS_OUT, EdgeMaps, Sample
from coord_trainer.inspection.numbers.findings import Finding, most_severe_first
from coord_trainer.inspection.numbers.geometry import ENOUGH, examine_geometry
from coord_trainer.inspection.numbers.meaning import declared_meaning
from coord_trainer.inspection.numbers.raw import DataSource, RawBoxes, read_raw
from coord_trainer.inspection.numbers.shuffle import IN_A_ROW
from coord_trainer.inspection.turned import examine_turned

SAMPLE = 300
"""Images whose pixels are compared with their boxes."""


@dataclass(frozen=True)
class Examination:
    """What was found in a data set.

    Attributes:
        findings: the most severe first
        annotations: the set as the reader gives it
        raw: its numbers
        files: what is known of each image
        root: the folder of the images
    """

    findings: tuple[Finding, ...]
    annotations: AnnotationSet
    raw: RawBoxes
    files: tuple[ImageFile, ...] = field(repr=False)
    root: Path

    def with_findings(self, more: Sequence[Finding]) -> Examination:
        """Return the same with further findings."""
        return replace(self, findings=tuple(most_severe_first([*self.findings, *more])))

    @property
    def spoils(self) -> bool:
        """Whether a finding would spoil training."""
        return any(finding.severity == "error" for finding in self.findings)


def examine(source: DataSource, max_objects: int, heldout: DataSource | HeldOut | None = None) -> Examination:
    """Ask every question about a data set.

    Args:
        source: the training set
        max_objects: objects that a target takes
        heldout: the set that is scored, or images alone, for leakage

    Raises:
        InputError: if the annotations cannot be read at all, or hold nothing
    """
    found, raw, root, files = _look(source)
    if not raw.files and not found.problems:
        raise InputError(f"{source.annotations}: expected images and their objects, found none; check the file")
    findings: list[Finding] = [
        *records.unreadable_images(raw, files, source.annotations),
        *records.no_boxes(found, raw),
    ]
    findings += shifted_classes(raw.class_numbers)
    unit, boxes_fit, explained, turned = "", False, False, set[int]()
    if len(raw):
        sizes_I2 = np.array([file.size or (np.nan, np.nan) for file in files])
        sizes_I2 = np.where(np.isfinite(sizes_I2), sizes_I2, raw.stated_I2)
        sizes_I2[~np.isfinite(sizes_I2)] = np.nanmedian(sizes_I2) if np.isfinite(sizes_I2).any() else 1
        of_boxes, meaning = examine_geometry(raw, sizes_I2, _fitting_sample(raw, sizes_I2, files, root))
        explained = any(f.severity == "error" and f.code != "unknown_numbers" for f in of_boxes)
        of_turned, turned = examine_turned(raw, files, root, meaning.boxes_N4)
        findings += [*of_boxes, *of_turned]
        unit, boxes_fit = meaning.unit, meaning.z >= STANDS_OUT
    sizes = records.stated_sizes(raw, files, turned, unit, boxes_fit)
    known = {finding.code for finding in findings}
    findings += [finding for finding in sizes if finding.code not in known]
    findings += records.refused(found, explained or bool(sizes), raw)
    findings += [*records.duplicate_boxes(raw), *records.duplicate_images(raw, files), *records.class_names(raw)]
    findings += [*records.object_counts(raw, max_objects), *records.one_off(raw)]
    if isinstance(heldout, HeldOut):
        findings += records.leakage(raw, files, heldout.names, _look_at(heldout.root, heldout.names))
    elif heldout is not None:
        _, held_raw, _, held_files = _look(heldout)
        findings += records.leakage(raw, files, held_raw.files, held_files)
    return Examination(tuple(most_severe_first(findings)), found, raw, tuple(files), root)


def _look(source: DataSource) -> tuple[AnnotationSet, RawBoxes, Path, list[ImageFile]]:
    found, raw, root, base = read_raw(source)
    with_boxes = np.unique(raw.image_N)
    files = _look_at(root, raw.files, with_boxes[_chosen(len(with_boxes))].tolist())
    if not source.allow_outside:
        for i, name in enumerate(raw.files):
            if not files[i].fault and is_outside(root / name, base):
                files[i] = replace(files[i], fault=outside_message(base))
    return found, raw, root, files


def _chosen(count: int) -> np.ndarray:
    """Return which of so many images are compared with their boxes: an even part, and a row in the middle of it."""
    if count <= SAMPLE:
        return np.arange(count)
    even = np.linspace(0, count - 1, SAMPLE - IN_A_ROW).astype(int)
    return np.union1d(even, (count - IN_A_ROW) // 2 + np.arange(IN_A_ROW))


def _look_at(root: Path, names: Sequence[str], kept: Sequence[int] = ()) -> list[ImageFile]:
    """Look at the images, of a large set at an even part and those that are kept in small."""
    looked_at: Sequence[int] = range(len(names))
    if len(names) > FULL_CHECK_LIMIT:
        looked_at = sorted({*kept, *range(0, len(names), -(-len(names) // FULL_CHECK_LIMIT))})
    return look_at_all(root, names, looked_at, kept)


def _fitting_sample(raw: RawBoxes, sizes_I2: np.ndarray, files: Sequence[ImageFile], root: Path) -> Sample:
    """Return the small images with their boxes; those with an EXIF orientation only where the others are too few.

    Their boxes may refer to the stored pixels, which `examine_turned` tells; then nothing is compared.
    """
    sample = _sample(raw, files, upright=True)
    if len(sample.maps) >= ENOUGH or all(file.orientation == 1 for file in files):
        return sample
    found, _ = examine_turned(raw, files, root, declared_meaning(raw, sizes_I2, sample).boxes_N4)
    return sample if any(finding.severity == "error" for finding in found) else _sample(raw, files, upright=False)


def _sample(raw: RawBoxes, files: Sequence[ImageFile], upright: bool) -> Sample:
    """Return the small images with their boxes, all of them or those that are stored as they are shown."""
    kept = [i for i, file in enumerate(files) if file.small is not None and (file.orientation == 1 or not upright)]
    maps = EdgeMaps.of(small for i in kept if (small := files[i].small) is not None)
    place = np.full(len(files), -1)
    place[kept] = np.arange(len(kept))
    rows_n = np.flatnonzero(place[raw.image_N] >= 0)
    return Sample(maps, rows_n, place[raw.image_N[rows_n]])
