"""A named, checked set of annotated images that training and scoring both use.

`formats` reads the annotations once. Images that cannot be decoded, that differ in size from the annotations or
that lie outside their folder are added to the problems. Training and scoring leave out the same records.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from PIL import Image

from coord_codec import AnnotationSet, InputError, Instance, Problem, RunError
from coord_codec.counts import counted
from coord_codec.images import ImageError, decode_image
from coord_codec.pages import fragment, notes, table, tiles
from coord_codec.problems import raise_for_refused
from coord_data.formats.annotation_format import Evidence
from coord_data.formats.coco import base_of, has_many
from coord_data.formats.registry import open_source
from coord_data.looking.image_file import FULL_CHECK_LIMIT, MISSING, ImageFolder, problem_of, where_it_is
from coord_data.reading.cache import kept_records
from coord_data.reading.classes import absent_classes, class_categories, table_of_classes, usable
from coord_data.reading.read import read_by
from coord_data.reading.rules import ReadingRules
from coord_data.records import Records
from coord_data.sources.source import Source


@dataclass(frozen=True)
class ImageSet:
    """Annotated images that can be opened.

    Attributes:
        name: name of the set, such as `train` or `heldout`
        annotations: the usable images with their objects, and the problems of those that were left out
        root: folder that image paths are relative to
        digest: hash of annotations and images
        held_in_memory: generated images by path
        notes: notes for the user on how the annotations were read
        base: folder that images must lie in; `root` if None
        part: an evenly drawn subset of the unchanged records of a file with many images
        evidence: what the set was read from; None for a file with many images or generated ones, and once dropped
    """

    name: str
    annotations: AnnotationSet
    root: Path
    digest: str
    held_in_memory: Mapping[str, Image.Image] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    base: Path | None = None
    part: Source | None = None
    evidence: Evidence | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.annotations.instances)

    @property
    def instances(self) -> Sequence[Instance]:
        """The records, with crowd regions among their objects."""
        return self.annotations.instances

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The records and objects that training and scoring leave out, with the reason."""
        return self.annotations.problems

    @property
    def target_counts(self) -> np.ndarray:
        """Number of training targets of each image."""
        return Records.of(self.instances).target_counts

    @property
    def words(self) -> frozenset[str]:
        """The distinct descriptions of the targets."""
        return Records.of(self.instances).words

    @property
    def image_sizes(self) -> np.ndarray:
        """Width and height of each image in pixels; 0 if unknown."""
        return Records.of(self.instances).image_sizes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the categories, which queries may ask for."""
        return tuple(category.name for category in self.annotations.categories)

    def select(self, instances: Sequence[Instance]) -> ImageSet:
        """Return the set with these instances only."""
        return replace(self, annotations=self.annotations.select(instances))

    def without_evidence(self) -> ImageSet:
        """Return the set without what only its examination needs, such as thumbnails."""
        return replace(self, evidence=None)

    def first(self, count: int | None) -> ImageSet:
        """Return the set with its first `count` images only and a note that says so; all images if `count` is None."""
        if count is None or count >= len(self):
            return self
        chosen = self.instances[:count]
        used = f"the first {count:,} of {counted(len(self), 'image')} are used (limit is {count})"
        notes = (*self.notes, used)
        if self.evidence is not None:
            digest = _digest(chosen, self.evidence.folder)
        else:
            digest = hashlib.sha256(f"{self.digest} {count}".encode()).hexdigest()[:16]
        return replace(self.select(chosen), digest=digest, notes=notes)

    def ground_truth(self, limit: int | None = None) -> AnnotationSet:
        """Return the ground truth of the first `limit` images: training targets and crowd regions."""
        return self.annotations.select(self.instances[:limit])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: counts, the most frequent classes, and what is noted or left out."""
        classes = Counter(target.desc for instance in self.instances for target in instance.targets)
        cells = [
            ("Images", f"{len(self):,}", self.name),
            ("Boxes", f"{classes.total():,}", counted(len(classes), "class", "classes")),
            ("Left out", f"{len(self.problems):,}", "records and objects"),
        ]
        body = tiles(cells) + table(("class", "boxes"), classes.most_common(20))
        return fragment(body + notes([*self.notes, *map(str, self.problems[:3])]))

    def image(self, index: int) -> Image.Image:
        """Return the upright RGB image of instance `index`; training, prediction and reports all use this decoder.

        Raises:
            RunError: the file has changed since it was checked.
        """
        name = self.instances[index].image
        if name in self.held_in_memory:
            return self.held_in_memory[name]
        try:
            return decode_image(self.root / name)
        except ImageError as error:
            raise RunError(f"{self.root / name}: became unreadable during the run ({error})") from None


