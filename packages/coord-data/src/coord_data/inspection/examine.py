"""Examines a data set: reads its annotations and images once, runs every check and returns the findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from coord_codec import AnnotationSet, InputError, Instance
from coord_codec.counts import counted, counted_note
from coord_codec.pages import fragment, notes, table
from coord_data.finding import Finding, most_severe_first
from coord_data.formats.annotation_format import Evidence
from coord_data.formats.yolo import HeldOut
from coord_data.inspection import duplicates, names, records
from coord_data.inspection.numbers.edges import SIGNIFICANT, EdgeMaps, Sample
from coord_data.inspection.numbers.find_meaning import declared_meaning
from coord_data.inspection.numbers.geometry import ENOUGH, examine_geometry
from coord_data.inspection.numbers.one_pixel import beside_by_a_pixel
from coord_data.inspection.numbers.without_pixels import findings_without_pixels
from coord_data.inspection.rules import InspectionRules
from coord_data.inspection.turned import examine_turned
from coord_data.looking.alike import groups_of_alike
from coord_data.looking.image_file import ImageFolder
from coord_data.looking.looks import Looks
from coord_data.reading.image_set import ImageSet, gather_evidence
from coord_data.reading.rules import ReadingRules
from coord_data.records import Records
from coord_data.remote import local_path
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.source import Source

Data = Path | Source | ImageSet | Evidence
"""A data set to examine: its annotations, or what has been read of it."""

SHOWN = 12
"""Number of images on the page."""


@dataclass(frozen=True)
class Examination:
    """Result of examining a data set.

    Attributes:
        findings: the most severe first
        annotations: the usable records, and the problems of the others
        raw: the boxes as the annotation file states them
        files: what a look at each image file told
        root: folder of the images
        leak_roots: folders of the training images and of the held-out images, if it was compared with another set
        notes: what the reader tells, as `prepare` prints it
    """

    findings: tuple[Finding, ...]
    annotations: AnnotationSet
    raw: RawBoxes
    files: Looks = field(repr=False)
    root: Path
    leak_roots: tuple[Path, Path] | None = None
    notes: tuple[str, ...] = ()

    def with_findings(self, further: Sequence[Finding]) -> Examination:
        """Return a copy with further findings."""
        return replace(self, findings=tuple(most_severe_first([*self.findings, *further])))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the findings."""
        rows = [(f.severity, f.code, f.message, f.count, f.fix) for f in self.findings]
        counts = f"{counted(len(self.raw.files), 'image')}, {counted(len(self.raw), 'box', 'boxes')}"
        head = ("severity", "finding", "what was found", "records", "what to do")
        told = notes([counts if rows else f"{counts}: nothing wrong was found"])
        return fragment(told + (table(head, rows, words=5) if rows else ""))

    @cached_property
    def _records(self) -> Records:
        return Records.of(self.annotations.instances)

    @cached_property
    def usable(self) -> np.ndarray:
        """Indices of the records with an image that can be used."""
        faulty = {self.raw.files[i] for i in self.files.faults}
        return np.setdiff1d(np.arange(len(self._records)), self._records.rows_of(faulty) if faulty else [])

    @property
    def usable_boxes(self) -> int:
        """Number of training targets of the usable records."""
        return int(self._records.target_counts[self.usable].sum())

    @property
    def boxes(self) -> np.ndarray:
        """Corners of the targets of all records, in [0, 1]."""
        return self._records.corners

    @property
    def shown(self) -> list[Instance]:
        """Evenly spaced ones of the usable records, to be shown on the page."""
        usable = np.intersect1d(self.usable, self._records.rows_of(set(self.raw.files)))
        return [self._records[int(usable[i])] for i in spread_indices(len(usable))]


