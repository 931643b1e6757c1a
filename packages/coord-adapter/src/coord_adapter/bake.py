"""Write the offsets into the rows of the vocabulary and take the adapter off."""

from typing import Any

import torch
from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from torch import Tensor, nn

from coord_adapter.guard import GUARD_NAME
from coord_adapter.hooks import find_owner
from coord_adapter.placement import detach_hooks
from coord_adapter.tables import MODULE_NAME, CoordOffsetAdapter


@torch.no_grad()
def bake_offsets(model: nn.Module) -> nn.Module:
    """Add the offsets to embedding and head rows; afterwards the model is an ordinary one and can be saved.

    `merge_and_unload` of PEFT merges LoRA weights and knows nothing of the offsets: call this on what it
    returns. A base that ties embedding and head is untied (also in its configuration) where there are two
    tables.

    Args:
        model: A model with offsets, no longer wrapped by PEFT; changed in place.

    Returns:
        The same model.

    Raises:
        ValueError: No offsets, or PEFT still wraps the model.
    """
    owner = find_owner(model)
    if owner is None:
        raise ValueError("no coordinate offsets on this model; nothing to bake.")
    adapter = owner._modules[MODULE_NAME]
    if isinstance(model, PeftModel) or isinstance(adapter, ModulesToSaveWrapper):
        raise ValueError("PEFT still wraps this model: call bake_offsets(peft_model.merge_and_unload()).")
    embedding, head = owner.get_input_embeddings(), owner.get_output_embeddings()
    shared = embedding.weight is head.weight
    if shared and not adapter.tied:
        _untie(owner, head)
        shared = False
    add_rows(embedding.weight, adapter.token_ids, adapter.embed_offset)
    if not shared:
        add_rows(head.weight, adapter.token_ids, head_table(adapter))
    detach_hooks(owner)
    del owner._modules[MODULE_NAME], owner._modules[GUARD_NAME]
    return model


def head_table(adapter: CoordOffsetAdapter) -> nn.Parameter:
    """The table [K, H] that the head uses."""
    return adapter.embed_offset if adapter.tied else adapter.head_offset


def moved_rows(weight_VH: Tensor, ids_K: Tensor, offset_KH: Tensor) -> Tensor:
    """Rows `ids_K` of a weight plus their offsets, [K, H]; summed in float32 (or wider) and rounded once."""
    wide = torch.promote_types(torch.promote_types(weight_VH.dtype, offset_KH.dtype), torch.float32)
    return (weight_VH[ids_K].to(wide) + offset_KH.to(wide)).to(weight_VH.dtype)


def add_rows(weight_VH: Tensor, ids_K: Tensor, offset_KH: Tensor) -> None:
    """Write `moved_rows` back, in place."""
    weight_VH[ids_K] = moved_rows(weight_VH, ids_K, offset_KH)


def _untie(owner: Any, head: nn.Module) -> None:
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    for config in (owner.config, getattr(owner.config, "text_config", None)):
        if config is not None:
            config.tie_word_embeddings = False