def load_annotated(
    source: Path | Source, rules: ReadingRules | None = None, *, name: str = "train", scored: bool = False
) -> ImageSet:
    """Read annotations of any format and check every image.

    Args:
        source: a file or a folder, or what `open_source` returned for it
        rules: how to read them; the defaults of `ReadingRules` if None
        name: name of the set
        scored: keep the pixel boxes of a COCO file in memory for scoring, however many images it has

    Raises:
        InputError: the annotations are unreadable, no image is usable, or (`rules.strict`) there is a problem.

    Example:
        >>> import json, pathlib, tempfile
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> Image.new("RGB", (64, 48)).save(folder / "a.png")
        >>> record = {"image": "a.png", "objects": [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}]}
        >>> _ = (folder / "a.jsonl").write_text(json.dumps(record))
        >>> images = load_annotated(folder / "a.jsonl")
        >>> images.instances[0].objects[0].desc, images.evidence.files[0].size
        ('cat', (64, 48))
    """
    rules = rules or ReadingRules()
    source = open_source(source, rules.format, rules.fields)
    if source.format in ("jsonl", "coco") and has_many(source):  # so many that no image is decoded
        root, base = rules.images or source.path.parent, rules.images or base_of(source.path)
        records, digest, part = kept_records(source, base, rules, name, scored=scored)
        images = ImageSet(name, records, root, digest, notes=source.notes, base=base, part=part)
    else:
        evidence = gather_evidence(source, rules, name)
        images = _usable(evidence, rules, name)
    return _checked(source.named, images, rules)


def gather_evidence(source: Path | Source, rules: ReadingRules, name: str = "train") -> Evidence:
    """Read annotations of any format and look at every image, without leaving any image out.

    Args:
        source: a file or a folder, or what `open_source` returned for it
        rules: how to read them
        name: name of the set

    Raises:
        InputError: the annotations are unreadable.
    """
    found = read_by(source, rules)
    base = None if rules.allow_outside else found.base
    files = found.folder.look_at_all(found.raw.files, found.raw.compared_images(), base, f"{name} images")
    return replace(found, files=files)


def _usable(evidence: Evidence, rules: ReadingRules, name: str) -> ImageSet:
    """Return the records whose images can be used."""
    loaded, root = evidence.annotations, evidence.root
    instances, problems, notes = list(loaded.instances), list(loaded.problems), Counter(loaded.notes)
    faults = (
        problem_of(
            evidence.folder.looked(instance.image),
            root / instance.image,
            (instance.width, instance.height),
            notes,
            rules.max_side_ratio,
        )
        for instance in instances
    )
    kept = tuple(usable(instances, faults, rules.classes, problems, notes))
    loaded = replace(loaded.select(kept), problems=tuple(problems), notes=dict(+notes))
    digest = _digest(kept, evidence.folder)
    notes_told = (*evidence.notes, *map(str, evidence.partners.findings))
    return ImageSet(name, loaded, root, digest, notes=notes_told, base=evidence.base, evidence=evidence)


def _checked(path: Path, images: ImageSet, rules: ReadingRules) -> ImageSet:
    """Return usable records with the categories of a class list, and notes on what is unusual in them.

    Raises:
        InputError: an object is refused (`on_bad_box` is `error`), `strict` is set and there are problems, no usable
            image is left, or no object is of the class list.
    """
    annotations, problems, root = images.annotations, images.problems, images.annotations.root
    if rules.on_bad_box == "error":
        raise_for_refused(problems)
    if problems and rules.strict:
        raise InputError(f"{problems[0]} ({counted(len(problems), 'such problem')}; strict is on)")
    partners = images.evidence.partners.findings if images.evidence is not None and rules.strict else []
    if warning := next((finding for finding in partners if finding.severity == "warning"), None):
        raise InputError(f"{path}: {warning} (strict is on)")
    if not annotations.instances:
        missing = [problem for problem in problems if (problem.field, problem.message) == ("image", MISSING)]
        absent = [problem for problem in problems if problem.message.startswith(MISSING)]
        decisive = next(iter(absent), problems[0] if problems else None)  # a box of a missing image matters less
        reason = f"; the first problem: {decisive}" if decisive else ", as there are no records"
        where = where_it_is(os.path.relpath(missing[0].where, root), path) if missing else ""
        if missing and (where or rules.images is None):
            where = f"; images (--images) names the folder that its paths are relative to{where}"
        raise InputError(f"{path}: no usable image is left{reason}{where}")
    categories = class_categories(annotations.categories, rules.classes, str(path))
    table = table_of_classes(annotations.table, annotations.categories, categories)
    notes, lacking = list(images.notes), absent_classes(annotations.categories, rules.classes)
    if repeated := Records.of(annotations.instances).repeated:  # each record denies the objects of the others
        several = counted(len(repeated), "image has", "images have")
        notes.append(f"{several} several records, such as {repeated[0]}: merge them into one record per image")
    annotations = replace(annotations, categories=categories, table=table)
    return replace(images, annotations=annotations, notes=(*notes, *lacking))


def _digest(instances: Sequence[Instance], folder: ImageFolder) -> str:
    """Return a hash of records and of the content of their images, or of their sizes if there are too many images."""
    content = len(instances) <= FULL_CHECK_LIMIT
    sha = hashlib.sha256(b"content" if content else b"listing")
    for instance in instances:
        sha.update(instance.model_dump_json(exclude_unset=True).encode())
        size = 0 if content else (folder.root / instance.image).stat().st_size
        sha.update((folder.looked(instance.image).digest if content else str(size)).encode())
    return sha.hexdigest()[:16]
