"""The longest answer that a model may give, in tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coord_codec import Instance, Object
from coord_detect.settings.record import Settings

_SPARE_TOKENS = 16
_NAME_TOKENS = 12


def token_limit(config: Settings, tokenizer: Any, names: Iterable[str], most_objects: int | None = None) -> int:
    """Return the longest allowed answer in tokens: `most_objects` with the longest name, `data.max_objects` if None.

    12 tokens are allowed for a name if none is known.
    """
    tokens = config.custom.coord_tokens.enabled
    # Measured on an object with a box; `further` is what a shape with more than four coordinates adds.
    boxes = config.data.model_copy(update={"geometry": "box"})
    per_coordinate = _count(tokenizer, "" if tokens else "(111,222),") / 2 or 1
    further = round(max(config.data.shape.longest - 4, 0) * per_coordinate)
    count = most_objects or config.data.max_objects

    def length(name: str) -> int:
        sample = Instance(image="x", objects=[Object(desc=name, bbox=(0.111, 0.222, 0.333, 0.444))])
        return _count(tokenizer, boxes.target_text(sample, tokens)) + further

    longest = max(map(length, names), default=length("x") - 1 + _NAME_TOKENS)
    return count * longest + _SPARE_TOKENS


def _count(tokenizer: Any, text: str) -> int:
    if callable(tokenizer):
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def token_limit_without_tokenizer(config: Settings) -> int:
    """Return `token_limit` without a tokenizer, assuming more tokens around each name than any tokenizer needs.

    A coordinate takes one token between markers, and up to four as a number or in JSON.
    """
    marked = config.data.style == "markers" and config.custom.coord_tokens.enabled
    around, sides = (12, 1) if marked else (16, 4)
    return config.data.max_objects * (around + sides * config.data.shape.longest + _NAME_TOKENS) + _SPARE_TOKENS
