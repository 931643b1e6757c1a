"""A model that is ready to find objects in images: loaded from disk, or behind an endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from coord_codec import CoordGrid, InputError
from coord_eval import ImageError, decode_image, to_rgb
from coord_trainer.answers.generate import answer_images, answer_room
from coord_trainer.config.decoding import STRATEGIES
from coord_trainer.config.run_config import RunConfig, load_run_config
from coord_trainer.data.noise import ignored_labels
from coord_trainer.detect.objects import Detections, read_objects
from coord_trainer.model.card import follow_card, read_card
from coord_trainer.model.checkpoint import LoadedCheckpoint, open_checkpoint
from coord_trainer.model.locate import locate_model


class Engine(Protocol):
    """Where answers come from."""

    name: str
    max_new_tokens: int

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
    """

    engine: Engine
    config: RunConfig

    @classmethod
    def load(cls, model: str | Path, config: RunConfig | None = None, names: Sequence[str] = ()) -> Detector:
        """Load a checkpoint, an adapter whose base is on disk, an export, or the last checkpoint of a run folder.

        Args:
            model: its folder
            config: what the user decided; the rest is as the checkpoint says of itself
            names: class names, where the decoding strategy or the length limit should know them

        Raises:
            InputError: there is no complete checkpoint, or the configuration disagrees with it
        """
        folder = locate_model(Path(model))
        resolved = as_trained(config or load_run_config(None, [], trains=False), folder)
        loaded = open_checkpoint(folder, resolved)
        room = resolved.evaluation.max_new_tokens
        room = room or answer_room(resolved, loaded.processor.tokenizer, names, of_run=False)
        return cls(LocalEngine(str(folder), loaded, resolved, room, frozenset(names)), resolved)

    def __call__(self, image: Any) -> Detections:
        """Return the objects in one image: a path, a PIL image, or an array [height, width, 3] of 8 bits, RGB.

        Raises:
            InputError: it cannot be decoded
        """
        (found,) = self.detect([image])
        return found

    def detect(self, images: Sequence[Any]) -> list[Detections]:
        """Return the objects in a batch of images, which are answered together."""
        opened = [open_image(image) for image in images]
        answers = self.engine.answer(opened)
        return [
            read_objects(
                {"image": "image", "width": image.width, "height": image.height, **answer}, image, **self.reading
            )
            for image, answer in zip(opened, answers, strict=True)
        ]

    def asking(self, prompt: str | None = None, labels: Sequence[str] = ()) -> Detector:
        """Return a detector over the same weights that asks otherwise.

        Args:
            prompt: the user's message; None for the one at hand
            labels: the only labels that may be given; none leaves them free

        Raises:
            InputError: the model is behind an endpoint
        """
        if not isinstance(self.engine, LocalEngine):
            raise InputError("asking: a model behind an endpoint is asked as it was set up; set up another one")
        changes: dict[str, Any] = {}
        if prompt is not None:
            changes["data"] = self.config.data.model_copy(update={"prompt": prompt})
        if labels:
            reading = "names-filled" if self.config.data.noise_objects else "names"
            changes["evaluation"] = self.config.evaluation.model_copy(update={"readings": (reading,)})
        config = self.config.model_copy(update=changes)
        names = frozenset(labels) or self.engine.names
        return Detector(replace(self.engine, config=config, names=names), config)

    @property
    def reading(self) -> dict[str, Any]:
        """How answers are read: the keywords of `read_objects`."""
        tokens = self.config.custom.coord_tokens.enabled
        strategy = STRATEGIES[self.config.evaluation.readings[0]]
        scale = None if tokens else float(CoordGrid().scale)
        data = self.config.data
        ignored = ignored_labels(data)
        return {"boxes": strategy.boxes, "scale": scale, "geometry": data.geometry, "ignored_labels": ignored}


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
        with _named(image):
            return decode_image(image)
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise InputError(f"image: expected an array [height, width, 3] of uint8, found {image.dtype} {image.shape}")
        return to_rgb(Image.fromarray(image))
    if isinstance(image, Image.Image):
        from PIL import ImageOps

        return to_rgb(ImageOps.exif_transpose(image))
    raise InputError(f"image: expected a path, a PIL image or an array, found {type(image).__name__}")


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    try:
        yield
    except ImageError as error:
        raise InputError(f"{path}: {error}") from None
