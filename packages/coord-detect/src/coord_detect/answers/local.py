"""`LocalEngine`: generates answers with a checkpoint in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from coord_detect.answers.generate import answer_images
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_detect.settings.record import Settings


@dataclass(frozen=True)
class LocalEngine:
    """Generates answers with a checkpoint in this process."""

    name: str
    checkpoint: LoadedCheckpoint
    config: Settings
    max_new_tokens: int
    names: frozenset[str] = frozenset()
    """All names of the grammar `names`."""
    only: frozenset[str] = frozenset()
    """Names that answers are held to."""
    concurrency: int = 0

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
