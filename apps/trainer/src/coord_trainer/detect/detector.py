"""A model that is ready to find objects in images: loaded from disk, or behind an endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image

from coord_codec import CoordGrid, InputError
from coord_codec.records import check_description
from coord_eval import ImageError, decode_image, to_rgb
from coord_trainer.answers.generate import answer_images, answer_room
from coord_trainer.config.decoding import STRATEGIES, held_to_names
from coord_trainer.config.run_config import RunConfig, check_run_config, load_run_config
from coord_trainer.data.noise import ignored_labels
from coord_trainer.detect.objects import Detections, one_line, read_objects
from coord_trainer.model.card import follow_card, read_card
from coord_trainer.model.checkpoint import LoadedCheckpoint, open_checkpoint
from coord_trainer.model.locate import locate_model


class Engine(Protocol):
    """Where answers come from."""

    name: str
    max_new_tokens: int
    concurrency: int
    """Requests that it takes at a time; 1 for one that answers batches."""

    def answer(self, images: Sequence[Image.Image]) -> list[dict[str, Any]]:
        """Return text, finish reason and what is known of probabilities, for each image; may raise for all."""


@dataclass(frozen=True)
class LocalEngine:
    """A checkpoint in this process."""

    name: str
    checkpoint: LoadedCheckpoint
    config: RunConfig
    max_new_tokens: int
    names: frozenset[str] = frozenset()
    concurrency: int = 1

    def answer(self, images: Sequence[Image.Image]) -> list[dict[str, Any]]:
        """Generate for all of them together."""
        strategy = STRATEGIES[self.config.evaluation.readings[0]]
        names = set(self.names) if strategy.known_names else None
        return answer_images(self.checkpoint, images, self.config.data, strategy, self.max_new_tokens, names)


@dataclass(frozen=True)
class Detector:
    """Finds objects in images.

    Attributes:
        engine: where answers come from
        config: prompt, markers, decoding and limits
        labels: the only ones that may be given; none leaves them free
        free: what `config` is without labels
    """

    engine: Engine
    config: RunConfig
    labels: frozenset[str] = frozenset()
    free: RunConfig | None = None

    @classmethod
    def load(
        cls, model: str | Path, config: RunConfig | None = None, names: Sequence[str] = (), labels: Sequence[str] = ()
    ) -> Detector:
        """Load a checkpoint, an adapter whose base is on disk, an export, or the last checkpoint of a run folder.

        Args:
            model: its folder
            config: what the user decided; the rest is as the checkpoint says of itself
            names: class names, for a decoding strategy that limits answers to them
            labels: the only labels that may be given; none leaves them free

        Raises:
            InputError: there is no complete checkpoint, the configuration disagrees with it, or a label cannot be
        """
        folder = locate_model(Path(model))
        resolved = as_trained(config or load_run_config(None, [], trains=False), folder)
        free, held = resolved, check_labels(labels)
        if held:
            resolved, names = _held_to_names(resolved), held
        if not STRATEGIES[resolved.evaluation.readings[0]].known_names:
            names = ()  # answers are the same whether annotations name the images or a folder does
        loaded = open_checkpoint(folder, resolved)
        room = resolved.evaluation.max_new_tokens
        room = room or answer_room(resolved, loaded.processor.tokenizer, names, of_run=False)
        engine = LocalEngine(str(folder), loaded, resolved, room, frozenset(names))
        return cls(engine, resolved, frozenset(held), free)

    def __call__(self, image: Any) -> Detections:
        """Return the objects in one image: a path, a PIL image, or an array [height, width, 3] of 8 bits, RGB.

        Raises:
            InputError: it cannot be decoded
        """
        (found,) = self.detect([image])
        return found

    def detect(self, images: Sequence[Any]) -> list[Detections]:
        """Return the objects in a batch of images, which are answered together."""
        if isinstance(images, str | Path | Image.Image | np.ndarray) or not isinstance(images, Iterable):
            raise InputError(
                f"images: expected a list of images, found {type(images).__name__}; one goes without detect"
            )
        opened = [open_image(image) for image in images]
        answers = self.answers(opened)
        records = [
            {"image": "image", "width": image.width, "height": image.height, **answer}
            for image, answer in zip(opened, answers, strict=True)
        ]
        for number, record in enumerate(records):
            if record["finish_reason"] == "error":
                raise InputError(f"images[{number}]: there is no answer: {record.get('error')}")
        return [self.read(record, image) for record, image in zip(records, opened, strict=True)]

    def answers(self, images: Sequence[Image.Image]) -> list[dict[str, Any]]:
        """Return the engine's answers; an image that the model's processor or the memory does not take fails alone."""
        try:
            return self.engine.answer(images) if images else []
        except InputError:
            raise
        except (ValueError, torch.OutOfMemoryError) as error:
            if len(images) == 1:
                return [{"text": None, "finish_reason": "error", "error": str(error).splitlines()[0]}]
        half = len(images) // 2
        return self.answers(images[:half]) + self.answers(images[half:])

    def read(self, record: Mapping[str, Any], image: Image.Image | None = None) -> Detections:
        """Return the objects of a record of predictions.jsonl with an answer; `image` is kept for drawing."""
        return read_objects(record, image, self.labels, **self.reading)

    def asking(self, prompt: str | None = None, labels: Sequence[str] | None = None) -> Detector:
        """Return a detector over the same weights that asks otherwise.

        Args:
            prompt: the user's message; None for the one at hand
            labels: the only labels that may be given; an empty list leaves them free, None as they are

        Raises:
            InputError: the model is behind an endpoint, or prompt or label cannot be asked for
        """
        if not isinstance(self.engine, LocalEngine):
            raise InputError("asking: a model behind an endpoint is asked as it was set up; set up another one")
        free = self.free or self.config
        if prompt is not None:
            values = free.model_dump(mode="json")
            values["data"]["prompt"] = prompt
            free = check_run_config(values, "asking", trains=False)
        held = self.labels if labels is None else frozenset(check_labels(labels))
        config = _held_to_names(free) if held else free
        names = held or (frozenset() if self.labels else self.engine.names)
        tokenizer = self.engine.checkpoint.processor.tokenizer
        room = config.evaluation.max_new_tokens or answer_room(config, tokenizer, names, of_run=False)
        engine = replace(self.engine, config=config, names=names, max_new_tokens=room)
        return Detector(engine, config, held, free)

    @property
    def reading(self) -> dict[str, Any]:
        """How answers are read: the keywords of `read_objects`."""
        tokens = self.config.custom.coord_tokens.enabled
        strategy = STRATEGIES[self.config.evaluation.readings[0]]
        scale = None if tokens else float(CoordGrid().scale)
        data = self.config.data
        ignored = ignored_labels(data)
        return {"boxes": strategy.boxes, "scale": scale, "geometry": data.geometry, "ignored_labels": ignored}


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels, each once and in order.

    Raises:
        InputError: one that cannot stand in an answer
    """
    if isinstance(labels, str):
        raise InputError(f"labels: expected a list of labels, found the text {labels!r}; put it into a list")
    for label in labels:
        if not isinstance(label, str):
            raise InputError(f"label {label!r}: expected text, found {type(label).__name__}")
        try:
            check_description(label)
        except ValueError as error:
            raise InputError(f"label {label!r}: {error}") from None
        if label != one_line(label):
            raise InputError(f"label {label!r}: expected one line without white space around it")
    return tuple(sorted(set(labels)))


