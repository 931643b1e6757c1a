"""Changes of an image that move its boxes along, by torchvision's transforms v2.

Every box is exact afterwards: a crop is taken only where it cuts none, so that no answer has to name half an object.
Of a record that asks for a phrase, a crop keeps every object: the phrase would ask for what is no longer there.
A record whose words say left or right is not mirrored: they would name the other object.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from PIL import Image
from torchvision.transforms.v2 import functional
from torchvision.tv_tensors import BoundingBoxes, wrap

from coord_codec import Instance, Object
from coord_trainer.config.sources import AugmentConfig
from coord_trainer.data.queries import names_a_side, phrase_of

_TRIES = 20


def augment(image: Image.Image, instance: Instance, config: AugmentConfig, seed: int) -> tuple[Image.Image, Instance]:
    """Return an image and its record after the changes that are drawn.

    Args:
        image: upright, in RGB
        instance: its record; boxes in [0, 1]
        config: what may be changed
        seed: of this image in this epoch
    """
    draw = random.Random(seed)
    scale_M4 = torch.tensor([image.width, image.height] * 2, dtype=torch.float64)
    boxes_M4 = torch.tensor([found.bbox for found in instance.objects], dtype=torch.float64).reshape(-1, 4) * scale_M4
    boxes = BoundingBoxes(boxes_M4, format="XYXY", canvas_size=(image.height, image.width))
    kept = list(range(len(boxes)))
    width, height, flipped = image.width, image.height, False
    whole = window = (0, 0, height, width)
    keeps = phrase_of(instance) is not None
    if draw.random() < config.flip and not names_a_side(instance):
        image, boxes, flipped = functional.horizontal_flip(image), functional.horizontal_flip(boxes), True
    if draw.random() < config.crop and (place := _whole_crop(boxes, config.min_crop, draw, keeps)) is not None:
        window, kept = place
        image, boxes = functional.crop(image, *window), functional.crop(wrap(boxes[kept], like=boxes), *window)
    size = torch.tensor([image.width, image.height] * 2, dtype=torch.float64)
    fractions_M4 = (boxes.as_subclass(torch.Tensor) / size).clamp(0, 1).tolist()
    if draw.random() < config.scale:
        factor = draw.uniform(config.min_scale, 1)
        sides = [max(1, round(side * factor)) for side in (image.height, image.width)]
        image = functional.resize(image, sides, antialias=True)
    if config.colour:
        changes = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)
        for change in changes:
            image = change(image, draw.uniform(1 - config.colour, 1 + config.colour))
    top, left, rows, columns = window
    view = None if window == whole else (left / width, top / height, columns / width, rows / height)
    objects = tuple(
        _moved(instance.objects[position], box, flipped, view) for position, box in zip(kept, fractions_M4, strict=True)
    )
    return image, instance.model_copy(update={"objects": objects, "width": image.width, "height": image.height})


def _moved(found: Object, box: list[float], flipped: bool, view: tuple[float, float, float, float] | None) -> Object:
    """Return an object with its new box, and its shape mirrored and seen in the window of a crop."""
    changes: dict[str, Any] = {"bbox": tuple(box)}
    if (shape := found.geometry) is not None:
        shape = shape.flip() if flipped else shape
        changes["geometry"] = shape if view is None else shape.moved(*view)
    return found.model_copy(update=changes)


def _whole_crop(
    boxes: BoundingBoxes, smallest: float, draw: random.Random, keeps: bool
) -> tuple[int, int, int, int, list[int]] | None:
    """Return top, left, height and width of a crop that cuts no box, and the boxes inside; None if none is found.

    With `keeps` all boxes are inside.
    """
    rows, columns = boxes.canvas_size
    for _ in range(_TRIES):
        height, width = (max(1, round(side * draw.uniform(smallest, 1))) for side in (rows, columns))
        top, left = draw.randint(0, rows - height), draw.randint(0, columns - width)
        x1_M, y1_M, x2_M, y2_M = boxes.as_subclass(torch.Tensor).unbind(1)
        inside_M = (x1_M >= left) & (y1_M >= top) & (x2_M <= left + width) & (y2_M <= top + height)
        outside_M = (x2_M <= left) | (y2_M <= top) | (x1_M >= left + width) | (y1_M >= top + height)
        if bool((inside_M if keeps else inside_M | outside_M).all()):
            return (top, left, height, width), inside_M.nonzero()[:, 0].tolist()
    return None
