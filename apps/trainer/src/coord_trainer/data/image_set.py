"""A named set of annotated images, checked and digested: what training and scoring both use.

`data.formats` reads the annotations once. Images that cannot be decoded, whose size is not the one that the annotations
state, or that lie outside their folder join its problems; whatever is left out of training is left out of scoring too.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import normpath
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from tqdm import tqdm

from coord_codec import AnnotationSet, Category, InputError, Instance, Problem, read_annotations, write_instances
from coord_codec.records import raise_for
from coord_eval import decode_image
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection, ShapesConfig
from coord_trainer.console import is_first, say
from coord_trainer.data.formats.registry import base_of, read_source
from coord_trainer.data.large.check import Rules
from coord_trainer.data.large.records import Records
from coord_trainer.data.large.store import Stream, is_large, keep_records
from coord_trainer.data.queries import phrase_of
from coord_trainer.data.shapes import draw_shapes
from coord_trainer.data.usable.classes import class_categories, select_classes
from coord_trainer.data.usable.image import MISSING, look_at, where_it_is

FULL_CHECK_LIMIT = 5000
"""Above this many images only headers are checked, and files are digested by name and size: decoding 118k is slow."""


@dataclass(frozen=True)
class ImageSet:
    """Annotated images that can be opened.

    Attributes:
        name: `train` or `heldout`
        annotations: the usable images with their objects, and every problem of those that were left out
        root: the folder that image paths are relative to
        digest: of annotations and images
        held_in_memory: drawn images by their path
        told: how the annotations were read, where that is not evident
        base: the folder that images may not leave; `root` when None
        part: of a large file another one, with an even part of its records as they stand there
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
        """One record per image, crowd regions among its objects."""
        return self.annotations.instances

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was left out of training and scoring."""
        return self.annotations.problems

    @property
    def target_counts(self) -> np.ndarray:
        """How many objects of each image are targets."""
        if isinstance(self.instances, Records):
            return self.instances.target_counts
        return np.array([len(instance.targets) for instance in self.instances], dtype=np.int64)

    @property
    def words(self) -> frozenset[str]:
        """The different descriptions of its targets."""
        if isinstance(self.instances, Records):
            return self.instances.words
        return frozenset(found.desc for instance in self.instances for found in instance.targets)

    @property
    def image_sizes(self) -> np.ndarray:
        """Width and height of each image in pixels; 0 where unknown."""
        if isinstance(self.instances, Records):
            return self.instances.image_sizes
        return np.array([(i.width or 0, i.height or 0) for i in self.instances], dtype=np.int64).reshape(-1, 2)

    @property
    def classes(self) -> tuple[str, ...]:
        """The descriptions of its categories, which queries may ask for."""
        return tuple(category.name for category in self.annotations.categories)

    def select(self, instances: Sequence[Instance]) -> ImageSet:
        """The same set with these instances only."""
        return replace(self, annotations=self.annotations.select(instances))

    def first(self, count: int | None) -> ImageSet:
        """The same set with its first `count` images only, which is said; all of them for None."""
        if count is None or count >= len(self):
            return self
        chosen = self.instances[:count]
        told = (*self.told, f"{count} of {len(self)} images are taken, the first; data.limit is {count}")
        return replace(self.select(chosen), digest=_digest(chosen, self.root), told=told)

    def ground_truth(self, limit: int | None = None) -> AnnotationSet:
        """What answers to the first `limit` images are scored against: the targets of training, and crowd regions."""
        return self.annotations.select(self.instances[:limit])

    def image(self, index: int) -> Image.Image:
        """The image of instance `index`, upright in RGB: the one decoder of training, prediction and reports."""
        name = self.instances[index].image
        return self.held_in_memory[name] if name in self.held_in_memory else decode_image(self.root / name)


def load_annotated(
    annotations: Path,
    images: Path | None,
    name: str,
    strict: bool,
    data: DataSection | None = None,
    scored: bool = False,
) -> ImageSet:
    """Read annotations of any format and check every image.

    Args:
        annotations: a file or a folder
        images: the folder that its paths are relative to; told by the format when None
        name: of the set
        strict: any problem is an error
        data: `format`, `on_bad_box`, `allow_outside` and `classes`; their defaults when None
        scored: keep the pixel rows of a COCO file, which it is scored by, in memory however large it is

    Raises:
        InputError: unreadable annotations, no usable image left, or (when `strict`) any problem.
    """
    data = data or DataSection()
    large = is_large(annotations, data)
    if large is not None and not (scored and large[1] == "coco"):
        say(f"{name}: reading {large[0]} ({large[0].stat().st_size / 1e6:,.0f} MB)")
        return _load_large(*large, images, name, strict, data)
    source = read_source(annotations, images, data.format, data.on_bad_box, data.geometry)
    found, base = source.annotations, None if data.allow_outside else source.base
    root = found.root or source.base
    decode = len(found.instances) <= FULL_CHECK_LIMIT
    notes = Counter(found.notes)
    bar = tqdm(found.instances, desc=f"checking {name} images", unit="img", leave=False, mininterval=0.5)
    checked = [
        (instance, look_at(root, base, instance.image, (instance.width, instance.height), decode, notes))
        for instance in bar
    ]
    good = [instance for instance, fault in checked if fault is None]
    problems = (*found.problems, *(fault for _, fault in checked if fault is not None))
    _refuse(annotations, problems, len(good), strict, root, named=images is not None)
    usable = select_classes(found.select(good), data.classes, str(annotations), notes)
    usable = replace(usable, problems=problems, notes=dict(+notes))
    told = (*source.notes, *_repeated(usable.instances))
    return ImageSet(name, usable, root, _digest(usable.instances, root), told=told, base=source.base)


def _repeated(instances: Sequence[Instance]) -> tuple[str, ...]:
    """Say how many images several records have: each teaches that there is nothing but its own objects."""
    if isinstance(instances, Records):
        found = instances.repeated
    else:
        times = Counter(normpath(instance.image) for instance in instances if phrase_of(instance) is None)
        found = [image for image, count in times.items() if count > 1]
    if not found:
        return ()
    images = "1 image stands" if len(found) == 1 else f"{len(found)} images stand"
    return (f"{images} in several records, such as {found[0]}: make one record of its objects",)


def _refuse(annotations: Path, problems: Sequence[Problem], good: int, strict: bool, root: Path, named: bool) -> None:
    """Raise an `InputError` when there are problems and none are wanted, or no image is left."""
    if problems and strict:
        raise InputError(f"{problems[0]} ({len(problems)} such problems; data.strict is on)")
    if not good:
        reason = f"; the first problem: {problems[0]}" if problems else ", as there are no records"
        gone = [problem.where for problem in problems if (problem.field, problem.message) == ("image", MISSING)]
        where = where_it_is(os.path.relpath(gone[0], root), annotations) if gone else ""
        if gone and (where or not named):
            where = f"; data.images (--images) names the folder that its paths start from{where}"
        raise InputError(f"{annotations}: no usable image is left{reason}{where}")


def _load_large(path: Path, kind: str, images: Path | None, name: str, strict: bool, data: DataSection) -> ImageSet:
    """Stream a file into an Arrow file, or take the one that was made of the same file and images before."""
    root, base = images or path.parent, images or base_of(path)
    rules = Rules(root, None if data.allow_outside else base, data.on_bad_box, data.classes)
    settings = (kind, str(root.resolve()), str(base.resolve()), data.on_bad_box, data.allow_outside, data.classes)
    store = keep_records(path, root, settings, Stream(path, kind, rules, name))
    problems = tuple(Problem(**fault) for fault in store.facts["problems"])
    if data.on_bad_box == "error":
        refused = [problem for problem in problems if problem.is_box]
        raise_for(refused, f"{len(refused)} objects are refused; data.on_bad_box is error")
    _refuse(path, problems, len(store.records), strict, root, named=images is not None)
    categories = class_categories([Category(*row) for row in store.facts["categories"]], data.classes, str(path))
    found = AnnotationSet(store.records, problems, categories, store.facts["notes"], root)
    return ImageSet(name, found, root, store.digest, told=_repeated(store.records), base=base, part=store.part)


def _digest(instances: Sequence[Instance], root: Path) -> str:
    content = len(instances) <= FULL_CHECK_LIMIT
    sha = hashlib.sha256(b"content" if content else b"listing")
    for instance in instances:
        sha.update(instance.model_dump_json(exclude_unset=True).encode())
        path = root / instance.image
        sha.update(path.read_bytes() if content else str(path.stat().st_size).encode())
    return sha.hexdigest()[:16]


def make_shapes(config: ShapesConfig, split: str, count: int, folder: Path, geometry: str = "box") -> ImageSet:
    """Draw a split of the shapes, of that geometry; the images stay in memory, with paths below `folder`."""
    instances, images, sha = [], {}, hashlib.sha256(b"shapes")
    drawn = draw_shapes(config, split, count, geometry)
    for instance, image in tqdm(drawn, total=count, desc=f"drawing {split} images", unit="img", mininterval=0.5):
        instances.append(instance)
        sha.update(instance.model_dump_json(exclude_unset=True).encode() + image.tobytes())
        images[instance.image] = image
    return ImageSet(split, read_annotations(instances), folder, sha.hexdigest()[:16], images)


def draw_sets(config: RunConfig, folder: Path, drawn: Sequence[ImageSet] = ()) -> tuple[ImageSet, ImageSet]:
    """Training and held-out shapes, those that are `drawn` already among them; `folder` keeps what `keep` says."""
    made = {found.name: replace(found, root=folder) for found in drawn}
    train, heldout = (made.get(name) or draw_set(config, name, folder) for name in ("train", "heldout"))
    return keep(train), keep(heldout)


def draw_set(config: RunConfig, name: Literal["train", "heldout"], folder: Path) -> ImageSet:
    """Draw one of the two sets of shapes; nothing is written."""
    shapes = config.data.shapes
    count = shapes.heldout if name == "heldout" else shapes.train
    return make_shapes(shapes, name, count, folder, config.data.geometry)


def keep(drawn: ImageSet) -> ImageSet:
    """Write the ground truth of drawn images into their folder, and the held-out images themselves; the same set."""
    if is_first():
        drawn.root.mkdir(parents=True, exist_ok=True)
        write_instances(drawn.root / f"{drawn.name}.jsonl", drawn.instances)
        for name, image in drawn.held_in_memory.items() if drawn.name == "heldout" else ():
            path = drawn.root / name
            path.parent.mkdir(exist_ok=True)
            image.save(path)
    return drawn