def spread_indices(count: int) -> list[int]:
    """Return evenly spaced indices of the images to show."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(SHOWN, count)).tolist()}) if count else []


def examine(
    data: str | Data,
    rules: ReadingRules | None = None,
    *,
    heldout: Data | HeldOut | None = None,
    training: Data | None = None,
    max_objects: int | None = None,
) -> list[Finding]:
    """Run every check on a data set, and return what is wrong with it, the most severe first.

    Args:
        data: annotations of any format, what `open_source` returned for them, or an image set
        rules: how annotations are read, and what they are held against; the defaults of `InspectionRules` if None
        heldout: a held-out set, or its images alone, which is compared with the data
        training: a training set, which `data` is held out from; only without `heldout`
        max_objects: largest number of objects in a target text, in place of that of the rules

    Raises:
        InputError: the annotations cannot be read at all, or contain no records.

    Example:
        >>> import json, pathlib, tempfile
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> Image.new("RGB", (64, 48)).save(folder / "a.png")
        >>> boxes = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}] * 2
        >>> _ = (folder / "a.jsonl").write_text(json.dumps({"image": "a.png", "objects": boxes}))
        >>> [(finding.code, finding.severity, finding.count) for finding in examine(folder / "a.jsonl")]
        [('duplicates', 'error', 1), ('no_evidence', 'note', 2)]
    """
    source = local_path(data) if isinstance(data, str) else data
    given = InspectionRules.of(rules, max_objects=max_objects)
    return list(examination_of(source, given, heldout=heldout, training=training).findings)


def examination_of(
    data: Data,
    rules: ReadingRules | None = None,
    *,
    heldout: Data | HeldOut | None = None,
    training: Data | None = None,
) -> Examination:
    """Run every check on a data set, and return the findings with what they were found in; see `examine`."""
    rules = InspectionRules.of(rules)
    evidence, small = _large_enough(evidence_of(data, rules), rules.min_side)
    if small and not evidence.raw.files:
        raise InputError(f"min_side: {evidence.named}: {small[0].message}, and none is left: choose a lower one")
    annotations, raw, root, files = evidence.annotations, evidence.raw, evidence.root, evidence.files
    if not raw.files and not annotations.problems:
        raise InputError(f"{evidence.named}: expected images and their objects, found none; check the file")
    findings = [*small, *records.unreadable_images(raw, files, evidence.named), *records.no_boxes(annotations, raw)]
    findings += [*records.deep_images(files), *records.splits_together(raw)]
    findings += records.crowds(annotations)
    findings += [*findings_without_pixels(evidence), *evidence.partners.findings]
    unit, boxes_fit, explained, turned = "", False, False, set[int]()
    sizes_I2 = np.where(files.sizes > 0, files.sizes, raw.stated_I2)
    if len(raw) and (raw.unit != "pixels" or np.isfinite(sizes_I2).any()):
        sizes_I2[~np.isfinite(sizes_I2)] = np.nanmedian(sizes_I2) if np.isfinite(sizes_I2).any() else 1
        geometry_findings, meaning = examine_geometry(raw, sizes_I2, _suitable_sample(raw, sizes_I2, files, root))
        explained = any(f.severity == "error" and f.code != "unknown_numbers" for f in geometry_findings)
        exif_findings, turned = examine_turned(raw, files, root, meaning.boxes)
        findings += [*geometry_findings, *exif_findings]
        unit, boxes_fit = meaning.unit, meaning.z >= SIGNIFICANT
        if not explained and not turned:
            findings += beside_by_a_pixel(raw, meaning.boxes, files, root)
    size_findings = records.stated_sizes(raw, files, turned, unit, boxes_fit)
    codes = {finding.code for finding in findings}
    findings += [finding for finding in size_findings if finding.code not in codes]
    findings += records.refused(annotations, explained or bool(size_findings), raw)
    same_images = duplicates.duplicate_images(raw.files, files, annotations.instances)
    findings += [*records.duplicate_boxes(raw), *same_images, *names.class_names(raw)]
    findings += records.object_counts(raw, rules.max_objects)
    findings += [] if any(finding.code == "one_off" for finding in findings) else records.one_off(raw)
    findings += [] if explained else records.contradicted(annotations, raw)
    own, leak_roots = (raw.files, files, root), None
    if heldout is not None or training is not None:
        train = own if training is None or heldout is not None else _images_of(training, rules)
        held = own if heldout is None else _images_of(heldout, rules)
        leak_roots = (train[2], held[2])
        findings += duplicates.leakage(*train[:2], *held[:2])
    told = (*evidence.notes, *(counted_note(count, note) for note, count in annotations.notes.items()))
    return Examination(tuple(most_severe_first(findings)), annotations, raw, files, root, leak_roots, told)


def _large_enough(evidence: Evidence, min_side: int) -> tuple[Evidence, list[Finding]]:
    """Return the evidence without images that have a side of fewer pixels, and the finding that counts them."""
    sizes_I2 = np.where(evidence.files.sizes > 0, evidence.files.sizes, evidence.raw.stated_I2)
    small_I = np.asarray((sizes_I2 < min_side).any(axis=1))  # of an unknown size none is
    if not (count := int(small_I.sum())):
        return evidence, []
    boxes = int(small_I[evidence.raw.image_N].sum())
    message = f"{counted(count, 'image')} with a side below {min_side} pixels, and {counted(boxes, 'box', 'boxes')}, "
    told = f"the first: {evidence.raw.files[int(np.flatnonzero(small_I)[0])]}"
    finding = Finding("small_images", "note", f"{message}are left out here", told, count, "min_side=0 examines them")
    return evidence.of_images(~small_I), [finding]


def _images_of(data: Data | HeldOut, rules: InspectionRules) -> tuple[Sequence[str], Looks, Path]:
    """Return paths, files and folder of the images of a set that is compared with another."""
    if isinstance(data, HeldOut):
        return data.names, ImageFolder(data.root).look_at_all(data.names), data.root
    evidence, _ = _large_enough(evidence_of(data, rules), rules.min_side)
    return evidence.raw.files, evidence.files, evidence.root


def evidence_of(data: Data, rules: ReadingRules | None = None) -> Evidence:
    """Return what a set was read from; it is read here only if nobody has read it before.

    A refused object does not affect its image here, whatever `rules` say, so that the others are examined.

    Raises:
        InputError: the annotations cannot be read, or the image set has dropped its evidence.
    """
    if isinstance(data, Evidence):
        return data
    if not isinstance(data, ImageSet):
        return gather_evidence(data, (rules or ReadingRules()).model_copy(update={"on_bad_box": "drop_box"}))
    if data.evidence is None:
        raise InputError(f"{data.name}: expected a set with its evidence, found one that dropped it; load it again")
    return data.evidence


def _suitable_sample(raw: RawBoxes, sizes_I2: np.ndarray, files: Looks, root: Path) -> Sample:
    """Return thumbnails with their boxes; images with an EXIF orientation are used only if the others are too few.

    They are not used if `examine_turned` finds that their boxes refer to the stored pixels.
    """
    sample = _sample(raw, files, upright=True)
    if len(sample.maps) >= ENOUGH or (files.orientations == 1).all():
        return sample
    everything = _sample(raw, files, upright=False)
    declared = declared_meaning(raw, sizes_I2, sample).boxes
    findings, _ = examine_turned(raw, files, root, declared)
    if all(finding.severity != "error" for finding in findings):
        return everything
    # A rotation also gains a little where the axes are swapped, which fits better; `rotated` fits as well as the tag.
    _, meaning = examine_geometry(raw, sizes_I2, everything)
    findings, _ = examine_turned(raw, files, root, declared, meaning.boxes)
    return everything if all(finding.severity == "note" for finding in findings) else sample


def _sample(raw: RawBoxes, files: Looks, upright: bool) -> Sample:
    """Return the thumbnails with their boxes, of all images or only of those that are stored upright."""
    tells_nothing = records.nearly_uniform(files)
    kept = [i for i in files.compared if (files.orientations[i] == 1 or not upright) and not tells_nothing[i]]
    maps = EdgeMaps.of(small for i in kept if (small := files.thumbnail(i)) is not None)
    place = np.full(len(files), -1)
    place[kept] = np.arange(len(kept))
    rows_n = np.flatnonzero(place[raw.image_N] >= 0)
    return Sample(maps, rows_n, place[raw.image_N[rows_n]], groups_of_alike(files.hashes[kept]))
