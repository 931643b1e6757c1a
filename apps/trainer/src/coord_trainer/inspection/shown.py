"""What the model is given of an image: the image as the processor hands it over, and the tokens of prompt and answer.

Boxes are read back from the token ids of the answer, so that what is drawn has passed through everything.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from coord_codec import CoordGrid, Instance, Object, encode_target, select_objects
from coord_eval import decode_image, parse_answer
from coord_losses import ObjectiveConfig
from coord_trainer.config.run_config import RunConfig

if TYPE_CHECKING:
    from coord_trainer.data.image_set import ImageSet
    from coord_trainer.swift.open_run import OpenRun

Named = tuple[str, tuple[float, float, float, float]]
"""A description and its corners in [0, 1]."""


@dataclass(frozen=True)
class Token:
    """One token, or a run of image tokens.

    Attributes:
        text: as the tokenizer spells it
        role: `prompt`, `image`, `structure`, `description`, `unlearnt` (coordinates of noise objects), `beyond` what
            a sample may have, or a side of an object such as `object 0 x1`
        weight: sum of the weights of its loss terms, times that of its object; 0 where it is not learnt
    """

    text: str
    role: str
    weight: float


@dataclass(frozen=True)
class Shown:
    """One image as the model is given it.

    Attributes:
        name: path of the image
        image: as the processor hands it over, or as decoded where there is no model
        size: width and height of the file, or of what augmentation made of it
        truth: the objects that the answer names
        said: the same, read back from the answer's tokens, or from its text where there is no model
        text: the answer
        tokens: of prompt and answer; empty without a model
        augmented: whether the image may have been changed, as it is in the first epoch
    """

    name: str
    image: Image.Image
    size: tuple[int, int]
    truth: tuple[Named, ...]
    said: tuple[Named, ...]
    text: str
    tokens: tuple[Token, ...] = ()
    augmented: bool = False

    @property
    def off_by(self) -> float | None:
        """Largest difference of a side in pixels of `size`; None where an object is missing."""
        if len(self.truth) != len(self.said) or not self.truth:
            return None if self.truth else 0.0
        pairs = zip(self.truth, self.said, strict=True)
        differences = [np.subtract(a[1], b[1]) * (self.size * 2) for a, b in pairs]
        return float(np.abs(differences).max())


@dataclass(frozen=True)
class ModelView:
    """What only a model can tell of a set.

    Attributes:
        shown: some images
        lengths: tokens of each sample
        limit: tokens that a sample may have
        pieces: tokens of each class name
    """

    shown: tuple[Shown, ...]
    lengths: tuple[int, ...]
    limit: int
    pieces: dict[str, int]


def without_model(config: RunConfig, instances: Sequence[Instance], root: Path) -> list[Shown]:
    """Return images with their target texts, parsed back."""
    found = []
    for instance in instances:
        image = decode_image(root / instance.image, at_most=(960, 960))
        text = _target(config, instance)
        size = (instance.width or image.width, instance.height or image.height)
        image.thumbnail((960, 960))
        found.append(Shown(instance.image, image, size, _truth(config, instance), _said(config, text), text))
    return found


def with_model(config: RunConfig, images: ImageSet, chosen: Sequence[int]) -> ModelView:
    """Open the model of a configuration without its weights, and return what it is given."""
    from coord_trainer.data.samples import TargetWriter
    from coord_trainer.model.tiny import base_checkpoint
    from coord_trainer.swift.open_run import open_run, sample_set

    with tempfile.TemporaryDirectory() as scratch:
        opened = open_run(config, Path(scratch), base_checkpoint(config, Path(scratch), images), False, outline=True)
        lengths = opened.measure()
        coord_tokens = config.custom.coord_tokens.enabled
        writer = TargetWriter(config.data, coord_tokens, config.run.seed, opened.vocab, images.classes)
        known = [i for i in images.instances if i.width and i.height]
        counts = tuple(lengths.of(instance, writer.longest(instance)) for instance in known)
        some = images.select([images.instances[i] for i in chosen])
        with opened.any_length():
            samples = sample_set(config, opened, some, augments=True)
            encoded = [(samples[k], samples.drawn(k)[2]) for k in range(len(some))]
        shown = tuple(_shown(config, opened, sample, of, writer.objects(of)[0]) for sample, of in encoded)
        pieces = {name: lengths.answer(name) for name in sorted(images.words)}
        return ModelView(shown, counts, opened.longest_sample, pieces)


def _shown(
    config: RunConfig, opened: OpenRun, sample: dict[str, Any], instance: Instance, objects: Sequence[Object]
) -> Shown:
    tokenizer = opened.processor.tokenizer
    learnt = [t for t, label in zip(sample["input_ids"], sample["labels"], strict=True) if label != -100]
    text = tokenizer.decode(learnt, skip_special_tokens=False).split("<|im_end|>")[0]
    image = handed_over(sample["pixel_values"], sample["image_grid_thw"], opened.processor.image_processor)
    size = (instance.width or image.width, instance.height or image.height)
    tokens = tuple(_tokens(config, tokenizer, sample, opened.longest_sample))
    truth, answered = _named(objects), _said(config, text)
    return Shown(instance.image, image, size, truth, answered, text, tokens, config.data.augment.active)


def handed_over(pixel_values: Any, grid_thw: Any, processor: Any) -> Image.Image:
    """Put the patches of a Qwen-VL image processor together again.

    Args:
        pixel_values: [patches, channels x frames x side x side], normalised
        grid_thw: frames, rows and columns of patches
        processor: the image processor, for patch sizes, mean and deviation
    """
    merge, side = processor.merge_size, processor.patch_size
    _, rows, columns = (int(v) for v in grid_thw[0].tolist())
    patches = np.asarray(pixel_values, np.float32)[: rows * columns]
    parts = patches.reshape(rows // merge, columns // merge, merge, merge, 3, -1, side, side)[:, :, :, :, :, 0]
    pixels = parts.transpose(0, 2, 5, 1, 3, 6, 4).reshape(rows * side, columns * side, 3)
    pixels = pixels * np.array(processor.image_std) + np.array(processor.image_mean)
    return Image.fromarray(np.clip(np.rint(pixels * 255), 0, 255).astype(np.uint8))


def _tokens(config: RunConfig, tokenizer: Any, sample: dict[str, Any], limit: int) -> list[Token]:
    layout = sample["coord_layout"]
    roles = dict.fromkeys(layout.desc_positions, "description") if layout is not None else {}
    of_text, of_object = loss_weights(config.custom.objective, sample["coord_boxes"] or [])
    for number, found in enumerate(layout.objects if layout is not None else ()):
        for position, name in zip(found.coord_positions, ("x1", "y1", "x2", "y2"), strict=False):
            roles[position] = f"object {number} {name}"
    tokens: list[Token] = []
    images, answered = 0, False
    for position, (token, label) in enumerate(zip(sample["input_ids"], sample["labels"], strict=True)):
        text = tokenizer.convert_ids_to_tokens(token)
        if text == "<|image_pad|>":
            images += 1
            continue
        if images:
            tokens.append(Token(f"<|image_pad|> x {images}", "image", 0.0))
            images = 0
        if label == -100 or position >= limit:
            role = "beyond" if position >= limit else "unlearnt" if answered else "prompt"
            tokens.append(Token(tokenizer.decode([token]), role, 0.0))
            continue
        answered = True
        role = roles.get(position, "structure")
        weight = of_object[int(role.split()[1])] if role.startswith("object") else of_text
        tokens.append(Token(tokenizer.decode([token]), role, weight))
    return tokens


def loss_weights(objective: ObjectiveConfig, boxes: Sequence[tuple[float, ...]]) -> tuple[float, list[float]]:
    """Return the weight of a text token, and of a coordinate token of each object.

    Args:
        objective: the weights of the terms and how objects are weighted
        boxes: of the objects of one image, corners in [0, 1]
    """
    import torch

    from coord_losses import registered_terms
    from coord_losses.terms.object_weights import inverse_count, inverse_size

    boxes_M4 = torch.tensor(boxes, dtype=torch.float32).view(-1, 4)
    factors_M = torch.ones(len(boxes))
    if objective.object_weights == "inverse_size":
        factors_M = inverse_size(boxes_M4)
    elif objective.object_weights == "inverse_count":
        factors_M = inverse_count(torch.zeros(len(boxes)))
    sums = {"text": 0.0, "all": 0.0, "objects": 0.0}
    for name, weight in objective.weights.items():
        need = registered_terms()[name].needs[0]
        kind = {"text_rows": "text", "log_z": "all", "margin": "all"}.get(need, "objects")
        sums[kind] += weight
    return sums["text"] + sums["all"], (sums["all"] + sums["objects"] * factors_M).tolist()


def _target(config: RunConfig, instance: Instance) -> str:
    data = config.data
    return encode_target(
        instance,
        markers=data.markers,
        style=data.style,
        form="tokens" if config.custom.coord_tokens.enabled else "numbers",
        order="given" if data.order == "random" else data.order,
        max_objects=data.max_objects,
        geometry=data.shape,
    )


def _truth(config: RunConfig, instance: Instance) -> tuple[Named, ...]:
    order = "given" if config.data.order == "random" else config.data.order
    kept, _ = select_objects(instance, order, config.data.max_objects)
    return _named(kept)


def _named(objects: Sequence[Object]) -> tuple[Named, ...]:
    return tuple((o.desc, tuple(o.bbox)) for o in objects)


def _said(config: RunConfig, text: str) -> tuple[Named, ...]:
    format = "json" if config.data.style == "json" else config.data.markers
    answer = parse_answer(text, format, scale=float(CoordGrid().scale), geometry=config.data.geometry)
    return tuple((o.desc, o.box) for o in answer)
