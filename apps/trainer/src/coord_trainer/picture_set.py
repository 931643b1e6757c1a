"""A named set of annotated pictures, loaded, checked and digested: what training and scoring both read."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

from coord_codec import CoordGrid, Instance, Problem, read_instances

from .coco import Reading, read_coco
from .config import RunConfig
from .config_sections import ShapesConfig
from .errors import InputError
from .ranks import is_first
from .shapes import draw_shapes

# Above this many pictures only headers are checked and hashed by name and size: decoding 118k takes a while.
FULL_CHECK_LIMIT = 5000
_GRID = CoordGrid()


@dataclass(frozen=True)
class PictureSet:
    """Instances with pictures that can be opened, the truth that scoring uses, and what was left out."""

    name: str
    instances: Sequence[Instance]
    root: Path
    ground_truth: Path | None
    digest: str
    problems: Sequence[Problem] = ()
    notes: Counter[str] = field(default_factory=Counter)
    held_in_memory: dict[str, Image.Image] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.instances)

    def only(self, index: int) -> PictureSet:
        """The same set with one picture."""
        return replace(self, instances=[self.instances[index]])

    def picture(self, index: int) -> Image.Image:
        """The picture of instance `index`, in RGB."""
        name = self.instances[index].image
        if name in self.held_in_memory:
            return self.held_in_memory[name]
        with Image.open(self.root / name) as image:
            return image.convert("RGB")


def load_annotated(annotations: Path, images: Path | None, name: str, strict: bool) -> PictureSet:
    """Read COCO JSON or instance JSONL and check every picture.

    Raises:
        InputError: unreadable annotations, nothing usable left, or (when `strict`) the first bad record.
    """
    reading, root = _read(annotations, images)
    checked = [_check_picture(root, instance, len(reading.instances)) for instance in _watch(reading, name)]
    problems = [*reading.problems, *(problem for problem in checked if problem is not None)]
    if problems and strict:
        first = problems[0]
        raise InputError(
            f"{first.where}: {first.field}: {first.message} ({len(problems)} such problems; data.strict is on)"
        )
    good = [i for i, problem in zip(reading.instances, checked, strict=True) if problem is None]
    thin = sum(_is_thin(found.bbox) for instance in good for found in instance.objects)
    if thin:
        reading.notes["boxes thinner than a bin, which no answer can show"] += thin
    if not good:
        reason = f"; the first problem: {problems[0].where}: {problems[0].message}" if problems else ""
        raise InputError(f"{annotations}: no usable picture is left{reason}")
    return PictureSet(
        name=name,
        instances=good,
        root=root,
        ground_truth=annotations,
        digest=_digest(good, root),
        problems=problems,
        notes=reading.notes,
    )


def _read(annotations: Path, images: Path | None) -> tuple[Reading, Path]:
    if images is not None and not images.is_dir():
        raise InputError(
            f"data.images: expected a folder of pictures, found nothing of that kind at {images}"
        )
    if annotations.suffix != ".jsonl":
        return read_coco(annotations), images or annotations.parent
    try:
        found = read_instances(annotations)
    except (OSError, ValueError) as error:
        raise InputError(f"{annotations}: {error}") from None
    return Reading(list(found.instances), list(found.problems)), images or annotations.parent


def _watch(reading: Reading, name: str):
    return tqdm(reading.instances, desc=f"checking {name} pictures", unit="img", leave=False, mininterval=0.5)


def _check_picture(root: Path, instance: Instance, total: int) -> Problem | None:
    path = root / instance.image
    try:
        with Image.open(path) as image:
            size = image.size
            if total <= FULL_CHECK_LIMIT:
                image.load()
    except FileNotFoundError:
        return Problem(str(path), "image", "the file does not exist")
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return Problem(str(path), "image", f"cannot be decoded ({error})")
    stated = (instance.width, instance.height)
    if None not in stated and stated != size:
        message = f"the annotations say {stated[0]} x {stated[1]} pixels, the file has {size[0]} x {size[1]}"
        return Problem(str(path), "width, height", message)
    return None


def _is_thin(box: Sequence[float]) -> bool:
    x1, y1, x2, y2 = map(_GRID.quantize, box)
    return x1 == x2 or y1 == y2


def _digest(instances: Sequence[Instance], root: Path) -> str:
    content = len(instances) <= FULL_CHECK_LIMIT
    sha = hashlib.sha256(b"content" if content else b"listing")
    for instance in instances:
        sha.update(instance.model_dump_json().encode())
        path = root / instance.image
        sha.update(path.read_bytes() if content else str(path.stat().st_size).encode())
    return sha.hexdigest()[:16]


def make_shapes(config: ShapesConfig, split: str, count: int, folder: Path, keep_files: bool) -> PictureSet:
    """Draw a split of the shapes; pictures go to `folder` when `keep_files`, else stay in memory."""
    instances, pictures, sha = [], {}, hashlib.sha256(b"shapes")
    drawn = draw_shapes(config, split, count)
    for instance, picture in tqdm(
        drawn, total=count, desc=f"drawing {split} pictures", unit="img", mininterval=0.5
    ):
        instances.append(instance)
        sha.update(instance.model_dump_json().encode() + picture.tobytes())
        pictures[instance.image] = picture
        if keep_files:
            path = folder / instance.image
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path)
    return PictureSet(
        name=split,
        instances=instances,
        root=folder,
        ground_truth=None,
        digest=sha.hexdigest()[:16],
        held_in_memory=pictures,
    )


def draw_sets(config: RunConfig, folder: Path) -> tuple[PictureSet, PictureSet]:
    """Training and held-out shapes; the held-out pictures are kept in `folder` for the report."""
    shapes = config.data.shapes
    train = make_shapes(shapes, "train", shapes.train, folder, keep_files=False)
    return train, make_shapes(shapes, "heldout", shapes.heldout, folder, keep_files=is_first())


def load_sets(config: RunConfig) -> tuple[PictureSet, PictureSet | None]:
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


def sets_of(config: RunConfig, folder: Path) -> tuple[PictureSet, PictureSet | None]:
    """`load_sets` or `draw_sets`, whichever the configuration asks for."""
    return load_sets(config) if config.data.annotations is not None else draw_sets(config, folder)


def write_problems(path: Path, sets: Sequence[PictureSet]) -> None:
    """List every record that was left out, a JSON line each, where somebody will look for it."""
    lines = [
        json.dumps({"set": s.name, "where": p.where, "field": p.field, "message": p.message})
        for s in sets
        for p in s.problems
    ]
    if lines:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
