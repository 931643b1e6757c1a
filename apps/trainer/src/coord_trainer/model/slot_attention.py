"""Attention of rows whose last tokens are slots: the tokens before attend as ever, and never to a slot.

Slots attend as their blocks say (`training.parallel_boxes.Blocks`), which a forward pass is given as `coord_blocks`;
passes without them are those of the attention that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from coord_codec import InputError

_SUFFIX = "_beside_slots"


class _BesideSlots:
    """Computes the attention of ordinary tokens by another function, and that of slots by a mask of their own."""

    def __init__(self, ordinary: Callable[..., tuple[torch.Tensor, Any]]) -> None:
        self._ordinary = ordinary
        self._positions: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None = None,
        coord_blocks: Any = None,
        **settings: Any,
    ) -> tuple[torch.Tensor, None]:
        """Compute the attention: [B, heads, T + W, D] -> [B, T + W, heads, D] for W slots behind T tokens."""
        if coord_blocks is None:
            return self._ordinary(module, query, key, value, attention_mask, position_ids=position_ids, **settings)
        length = coord_blocks.length
        if self._positions[0] is not position_ids:  # all layers of a pass share them
            self._positions = (position_ids, None if position_ids is None else position_ids[..., :length])
        tokens_BTHD, _ = self._ordinary(
            module,
            *(states[:, :, :length] for states in (query, key, value)),
            None if attention_mask is None else attention_mask[..., :length, :length],
            position_ids=self._positions[1],
            **settings,
        )
        settings["is_causal"] = False
        slots_BWHD, _ = sdpa_attention_forward(
            module, query[:, :, length:], key, value, coord_blocks.attended_B1WL, **settings
        )
        return torch.cat([tokens_BTHD, slots_BWHD], dim=1), None


def attend_beside_slots(model: PreTrainedModel) -> None:
    """Let forward passes of a model have slots behind their tokens; checkpoints are not affected.

    Raises:
        InputError: a layer of the model does not attend to all tokens before.
    """
    text = model.config.get_text_config()
    if others := sorted(set(getattr(text, "layer_types", None) or ()) - {"full_attention"}):
        raise InputError(
            f"custom.parallel_boxes.enabled: the model has layers of {' and '.join(others)}, which slots cannot stand "
            "beside; leave it out"
        )
    before = text._attn_implementation
    name = f"{before}{_SUFFIX}"
    AttentionInterface.register(name, _BesideSlots(AttentionInterface()[before]))
    if before in (masks := AttentionMaskInterface()):
        AttentionMaskInterface.register(name, masks[before])
    model.set_attn_implementation({"text_config": name})


@contextmanager
def attention_of_answers(model: Any, name: str) -> Iterator[None]:
    """Restore the attention `name` while answers are generated, since that of training may take packed rows only."""
    before = model.config.get_text_config()._attn_implementation
    is_own = before != name and before.startswith("sdpa_")
    if is_own:
        model.set_attn_implementation({"text_config": name})
    try:
        yield
    finally:
        if is_own:
            model.set_attn_implementation({"text_config": before})
