"""Makes the card of a run's checkpoints, coordexp.json."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from coord_codec import CoordGrid
from coord_detect.model.card import OF_DATA, OF_PIXELS, GridSize, ModelCard, PixelLimits, installed_version, system_text
from coord_trainer.config.run_config import RunConfig

_PACKAGES = (
    "coord-trainer",
    "coord-detect",
    "coord-codec",
    "coord-adapter",
    "transformers",
    "peft",
    "ms-swift",
    "torch",
)


def make_card(
    config: RunConfig,
    sizes: Mapping[str, int | None],
    fingerprint: str | None,
    rendered_prompt: str | None = None,
    chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> ModelCard:
    """Return the card of a run's checkpoints.

    `sizes` are those of the image processor, with the run's limits; the prompt and the system message are as
    the chat template renders them, with settings that are not its defaults.
    """
    tokens = config.custom.coord_tokens.enabled
    grid = CoordGrid()
    return ModelCard(
        **{name: getattr(config.data, name) for name in OF_DATA},
        system=system_text(config),
        rendered_prompt=rendered_prompt,
        chat_template_kwargs=dict(chat_template_kwargs),
        form="tokens" if tokens else "numbers",
        pixels=PixelLimits(min=sizes.get("shortest_edge"), max=sizes.get("longest_edge")),
        decoding=config.evaluation.decoding[0].name,
        scored=config.evaluation.images,
        grid=GridSize(bins=grid.bins, scale=grid.scale),
        fingerprint=fingerprint if tokens else None,
        versions={
            name: installed
            for name in dict.fromkeys((*_PACKAGES, *OF_PIXELS))
            if (installed := installed_version(name))
        },
    )
