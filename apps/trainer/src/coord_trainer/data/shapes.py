"""The generated data set: coloured shapes on noise whose boxes are not snapped to pixels.

Shapes are drawn four times larger and averaged down, so an edge between two pixels leaves its trace in both;
boxes on a half-pixel grid would only ever exercise a fifth of the bins.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageDraw

from coord_codec import Instance, Object
from coord_trainer.config.sections import ShapesConfig
from coord_trainer.data.outlines import outline, shaped

COLOURS = {"red": (220, 40, 40), "green": (40, 190, 60), "blue": (50, 70, 220)}
SHAPES = ("circle", "square", "triangle")
CATEGORIES = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
_SUPERSAMPLE = 4
_TRIES = 30


def draw_shapes(
    config: ShapesConfig, split: str, count: int, geometry: str = "box"
) -> Iterator[tuple[Instance, Image.Image]]:
    """Yield `count` instances with their images; the split's name is part of the seed.

    Points are the centres of the boxes. Polygons and oriented boxes fill theirs, see `turned.outline`.
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
        colour = list(COLOURS)[rng.integers(len(COLOURS))]
        shape = SHAPES[rng.integers(len(SHAPES))]
        fill = tuple(int(np.clip(v + rng.integers(-25, 26), 0, 255)) for v in COLOURS[colour])
        desc = f"{colour} {shape}"
        if geometry in ("polygon", "oriented"):
            corners = outline(rng, shape, geometry, box)
            brush.polygon([(x * side, y * side) for x, y in corners], fill=fill)
            objects.append(Object(desc=desc, geometry={"type": geometry, "coordinates": corners}))
            continue
        _paint(brush, shape, [round(v * side) for v in box], fill)
        objects.append(shaped(Object(desc=desc, bbox=box), geometry))
    pixels = np.asarray(canvas.reduce(_SUPERSAMPLE), dtype=np.float32)
    noisy = pixels + rng.normal(0, config.noise, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), objects


def _free_box(rng, config: ShapesConfig, taken: list[tuple[float, ...]]) -> tuple[float, ...] | None:
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
