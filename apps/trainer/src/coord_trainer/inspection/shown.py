"""Model inputs to display: images as the image processor outputs them, and the tokens of prompt and answer.

Boxes are parsed from the token ids of the answer, so that the drawing covers the whole data pipeline.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from coord_codec import CoordGrid, Instance, Object
from coord_eval import decode_image, parse_answer
from coord_losses import ObjectiveConfig
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.targets import TargetWriter

if TYPE_CHECKING:
    from coord_data.reading.image_set import ImageSet
    from coord_trainer.swift.open_run import OpenRun

Named = tuple[str, tuple[float, float, float, float]]
"""A description and its corners in [0, 1]."""


@dataclass(frozen=True)
class Token:
    """One token, or a run of image tokens.

    Attributes:
        text: decoded text
        role: `prompt`, `image`, `structure`, `description`, `unlearnt` (of the answer, without a loss), `beyond`
            the maximum length, or a side of an object such as `object 0 x1`
        weight: sum of the weights of its loss terms times the weight of its object; 0 for a token without a loss
        terms: names of its loss terms; none of a token that is not supervised
    """

    text: str
    role: str
    weight: float
    terms: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShownImage:
    """One image as the model receives it, or as decoded from the file without a model.

    `decoded` are the objects parsed from the tokens of the target, or from its text where there are no
    tokens.
    """

    name: str
    image: Image.Image
    size: tuple[int, int]
    truth: tuple[Named, ...]
    decoded: tuple[Named, ...]
    text: str
    tokens: tuple[Token, ...] = ()
    augmented: bool = False

    @property
    def off_by(self) -> float | None:
        """Largest coordinate difference in pixels of `size`; None if an object is missing."""
        if len(self.truth) != len(self.decoded) or not self.truth:
            return None if self.truth else 0.0
        pairs = zip(self.truth, self.decoded, strict=True)
        differences = [np.subtract(a[1], b[1]) * (self.size * 2) for a, b in pairs]
        return float(np.abs(differences).max())


@dataclass(frozen=True)
class ModelView:
    """Images as the model receives them, and token counts of all samples and class names."""

    shown: tuple[ShownImage, ...]
    lengths: tuple[int, ...]
    limit: int
    pieces: dict[str, int]


def without_model(config: RunConfig, instances: Sequence[Instance], root: Path) -> list[ShownImage]:
    """Return images with their target texts and the objects parsed from them."""
    writer = TargetWriter(config.data, config.custom.coord_tokens.enabled, config.run.seed, None)
    shown = []
    for instance in instances:
        image = decode_image(root / instance.image, at_most=(960, 960))
        text, truth = writer.text(instance), _named(writer.objects(instance)[0])
        size = (instance.width or image.width, instance.height or image.height)
        image.thumbnail((960, 960))
        shown.append(ShownImage(instance.image, image, size, truth, _parsed(config, text), text))
    return shown


def with_model(config: RunConfig, images: ImageSet, chosen: Sequence[int]) -> ModelView:
    """Open the model of a configuration without its weights, and return its inputs for the `chosen` images."""
    from coord_trainer.model.tiny import base_checkpoint
    from coord_trainer.swift.open_run import open_run, sample_set

    with tempfile.TemporaryDirectory() as scratch:
        opened = open_run(
            config, Path(scratch), base_checkpoint(config, Path(scratch), images), False, without_weights=True
        )
        lengths = opened.measure()
        coord_tokens = config.custom.coord_tokens.enabled
        writer = TargetWriter(config.data, coord_tokens, config.run.seed, opened.vocab, images.classes)
        with_size = [i for i in images.instances if i.width and i.height]
        counts = tuple(lengths.of(instance, writer.longest(instance)) for instance in with_size)
        selected = images.select([images.instances[i] for i in chosen])
        with opened.any_length():
            samples = sample_set(config, opened, selected, augments=True)
            encoded = [(samples[k], samples.drawn(k)[2]) for k in range(len(selected))]
        shown = tuple(_shown(config, opened, sample, item, writer.objects(item)[0]) for sample, item in encoded)
        pieces = {name: lengths.answer(name) for name in sorted(images.words)}
        return ModelView(shown, counts, opened.longest_sample, pieces)


def _shown(
    config: RunConfig, opened: OpenRun, sample: dict[str, Any], instance: Instance, objects: Sequence[Object]
) -> ShownImage:
    tokenizer = opened.processor.tokenizer
    answer_ids = [t for t, label in zip(sample["input_ids"], sample["labels"], strict=True) if label != -100]
    text = tokenizer.decode(answer_ids, skip_special_tokens=False).split(tokenizer.eos_token)[0]
    grid, processor = sample.get("image_grid_thw"), opened.processor.image_processor
    image = image_of_pixels(sample["pixel_values"], grid, processor, opened.family.whole_tile)
    size = (instance.width or image.width, instance.height or image.height)
    tokens = tuple(tokens_of(config, opened, sample))
    truth, decoded = _named(objects), _parsed(config, text)
    return ShownImage(instance.image, image, size, truth, decoded, text, tokens, config.data.augment.active)


def image_of_pixels(pixel_values: Any, grid_thw: Any | None, processor: Any, whole_tile: int = -1) -> Image.Image:
    """Assemble an image from what an image processor outputs.

    That is [patches, channels x frames x side x side] with a grid of frames, rows and columns of patches, or
    of a processor without one [..., tiles, channels, height, width], of which one tile shows the whole image;
    normalised.
    """
    pixels = np.asarray(pixel_values, np.float32)
    if grid_thw is None:
        pixels = pixels.reshape(-1, *pixels.shape[-3:])[whole_tile].transpose(1, 2, 0)
    else:
        merge, side = processor.merge_size, processor.patch_size
        _, rows, columns = (int(v) for v in grid_thw[0].tolist())
        grid = (rows // merge, columns // merge, merge, merge, 3, -1, side, side)
        parts = pixels[: rows * columns].reshape(grid)[:, :, :, :, :, 0]
        pixels = parts.transpose(0, 2, 5, 1, 3, 6, 4).reshape(rows * side, columns * side, 3)
    pixels = pixels * np.array(processor.image_std) + np.array(processor.image_mean)
    return Image.fromarray(np.clip(np.rint(pixels * 255), 0, 255).astype(np.uint8))


def tokens_of(config: RunConfig, opened: OpenRun, sample: dict[str, Any]) -> list[Token]:
    """Return the tokens of an encoded sample."""
    tokenizer, limit, image_token = opened.processor.tokenizer, opened.longest_sample, opened.family.image_token
    layout = sample["coord_layout"]
    roles = dict.fromkeys(layout.desc_positions, "description") if layout is not None else {}
    of_text, of_objects = loss_terms(config.custom.objective)
    for number, slots in enumerate(layout.objects if layout is not None else ()):
        for position, name in zip(slots.coord_positions, ("x1", "y1", "x2", "y2"), strict=False):
            roles[position] = f"object {number} {name}"
    tokens: list[Token] = []
    image_tokens, in_answer = 0, False
    for position, (token, label) in enumerate(zip(sample["input_ids"], sample["labels"], strict=True)):
        text = tokenizer.convert_ids_to_tokens(token)
        if text == image_token:
            image_tokens += 1
            continue
        if image_tokens:
            tokens.append(Token(f"{image_token} x {image_tokens}", "image", 0.0))
            image_tokens = 0
        if label == -100 or position >= limit:
            role = "beyond" if position >= limit else "unlearnt" if in_answer else "prompt"
            tokens.append(Token(tokenizer.decode([token]), role, 0.0))
            continue
        in_answer = True
        role = roles.get(position, "structure")
        terms = of_objects if role.startswith("object") else of_text
        tokens.append(Token(tokenizer.decode([token]), role, sum(terms.values()), tuple(terms)))
    return tokens


_ROLES_OF = {"text token": "text", "token": "all", "coordinate": "objects", "object": "objects"}
"""The tokens that an element of a loss term belongs to."""


def loss_terms(objective: ObjectiveConfig) -> tuple[dict[str, float], dict[str, float]]:
    """Return the loss terms of a text token and those of a coordinate token, each with its weight.

    Example:
        >>> loss_terms(ObjectiveConfig.soft())
        ({'text_ce': 1.0}, {'soft_ce': 1.0, 'w1': 1.0, 'gate': 1.0})
    """
    from coord_losses import registered_terms

    kinds = {name: _ROLES_OF[registered_terms()[name].element] for name in objective.weights}
    of_text = {name: weight for name, weight in objective.weights.items() if kinds[name] != "objects"}
    of_objects = {name: weight for name, weight in objective.weights.items() if kinds[name] != "text"}
    return of_text, of_objects


def _named(objects: Sequence[Object]) -> tuple[Named, ...]:
    return tuple((o.desc, o.bbox) for o in objects)


def _parsed(config: RunConfig, text: str) -> tuple[Named, ...]:
    format = "json" if config.data.style == "json" else config.data.markers
    answer = parse_answer(text, format, scale=float(CoordGrid().scale), geometry=config.data.geometry)
    return tuple((o.desc, o.box) for o in answer)
