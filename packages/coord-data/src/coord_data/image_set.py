"""A named, checked set of annotated images that training and scoring both use.

`data.formats` reads the annotations once. Images that cannot be decoded, that differ in size from the annotations or
that lie outside their folder are added to the problems. Training and scoring leave out the same records.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import normpath
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from coord_codec import AnnotationSet, Category, InputError, Instance, Problem, RunError
from coord_codec.images import ImageError, decode_image
from coord_codec.records import phrase_of, raise_for
from coord_data.classes import absent_classes, class_categories, select_classes
from coord_data.formats.registry import base_of, read_source
from coord_data.image_file import MISSING, look_at, where_it_is
from coord_data.large.check import Rules
from coord_data.large.records import Records
from coord_data.large.store import Stream, is_large, keep_records
from coord_data.rules import ReadingRules

_LOG = logging.getLogger(__name__)

FULL_CHECK_LIMIT = 5000
"""In larger sets images are checked by their headers and hashed by name and size, since decoding 118k is slow."""


@dataclass(frozen=True)
class ImageSet:
    """Annotated images that can be opened.

    Attributes:
        name: name of the set, such as `train` or `heldout`
        annotations: the usable images with their objects, and the problems of those that were left out
        root: folder that image paths are relative to
        digest: hash of annotations and images
        held_in_memory: generated images by path
        told: notes for the user on how the annotations were read
        base: folder that images must lie in; `root` if None
        part: file with an evenly drawn subset of the unchanged records of a large file
    """

    name: str
    annotations: AnnotationSet
    root: Path
    digest: str
    held_in_memory: Mapping[str, Image.Image] = field(default_factory=dict, repr=False)
    told: tuple[str, ...] = ()
    base: Path | None = None
    part: Path | None = None

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
        if isinstance(self.instances, Records):
            return self.instances.target_counts
        return np.array([len(instance.targets) for instance in self.instances], dtype=np.int64)

    @property
    def words(self) -> frozenset[str]:
        """The distinct descriptions of the targets."""
        if isinstance(self.instances, Records):
            return self.instances.words
        return frozenset(target.desc for instance in self.instances for target in instance.targets)

    @property
    def image_sizes(self) -> np.ndarray:
        """Width and height of each image in pixels; 0 if unknown."""
        if isinstance(self.instances, Records):
            return self.instances.image_sizes
        return np.array([(i.width or 0, i.height or 0) for i in self.instances], dtype=np.int64).reshape(-1, 2)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the categories, which queries may ask for."""
        return tuple(category.name for category in self.annotations.categories)

    def select(self, instances: Sequence[Instance]) -> ImageSet:
        """Return the set with these instances only."""
        return replace(self, annotations=self.annotations.select(instances))

    def first(self, count: int | None) -> ImageSet:
        """Return the set with its first `count` images only and a note that says so; all images if `count` is None."""
        if count is None or count >= len(self):
            return self
        chosen = self.instances[:count]
        told = (*self.told, f"the first {count} of {len(self)} images are used (data.limit is {count})")
        return replace(self.select(chosen), digest=_digest(chosen, self.root), told=told)

    def ground_truth(self, limit: int | None = None) -> AnnotationSet:
        """Return the ground truth of the first `limit` images: training targets and crowd regions."""
        return self.annotations.select(self.instances[:limit])

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
    annotations: Path,
    images: Path | None,
    name: str,
    strict: bool,
    data: ReadingRules | None = None,
    scored: bool = False,
) -> ImageSet:
    """Read annotations of any format and check every image.

    Args:
        annotations: a file or a folder
        images: folder that image paths are relative to; derived from the format if None
        name: name of the set
        strict: treat any problem as an error
        data: `format`, `on_bad_box`, `allow_outside` and `classes`; their defaults if None
        scored: keep the pixel boxes of a COCO file in memory for scoring, however large the file is

    Raises:
        InputError: the annotations are unreadable, no image is usable, or (if `strict`) there is a problem.
    """
    data = data or ReadingRules()
    large = is_large(annotations, data)
    if large is not None and not (scored and large[1] == "coco"):
        _LOG.info(f"{name}: reading {large[0]} ({large[0].stat().st_size / 1e6:,.0f} MB)")
        return _load_large(*large, images, name, strict, data)
    source = read_source(annotations, images, data.format, data.on_bad_box, data.geometry)
    loaded, base = source.annotations, None if data.allow_outside else source.base
    root = loaded.root or source.base
    decode = len(loaded.instances) <= FULL_CHECK_LIMIT
    notes = Counter(loaded.notes)
    bar = tqdm(loaded.instances, desc=f"checking {name} images", unit="img", leave=False, mininterval=0.5)
    checked = [
        (instance, look_at(root, base, instance.image, (instance.width, instance.height), decode, notes))
        for instance in bar
    ]
    good = [instance for instance, fault in checked if fault is None]
    problems = (*loaded.problems, *(fault for _, fault in checked if fault is not None))
    _refuse(annotations, problems, len(good), strict, root, named=images is not None)
    usable = select_classes(loaded.select(good), data.classes, str(annotations), notes)
    usable = replace(usable, problems=problems, notes=dict(+notes))
    told = (*source.notes, *_note_repeated(usable.instances), *absent_classes(loaded.categories, data.classes))
    return ImageSet(name, usable, root, _digest(usable.instances, root), told=told, base=source.base)


