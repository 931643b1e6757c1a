"""How large pictures are when the model sees them."""

from __future__ import annotations

from typing import Any

from .config_sections import DataSection


def set_pixels(processor: Any, data: DataSection) -> None:
    """Put the run's limits into the processor, which is saved with the checkpoint: inference resizes alike."""
    limits = {"shortest_edge": data.min_pixels, "longest_edge": data.max_pixels}
    wanted = {**dict(processor.image_processor.size), **{k: v for k, v in limits.items() if v is not None}}
    processor.image_processor.size = {key: value for key, value in wanted.items() if value is not None}
