"""The generated data set: coloured shapes on a noisy background whose boxes are not aligned to pixels.

Shapes are drawn at four times the size and averaged, so that an edge between two pixels changes both. Boxes on a
half-pixel grid would use only a fifth of the bins.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageDraw
from tqdm import tqdm

from coord_codec import Geometry, Instance, Object, geometry_of, read_annotations, shape_of, write_instances
from coord_data.reading.image_set import ImageSet
from coord_detect.console import is_first
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import ShapesConfig

COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 70, 220), "yellow": (225, 205, 40)}
SHAPES = ("circle", "square", "triangle")
CATEGORIES = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
_SUPERSAMPLE = 4
_TRIES = 30
_CIRCLE = 8  # number of vertices: a multiple of four, so that the outline touches all sides of its box
_LARGEST_ANGLE = math.radians(30)


def draw_shapes(
    config: ShapesConfig, split: str, count: int, geometry: str = "box"
) -> Iterator[tuple[Instance, Image.Image]]:
    """Yield `count` instances with their images; the name of the split is part of the seed.

    Points are box centres. Polygons touch all sides of their boxes (triangles with the tip anywhere on the upper side,
    quadrilaterals, octagons for circles), as do oriented boxes, which are rectangles rotated by up to 30 degrees.
    """
    rng = np.random.default_rng([config.seed, *split.encode()])
    for number in range(count):
        image, objects = _draw(rng, config, geometry)
        yield (
            Instance(
                image=f"{split}/{number:05d}.png",
                width=config.size,
                height=config.size,
                image_id=number + 1,
                objects=objects,
            ),
            image,
        )


def _draw(rng: np.random.Generator, config: ShapesConfig, geometry: str) -> tuple[Image.Image, list[Object]]:
    side = config.size * _SUPERSAMPLE
    background = tuple(int(v) for v in rng.integers(180, 250, 3))
    canvas = Image.new("RGB", (side, side), background)
    brush = ImageDraw.Draw(canvas)
    boxes: list[tuple[float, ...]] = []
    objects: list[Object] = []
    for _ in range(rng.integers(1, config.max_objects + 1)):
        box = _free_box(rng, config, boxes)
        if box is None:
            continue
        boxes.append(box)
        colour = list(COLOURS)[rng.integers(config.colours)]
        shape = SHAPES[rng.integers(len(SHAPES))]
        fill = tuple(int(np.clip(v + rng.integers(-25, 26), 0, 255)) for v in COLOURS[colour])
        outline_of = _OUTLINES.get(geometry)
        if outline_of is not None:
            noun, corners = outline_of(rng, shape, box)
            brush.polygon([(x * side, y * side) for x, y in corners], fill=fill)
            shape_of = {"type": geometry, "coordinates": corners}
            objects.append(Object.model_validate({"desc": f"{colour} {noun}", "geometry": shape_of}))
            continue
        _paint(brush, shape, [round(v * side) for v in box], fill)
        objects.append(_with_shape(Object(desc=f"{colour} {shape}", bbox=box), geometry_of(geometry)))
    pixels = np.asarray(canvas.reduce(_SUPERSAMPLE), dtype=np.float32)
    noisy = pixels + rng.normal(0, config.noise, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), objects


def _free_box(rng: Any, config: ShapesConfig, taken: list[tuple[float, ...]]) -> tuple[float, ...] | None:
    for _ in range(_TRIES):
        width = rng.uniform(config.min_side, config.max_side)
        height = float(np.clip(width * rng.uniform(0.8, 1.25), config.min_side, config.max_side))
        x, y = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
        box = (float(x), float(y), float(x + width), float(y + height))
        if not any(_overlap(box, other) for other in taken):
            return box
    return None


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def _paint(brush: ImageDraw.ImageDraw, shape: str, box: list[int], fill: tuple[int, ...]) -> None:
    x1, y1, x2, y2 = box[0], box[1], box[2] - 1, box[3] - 1
    if shape == "circle":
        brush.ellipse([x1, y1, x2, y2], fill=fill)
    elif shape == "square":
        brush.rectangle([x1, y1, x2, y2], fill=fill)
    else:
        brush.polygon([((x1 + box[2]) // 2, y1), (x1, y2), (x2, y2)], fill=fill)


_Outline = tuple[str, list[tuple[float, float]]]


def _rectangle(rng: np.random.Generator, _shape: str, box: tuple[float, ...]) -> _Outline:
    """Return the word for a rotated rectangle, and one that touches all sides of a box."""
    x1, y1, x2, y2 = box
    return "rectangle", [(x1 + x, y1 + y) for x, y in _rotated_corners(rng, x2 - x1, y2 - y1)]


def _outline(rng: np.random.Generator, shape: str, box: tuple[float, ...]) -> _Outline:
    """Return the word for a shape, and its outline, which touches all sides of a box."""
    x1, y1, x2, y2 = box
    width, height = x2 - x1, y2 - y1
    if shape == "triangle":
        unit = [(rng.uniform(0.2, 0.8), 0.0), (1.0, 1.0), (0.0, 1.0)]
    elif shape == "square":
        a, b, c, d = rng.uniform(0.2, 0.8, 4)
        unit = [(a, 0.0), (1.0, b), (c, 1.0), (0.0, d)]
    else:
        angles = 2 * np.pi * np.arange(_CIRCLE) / _CIRCLE
        unit = [(0.5 + 0.5 * math.sin(t), 0.5 - 0.5 * math.cos(t)) for t in angles]
    return shape, [(float(x1 + x * width), float(y1 + y * height)) for x, y in unit]


def _rotated_corners(rng: np.random.Generator, width: float, height: float) -> list[tuple[float, float]]:
    """Return the corners of a rotated rectangle whose bounding box has a width and height and begins at 0, 0."""
    largest = min(_LARGEST_ANGLE, 0.8 * math.atan(min(width / height, height / width)))
    angle = rng.uniform(0.1, largest)
    sin, cos = math.sin(angle), math.cos(angle)
    long = (width * cos - height * sin) / math.cos(2 * angle)
    short = (height * cos - width * sin) / math.cos(2 * angle)
    corners = [(short * sin, 0.0), (width, long * sin), (long * cos, height), (0.0, short * cos)]
    if rng.integers(2):
        corners = [(width - x, y) for x, y in corners]
    return corners


def _with_shape(target: Object, kind: Geometry) -> Object:
    """Return an object with the shape that a geometry derives from its box; unchanged for boxes."""
    return target if kind.is_box else target.model_copy(update={"geometry": shape_of(target, kind)})


_OUTLINES: Mapping[str, Callable[[np.random.Generator, str, tuple[float, ...]], _Outline]] = {
    "polygon": _outline,
    "oriented": _rectangle,
}
"""Drawings of geometries that are not derived from a box, by name."""


drawn_ahead: ContextVar[dict[str, Iterator[tuple[Instance, Image.Image]]]] = ContextVar("drawn_ahead")
"""What another process draws within a block (see `ahead`), by the arguments of `draw_shapes`; each is taken once."""


def make_shapes(config: ShapesConfig, split: str, count: int, folder: Path, geometry: str = "box") -> ImageSet:
    """Generate a split of the shapes with a geometry; the images stay in memory, with paths below `folder`."""
    instances, images, sha = [], {}, hashlib.sha256(b"shapes")
    wanted = (config, split, count, geometry)
    generated = drawn_ahead.get({}).pop(repr(wanted), None) or draw_shapes(*wanted)
    for instance, image in tqdm(generated, total=count, desc=f"drawing {split} images", unit="img", mininterval=0.5):
        instances.append(instance)
        sha.update(instance.model_dump_json(exclude_unset=True).encode() + image.tobytes())
        images[instance.image] = image
    return ImageSet(split, read_annotations(instances), folder, sha.hexdigest()[:16], images)


def draw_sets(config: RunConfig, folder: Path) -> tuple[ImageSet, ImageSet]:
    """Return training and held-out shapes, and save them to `folder` with `keep`."""
    return keep(draw_set(config, "train", folder)), keep(draw_set(config, "heldout", folder))


def draw_set(config: RunConfig, name: Literal["train", "heldout"], folder: Path) -> ImageSet:
    """Generate one of the two sets of shapes without writing files."""
    shapes = config.data.shapes
    count = shapes.heldout if name == "heldout" else shapes.train
    return make_shapes(shapes, name, count, folder, config.data.geometry)


def keep(drawn: ImageSet) -> ImageSet:
    """Write the ground truth of generated images, and the held-out images, to their folder; return the set."""
    if is_first():
        drawn.root.mkdir(parents=True, exist_ok=True)
        write_instances(drawn.root / f"{drawn.name}.jsonl", drawn.instances)
        for name, image in drawn.held_in_memory.items() if drawn.name == "heldout" else ():
            path = drawn.root / name
            path.parent.mkdir(exist_ok=True)
            image.save(path)
    return drawn