def _note_repeated(instances: Sequence[Instance]) -> tuple[str, ...]:
    """Return a note if images have several records, each of which teaches that the others' objects are not there."""
    if isinstance(instances, Records):
        repeated = instances.repeated
    else:
        counts = Counter(normpath(instance.image) for instance in instances if phrase_of(instance) is None)
        repeated = [image for image, count in counts.items() if count > 1]
    if not repeated:
        return ()
    images = "1 image has" if len(repeated) == 1 else f"{len(repeated)} images have"
    return (f"{images} several records, such as {repeated[0]}: merge them into one record per image",)


def _refuse(annotations: Path, problems: Sequence[Problem], good: int, strict: bool, root: Path, named: bool) -> None:
    """Raise an `InputError` if `strict` is set and there are problems, or if no usable image is left."""
    if problems and strict:
        raise InputError(f"{problems[0]} ({len(problems)} such problems; data.strict is on)")
    if not good:
        reason = f"; the first problem: {problems[0]}" if problems else ", as there are no records"
        missing = [problem.where for problem in problems if (problem.field, problem.message) == ("image", MISSING)]
        where = where_it_is(os.path.relpath(missing[0], root), annotations) if missing else ""
        if missing and (where or not named):
            where = f"; data.images (--images) names the folder that its paths are relative to{where}"
        raise InputError(f"{annotations}: no usable image is left{reason}{where}")


def _load_large(path: Path, kind: str, images: Path | None, name: str, strict: bool, data: ReadingRules) -> ImageSet:
    """Stream a file into an Arrow file, or use the one cached for the same file and images."""
    root, base = images or path.parent, images or base_of(path)
    rules = Rules(root, None if data.allow_outside else base, data.on_bad_box, data.classes)
    settings = (kind, str(root.resolve()), str(base.resolve()), data.on_bad_box, data.allow_outside, data.classes)
    store = keep_records(path, root, settings, Stream(path, kind, rules, name))
    problems = tuple(Problem(**fault) for fault in store.facts["problems"])
    if data.on_bad_box == "error":
        refused = [problem for problem in problems if problem.is_box]
        raise_for(refused, f"{len(refused)} objects are refused; data.on_bad_box is error")
    _refuse(path, problems, len(store.records), strict, root, named=images is not None)
    stated = [Category(*row) for row in store.facts["categories"]]
    categories = class_categories(stated, data.classes, str(path))
    loaded = AnnotationSet(store.records, problems, categories, store.facts["notes"], root)
    told = (*_note_repeated(store.records), *absent_classes(stated, data.classes))
    return ImageSet(name, loaded, root, store.digest, told=told, base=base, part=store.part)


def _digest(instances: Sequence[Instance], root: Path) -> str:
    content = len(instances) <= FULL_CHECK_LIMIT
    sha = hashlib.sha256(b"content" if content else b"listing")
    for instance in instances:
        sha.update(instance.model_dump_json(exclude_unset=True).encode())
        path = root / instance.image
        sha.update(path.read_bytes() if content else str(path.stat().st_size).encode())
    return sha.hexdigest()[:16]
