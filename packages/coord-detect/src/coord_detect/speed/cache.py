"""`RaggedCache`: keys and values of answers that differ in length.

A pass writes the keys of each row behind those that the row keeps, so that rejected drafts are overwritten by the next
pass and nothing has to be cut out.

Shapes: B rows, A attention heads of keys, S positions of the buffer, W tokens of a pass, D size of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from coord_codec import InputError

_GROWTH = 128
"""Positions by which the buffers grow."""


class RaggedCache(Cache):
    """A cache that each row fills at its own pace.

    Args:
        filled: the cache after the prompt, which is emptied
        capacity: size of buffers that keep their place and are read whole, as passes of fixed shape need; None for
            buffers that grow and are read as far as they are filled

    Raises:
        InputError: the model has layers whose state cannot go back to before a rejected draft.
    """

    def __init__(self, filled: Cache, capacity: int | None = None) -> None:
        if wrong := next((layer for layer in filled.layers if type(layer) is not DynamicLayer), None):
            raise InputError(
                f"evaluation.speed: the model has a {type(wrong).__name__}, which cannot go back to before a rejected "
                "draft; use evaluation.speed: plain"
            )
        self.capacity = capacity
        layers = []
        for layer in filled.layers:
            layers.append(_RaggedLayer(layer.keys, layer.values, capacity))
            layer.keys = layer.values = None  # so that there is one copy of the prompts, and not two
        super().__init__(layers=layers)

    def begin(self, place: slice | torch.Tensor, length: int) -> None:
        """Set where the next pass writes, one slice of all rows or positions [B, W], and how much it reads."""
        rows_B1 = None if isinstance(place, slice) else torch.arange(len(place), device=place.device)[:, None]
        for layer in self.layers:
            layer.begin(place, rows_B1, length)

    def holds(self, rows: int, length: int) -> bool:
        """Return whether the buffers have so many rows and positions."""
        return all(rows <= len(layer.keys) and length <= layer.keys.shape[2] for layer in self.layers)

    def keep(self, index_R: torch.Tensor) -> None:
        """Move these rows to the front, where passes over fewer rows read and write."""
        for layer in self.layers:
            for buffer in (layer.keys, layer.values):
                buffer[: len(index_R)] = buffer[index_R]

    def refill(self, filled: Cache) -> None:
        """Replace the rows by those of another cache of at most as many and as long ones, which is emptied."""
        for layer, other in zip(self.layers, filled.layers, strict=True):
            for buffer, states_BASD in ((layer.keys, other.keys), (layer.values, other.values)):
                rows, _, length, _ = states_BASD.shape
                buffer[:rows, :, :length] = states_BASD
            other.keys = other.values = None


class _RaggedLayer(CacheLayerMixin):
    is_sliding = False

    def __init__(self, keys_BASD: torch.Tensor, values_BASD: torch.Tensor, capacity: int | None) -> None:
        super().__init__()
        self.keys, self.values = (
            buffer if capacity is None else _grown(buffer, capacity) for buffer in (keys_BASD, values_BASD)
        )
        self.place: Any = slice(0)
        self.rows_B1: torch.Tensor | None = None
        self.length = keys_BASD.shape[2]
        self.is_initialized = True

    def begin(self, place: Any, rows_B1: torch.Tensor | None, length: int) -> None:
        self.place, self.rows_B1, self.length = place, rows_B1, length
        if length > self.keys.shape[2]:
            self.keys, self.values = (_grown(buffer, length + _GROWTH) for buffer in (self.keys, self.values))

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing, since the buffers exist."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the keys and values [B, A, W, D] of a pass; returns those of all positions that it reads."""
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            if self.rows_B1 is None:
                buffer[: len(states), :, self.place] = states
            else:
                buffer[self.rows_B1, :, self.place] = states.transpose(1, 2)
        rows = len(key_states)
        return self.keys[:rows, :, : self.length], self.values[:rows, :, : self.length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of positions and the first one; the passes state their own mask."""
        return self.length, 0

    def get_seq_length(self) -> int:
        """Return the number of positions that the last pass read."""
        return self.length

    def get_max_length(self) -> int:
        """Return the size of the buffers."""
        return self.keys.shape[2]

    get_max_cache_shape = get_max_length  # its name in transformers 5.10 to 5.12


def _grown(buffer_BASD: torch.Tensor, length: int) -> torch.Tensor:
    rows, heads, filled, size = buffer_BASD.shape
    grown = buffer_BASD.new_zeros(rows, heads, length, size)
    grown[:, :, :filled] = buffer_BASD
    return grown
