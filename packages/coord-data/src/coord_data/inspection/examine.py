"""Examines a data set: reads its annotations and images once, runs every check and returns the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from coord_codec import AnnotationSet, InputError
from coord_data.formats.yolo import HeldOut
from coord_data.image_file import ImageFile, ImageFolder
from coord_data.image_set import Evidence, ImageSet, gather_evidence
from coord_data.inspection import records
from coord_data.inspection.finding import Finding, most_severe_first
from coord_data.inspection.numbers.class_numbers import shifted_classes
from coord_data.inspection.numbers.edges import SIGNIFICANT, EdgeMaps, Sample
from coord_data.inspection.numbers.find_meaning import declared_meaning
from coord_data.inspection.numbers.geometry import ENOUGH, examine_geometry
from coord_data.inspection.numbers.raw import DataSource
from coord_data.inspection.turned import examine_turned
from coord_data.raw_boxes import RawBoxes


@dataclass(frozen=True)
class Examination:
    """Result of examining a data set.

    Attributes:
        findings: the most severe first
        annotations: the usable records, and the problems of the others
        raw: the boxes as the annotation file states them
        files: properties of each image file
        root: folder of the images
    """

    findings: tuple[Finding, ...]
    annotations: AnnotationSet
    raw: RawBoxes
    files: tuple[ImageFile, ...] = field(repr=False)
    root: Path

    def with_findings(self, further: Sequence[Finding]) -> Examination:
        """Return a copy with further findings."""
        return replace(self, findings=tuple(most_severe_first([*self.findings, *further])))

    @property
    def spoils(self) -> bool:
        """Whether a finding would spoil training."""
        return any(finding.severity == "error" for finding in self.findings)


def examine(
    source: DataSource | ImageSet | Evidence,
    max_objects: int,
    heldout: DataSource | ImageSet | Evidence | HeldOut | None = None,
) -> Examination:
    """Run every check on a data set.

    Args:
        source: the training set: what it was read from, an image set that still has it, or where it is
        max_objects: largest number of objects in a target text
        heldout: the held-out set, or its images alone, which is checked for leakage

    Raises:
        InputError: if the annotations cannot be read at all, or contain no records
    """
    evidence = _evidence(source)
    annotations, raw, root, files = evidence.annotations, evidence.raw, evidence.root, evidence.files
    if not raw.files and not annotations.problems:
        raise InputError(f"{evidence.named}: expected images and their objects, found none; check the file")
    findings: list[Finding] = [
        *records.unreadable_images(raw, files, evidence.named),
        *records.no_boxes(annotations, raw),
    ]
    findings += shifted_classes(raw.class_numbers)
    unit, boxes_fit, explained, turned = "", False, False, set[int]()
    if len(raw):
        sizes_I2 = np.array([file.size or (np.nan, np.nan) for file in files])
        sizes_I2 = np.where(np.isfinite(sizes_I2), sizes_I2, raw.stated_I2)
        sizes_I2[~np.isfinite(sizes_I2)] = np.nanmedian(sizes_I2) if np.isfinite(sizes_I2).any() else 1
        geometry_findings, meaning = examine_geometry(raw, sizes_I2, _suitable_sample(raw, sizes_I2, files, root))
        explained = any(f.severity == "error" and f.code != "unknown_numbers" for f in geometry_findings)
        exif_findings, turned = examine_turned(raw, files, root, meaning.boxes_N4)
        findings += [*geometry_findings, *exif_findings]
        unit, boxes_fit = meaning.unit, meaning.z >= SIGNIFICANT
    size_findings = records.stated_sizes(raw, files, turned, unit, boxes_fit)
    codes = {finding.code for finding in findings}
    findings += [finding for finding in size_findings if finding.code not in codes]
    findings += records.refused(annotations, explained or bool(size_findings), raw)
    findings += [*records.duplicate_boxes(raw), *records.duplicate_images(raw, files), *records.class_names(raw)]
    findings += [*records.object_counts(raw, max_objects), *records.one_off(raw)]
    if isinstance(heldout, HeldOut):
        held_files = ImageFolder(heldout.root).look_at_all(heldout.names)
        findings += records.leakage(raw, files, heldout.names, held_files)
    elif heldout is not None:
        held = _evidence(heldout)
        findings += records.leakage(raw, files, held.raw.files, held.files)
    return Examination(tuple(most_severe_first(findings)), annotations, raw, files, root)


def _evidence(source: DataSource | ImageSet | Evidence) -> Evidence:
    """Return what a set was read from; it is read here only if nobody has read it before."""
    if isinstance(source, DataSource):
        return gather_evidence(source.annotations, source.rules)
    if isinstance(source, Evidence):
        return source
    if source.evidence is None:
        raise InputError(f"{source.name}: expected a set with its evidence, found one that dropped it; load it again")
    return source.evidence


def _suitable_sample(raw: RawBoxes, sizes_I2: np.ndarray, files: Sequence[ImageFile], root: Path) -> Sample:
    """Return thumbnails with their boxes; images with an EXIF orientation are used only if the others are too few.

    They are not used if `examine_turned` finds that their boxes refer to the stored pixels.
    """
    sample = _sample(raw, files, upright=True)
    if len(sample.maps) >= ENOUGH or all(file.orientation == 1 for file in files):
        return sample
    findings, _ = examine_turned(raw, files, root, declared_meaning(raw, sizes_I2, sample).boxes_N4)
    return sample if any(finding.severity == "error" for finding in findings) else _sample(raw, files, upright=False)


def _sample(raw: RawBoxes, files: Sequence[ImageFile], upright: bool) -> Sample:
    """Return the thumbnails with their boxes, of all images or only of those that are stored upright."""
    kept = [i for i, file in enumerate(files) if file.small is not None and (file.orientation == 1 or not upright)]
    maps = EdgeMaps.of(small for i in kept if (small := files[i].small) is not None)
    place = np.full(len(files), -1)
    place[kept] = np.arange(len(kept))
    rows_n = np.flatnonzero(place[raw.image_N] >= 0)
    return Sample(maps, rows_n, place[raw.image_N[rows_n]])
