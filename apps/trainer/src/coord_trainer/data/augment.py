"""Image augmentation that transforms boxes and shapes along with the image, by torchvision's transforms v2.

Boxes stay exact: a crop is applied only if it cuts through no box, so that no answer has to name half an object.
A crop of a record with a phrase keeps every object, since the phrase could refer to an object that was cropped away.
A record whose text contains left or right is not mirrored, since the text would then refer to another object.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from PIL import Image
from torchvision.transforms.v2 import functional
from torchvision.tv_tensors import BoundingBoxes, wrap

from coord_codec import Instance, Object
from coord_codec.records import phrase_of
from coord_trainer.config.data_sources import AugmentConfig
from coord_trainer.data.queries import refers_to_sides

_TRIES = 20


def augment(image: Image.Image, instance: Instance, config: AugmentConfig, seed: int) -> tuple[Image.Image, Instance]:
    """Return an image and its record after randomly drawn augmentations.

    Args:
        image: upright RGB image
        instance: the record of the image; boxes in [0, 1]
        config: probability and range of each augmentation
        seed: seed of this image in this epoch
    """
    draw = random.Random(seed)
    scale_M4 = torch.tensor([image.width, image.height] * 2, dtype=torch.float64)
    boxes_M4 = torch.tensor([target.bbox for target in instance.objects], dtype=torch.float64).reshape(-1, 4) * scale_M4
    boxes = BoundingBoxes(boxes_M4, format="XYXY", canvas_size=(image.height, image.width))
    kept_indices = list(range(len(boxes)))
    width, height, flipped = image.width, image.height, False
    full_window = window = (0, 0, height, width)
    keep_all = phrase_of(instance) is not None
    if draw.random() < config.flip and not refers_to_sides(instance):
        image, boxes, flipped = functional.horizontal_flip(image), functional.horizontal_flip(boxes), True
    if draw.random() < config.crop and (crop := _draw_crop(boxes, config.min_crop, draw, keep_all)) is not None:
        window, kept_indices = crop
        image, boxes = functional.crop(image, *window), functional.crop(wrap(boxes[kept_indices], like=boxes), *window)
    size = torch.tensor([image.width, image.height] * 2, dtype=torch.float64)
    fractions_M4 = (boxes.as_subclass(torch.Tensor) / size).clamp(0, 1).tolist()
    if draw.random() < config.scale:
        factor = draw.uniform(config.min_scale, 1)
        sides = [max(1, round(side * factor)) for side in (image.height, image.width)]
        image = functional.resize(image, sides, antialias=True)
    if config.colour:
        adjustments = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)
        for adjust in adjustments:
            image = adjust(image, draw.uniform(1 - config.colour, 1 + config.colour))
    top, left, rows, columns = window
    view = None if window == full_window else (left / width, top / height, columns / width, rows / height)
    objects = tuple(
        _move(instance.objects[i], box, flipped, view) for i, box in zip(kept_indices, fractions_M4, strict=True)
    )
    return image, instance.model_copy(update={"objects": objects, "width": image.width, "height": image.height})


def _move(target: Object, box: list[float], flipped: bool, view: tuple[float, float, float, float] | None) -> Object:
    """Return an object with its new box, and its shape mirrored and cropped."""
    changes: dict[str, Any] = {"bbox": tuple(box)}
    if (shape := target.geometry) is not None:
        shape = shape.flip() if flipped else shape
        changes["geometry"] = shape if view is None else shape.moved(*view)
    return target.model_copy(update=changes)


def _draw_crop(
    boxes: BoundingBoxes, min_share: float, draw: random.Random, keep_all: bool
) -> tuple[tuple[int, int, int, int], list[int]] | None:
    """Return (top, left, height, width) of a crop that cuts through no box, and the indices of the boxes inside it.

    Returns None if no such crop was drawn. If `keep_all` is set, all boxes are inside the crop.
    """
    rows, columns = boxes.canvas_size
    for _ in range(_TRIES):
        height, width = (max(1, round(side * draw.uniform(min_share, 1))) for side in (rows, columns))
        top, left = draw.randint(0, rows - height), draw.randint(0, columns - width)
        x1_M, y1_M, x2_M, y2_M = boxes.as_subclass(torch.Tensor).unbind(1)
        inside_M = (x1_M >= left) & (y1_M >= top) & (x2_M <= left + width) & (y2_M <= top + height)
        outside_M = (x2_M <= left) | (y2_M <= top) | (x1_M >= left + width) | (y1_M >= top + height)
        if bool((inside_M if keep_all else inside_M | outside_M).all()):
            return (top, left, height, width), inside_M.nonzero()[:, 0].tolist()
    return None
