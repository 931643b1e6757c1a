"""A named set of annotated images, checked and digested: what training and scoring both use.

`coord_codec.read_annotations` reads the annotations once. Images that cannot be decoded, or whose size is not the one
that the annotations state, join its problems; whatever is left out of training is left out of scoring too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

from coord_codec import AnnotationSet, CoordGrid, InputError, Instance, Problem, read_annotations, write_instances
from coord_codec.files import write_text
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import ShapesConfig
from coord_trainer.console import RunError, is_first, say
from coord_trainer.data.shapes import draw_shapes

FULL_CHECK_LIMIT = 5000
"""Above this many images only headers are checked, and files are digested by name and size: decoding 118k is slow."""

MAX_ASPECT_RATIO = 200
"""Of the longer side to the shorter one; the image processor of Qwen raises above it, in the middle of training."""

_GRID = CoordGrid()
UNDECODABLE = (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises when a file is missing, no image, damaged or too large."""


@dataclass(frozen=True)
class ImageSet:
    """Annotated images that can be opened.

    Attributes:
        name: `train` or `heldout`
        annotations: the usable images with their objects, and every problem of those that were left out
        root: the folder that image paths are relative to
        digest: of annotations and images
        held_in_memory: drawn images by their path
    """

    name: str
    annotations: AnnotationSet
    root: Path
    digest: str
    held_in_memory: Mapping[str, Image.Image] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.annotations.instances)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """One record per image, crowd regions among its objects."""
        return self.annotations.instances

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was left out of training and scoring."""
        return self.annotations.problems

    def select(self, instances: Sequence[Instance]) -> ImageSet:
        """The same set with these instances only."""
        return replace(self, annotations=self.annotations.select(instances))

    def ground_truth(self, limit: int | None = None) -> AnnotationSet:
        """What answers to the first `limit` images are scored against: the targets of training, and crowd regions."""
        return self.annotations.select(self.instances[:limit])

    def image(self, index: int) -> Image.Image:
        """The image of instance `index`, in RGB."""
        name = self.instances[index].image
        if name in self.held_in_memory:
            return self.held_in_memory[name]
        with Image.open(self.root / name) as image:
            return image.convert("RGB")


def load_annotated(annotations: Path, images: Path | None, name: str, strict: bool) -> ImageSet:
    """Read COCO JSON or instance JSONL and check every image.

    Args:
        annotations: the file
        images: the folder that its paths are relative to; the file's own when None
        name: of the set
        strict: any problem is an error

    Raises:
        InputError: unreadable annotations, no usable image left, or (when `strict`) any problem.
    """
    if images is not None and not images.is_dir():
        raise InputError(f"data.images: expected a folder of images, found nothing of that kind at {images}")
    root = images or annotations.parent
    found = read_annotations(annotations, images, image_size=lambda file_name: _size(root / file_name))
    decode = len(found.instances) <= FULL_CHECK_LIMIT
    bar = tqdm(found.instances, desc=f"checking {name} images", unit="img", leave=False, mininterval=0.5)
    checked = [(instance, _check_image(root, instance, decode)) for instance in bar]
    good = [instance for instance, fault in checked if fault is None]
    problems = (*found.problems, *(fault for _, fault in checked if fault is not None))
    if problems and strict:
        raise InputError(f"{problems[0]} ({len(problems)} such problems; data.strict is on)")
    if not good:
        reason = f"; the first problem: {problems[0]}" if problems else ""
        raise InputError(f"{annotations}: no usable image is left{reason}")
    notes = dict(found.notes)
    corners = (list(map(_GRID.quantize, target.bbox)) for instance in good for target in instance.targets)
    if thin := sum(x1 == x2 or y1 == y2 for x1, y1, x2, y2 in corners):
        notes["boxes thinner than a bin, which no answer can show"] = thin
    usable = replace(found.select(good), problems=problems, notes=notes)
    return ImageSet(name, usable, root, _digest(good, root))


def _size(path: Path) -> tuple[int, int] | None:
    try:
        with Image.open(path) as image:
            return image.size
    except UNDECODABLE:
        return None


def _check_image(root: Path, instance: Instance, decode: bool) -> Problem | None:
    path = root / instance.image
    try:
        with Image.open(path) as image:
            size = image.size
            if decode:
                image.load()
    except FileNotFoundError:
        return Problem(str(path), "image", "the file does not exist")
    except UNDECODABLE as error:
        return Problem(str(path), "image", f"cannot be decoded ({error})")
    if max(size) > MAX_ASPECT_RATIO * min(size):
        message = (
            f"the file has {size[0]} x {size[1]} pixels; Qwen's image processor refuses sides whose ratio exceeds "
            f"{MAX_ASPECT_RATIO}"
        )
        return Problem(str(path), "width, height", message)
    stated = (instance.width, instance.height)
    if None not in stated and stated != size:
        message = f"the annotations say {stated[0]} x {stated[1]} pixels, the file has {size[0]} x {size[1]}"
        return Problem(str(path), "width, height", message)
    return None


def _digest(instances: Sequence[Instance], root: Path) -> str:
    content = len(instances) <= FULL_CHECK_LIMIT
    sha = hashlib.sha256(b"content" if content else b"listing")
    for instance in instances:
        sha.update(instance.model_dump_json(exclude_unset=True).encode())
        path = root / instance.image
        sha.update(path.read_bytes() if content else str(path.stat().st_size).encode())
    return sha.hexdigest()[:16]


def make_shapes(config: ShapesConfig, split: str, count: int, folder: Path, keep_files: bool) -> ImageSet:
    """Draw a split of the shapes; images go to `folder` when `keep_files`, and stay in memory."""
    instances, images, sha = [], {}, hashlib.sha256(b"shapes")
    drawn = draw_shapes(config, split, count)
    for instance, image in tqdm(drawn, total=count, desc=f"drawing {split} images", unit="img", mininterval=0.5):
        instances.append(instance)
        sha.update(instance.model_dump_json(exclude_unset=True).encode() + image.tobytes())
        images[instance.image] = image
        if keep_files:
            path = folder / instance.image
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
    return ImageSet(split, read_annotations(instances), folder, sha.hexdigest()[:16], images)


def draw_sets(config: RunConfig, folder: Path) -> tuple[ImageSet, ImageSet]:
    """Training and held-out shapes; the held-out images are kept in `folder` for the report."""
    shapes = config.data.shapes
    train = make_shapes(shapes, "train", shapes.train, folder, keep_files=False)
    return train, make_shapes(shapes, "heldout", shapes.heldout, folder, keep_files=is_first())


def load_sets(config: RunConfig) -> tuple[ImageSet, ImageSet | None]:
    """The annotated training set and, when it is scored, the held-out set.

    Raises:
        InputError: bad input, or when both sets turn out to be the same data.
    """
    data = config.data
    train = load_annotated(data.annotations, data.images, "train", data.strict)
    if config.evaluation.pictures != "heldout":
        return train, None
    heldout = load_annotated(data.heldout_annotations, data.heldout_images, "heldout", data.strict)
    if heldout.digest == train.digest:
        raise InputError(
            "data.annotations and data.heldout_annotations hold the same data: name another held-out set, or set "
            "evaluation.pictures: train to measure memorising"
        )
    return train, heldout


def sets_of(config: RunConfig, folder: Path) -> tuple[ImageSet, ImageSet | None]:
    """`load_sets` or `draw_sets`, whichever the configuration asks for."""
    return load_sets(config) if config.data.annotations is not None else draw_sets(config, folder)


def report_sets(folder: Path, sets: Sequence[ImageSet]) -> None:
    """Print what was read and what was left out; `folder/problems.jsonl` lists every problem."""
    path = folder / "problems.jsonl"
    listed = [{"set": images.name} | asdict(problem) for images in sets for problem in images.problems]
    if listed:
        write_text(path, "".join(json.dumps(line) + "\n" for line in listed))
    for images in sets:
        boxes = sum(len(instance.targets) for instance in images.instances)
        say(f"{images.name}: {len(images)} images, {boxes} boxes, digest {images.digest}")
        for reason, count in images.annotations.notes.items():
            say(f"  {count} {reason}")
        if images.problems:
            say(
                f"  {len(images.problems)} problems: these records are left out of training and scoring, see {path}; "
                f"the first: {images.problems[0]}"
            )


def prepare_instances(annotations: Path, images: Path, out: Path, strict: bool) -> None:
    """Write the usable records of `annotations` to `out`, image paths relative to it.

    Raises:
        InputError: bad annotations, or (strict) any bad record.
        RunError: `out` cannot be written.
    """
    found = load_annotated(annotations, images, "given", strict)
    root = os.path.relpath(found.root, out.parent)
    renamed = (i.model_copy(update={"image": str(Path(root) / i.image)}) for i in found.instances)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_instances(out, renamed)
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error.strerror})") from None
    say(f"{len(found)} records in {out}")
    for reason, count in found.annotations.notes.items():
        say(f"{count} {reason}")
    for problem in found.problems:
        say(f"left out: {problem}")