def _held_to_names(config: RunConfig) -> RunConfig:
    if not config.custom.coord_tokens.enabled:  # plain numbers have no grammar: other labels are dropped afterwards
        return config
    reading = held_to_names(config.evaluation.readings[0], filled=config.data.noise_objects is not None)
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"readings": (reading,)})})


def as_trained(config: RunConfig, folder: Path) -> RunConfig:
    """Return `config` with what the user did not set as the checkpoint's card has it; unchanged without a card."""
    card = read_card(folder)
    return config if card is None else follow_card(config, card, folder)


def open_image(image: Any) -> Image.Image:
    """Return an image upright and in RGB.

    Raises:
        InputError: it cannot be decoded, or is nothing that can be an image
    """
    if isinstance(image, str | Path):
        if "://" in str(image):
            raise InputError(f"{image}: a URL, and nothing is downloaded here; name a file, or open the image yourself")
        with _named(image):
            return decode_image(image)
    if isinstance(image, np.ndarray):
        channels = image.shape[2:] or (1,)
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or channels not in ((1,), (3,), (4,)) or not image.size:
            raise InputError(f"image: expected an array [height, width, 3] of uint8, found {image.dtype} {image.shape}")
        return to_rgb(Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image))
    if isinstance(image, Image.Image):
        from PIL import ImageOps

        try:
            return to_rgb(ImageOps.exif_transpose(image))
        except (OSError, ValueError) as error:  # truncated, or closed
            raise InputError(f"image: it cannot be decoded: {error}") from None
    several = "; `detect` takes several images" if isinstance(image, list | tuple) else ""
    raise InputError(f"image: expected a path, a PIL image or an array, found {type(image).__name__}{several}")


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        raise InputError(f"{path}: {error}") from None
