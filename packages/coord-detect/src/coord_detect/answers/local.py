"""`LocalEngine`: generates answers with a checkpoint in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image

from coord_detect.answers.generate import answer_images
from coord_detect.answers.token_limit import token_limit
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_detect.settings.record import Settings


@dataclass(frozen=True)
class LocalEngine:
    """Generates answers with a checkpoint in this process."""

    name: str
    checkpoint: LoadedCheckpoint
    config: Settings
    max_new_tokens: int = 0
    names: frozenset[str] = frozenset()
    """All names of the grammar `names`."""
    only: frozenset[str] = frozenset()
    """Names that answers are held to."""
    concurrency: int = 0

    def asked(
        self,
        config: Settings,
        words: Iterable[str],
        trained: Iterable[str] = (),
        only: frozenset[str] = frozenset(),
        limit: int | None = None,
    ) -> LocalEngine:
        """Return the engine of the same weights under another configuration.

        Answers are held to the names `only`; without these, the decoding `names` holds them to `words`. Where they are
        fewer than the `trained` names, each has its probability among all of them. `limit` is the longest answer in
        tokens; that of the configuration, or what `token_limit` says, if None.
        """
        # Without that grammar answers must not depend on whether annotations or a folder name the images.
        held = config.evaluation.decoding[0].grammar == "names"
        named = only or (frozenset(words) if held else frozenset[str]())
        among = named.union(trained) if held else named
        tokenizer = self.checkpoint.processor.tokenizer
        limit = limit or config.evaluation.max_new_tokens or token_limit(config, tokenizer, named)
        forced = named if only or among != named else frozenset[str]()
        return replace(self, config=config, names=among, only=forced, max_new_tokens=limit)

    @property
    def max_pixels(self) -> int | None:
        """Images with more pixels are reduced before the model sees them."""
        return dict(self.checkpoint.processor.image_processor.size).get("longest_edge")

    def answer(
        self, images: Sequence[Image.Image], prompt: str | None = None, pixels: float = 1.0
    ) -> list[dict[str, Any]]:
        """Generate the answers to all images as one batch."""
        decoding = self.config.evaluation.decoding[0]
        names = self.names if decoding.grammar == "names" else None
        try:
            return answer_images(
                self.checkpoint,
                images,
                self.config.data,
                decoding,
                self.max_new_tokens,
                names,
                only=self.only,
                prompt=prompt,
                pixels=pixels,
                speed=self.config.evaluation.speed,
            )
        except torch.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error
