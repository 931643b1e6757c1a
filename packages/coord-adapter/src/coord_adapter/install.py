"""Installs the offsets on a model, and merges them into the rows of the vocabulary."""

from collections import Counter
from collections.abc import Iterable
from operator import index
from typing import Any

import torch
from torch import nn

from coord_adapter.format import GUARD_NAME, MODULE_NAME
from coord_adapter.hooks import attach_hooks, check_placement, detach_hooks, find_owner, output_head
from coord_adapter.peft import (
    OffsetGuard,
    deepspeed_keeps_master,
    embedding_scale,
    has_adapters,
    is_wrapped,
    refuse_partial_loads,
)
from coord_adapter.tables import CoordOffsetAdapter, moved_rows

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def install_coord_offset_adapter(
    model: nn.Module,
    coord_ids: Iterable[int],
    tie_head: bool = True,
    dtype: str = "auto",
    fingerprint: str | None = None,
) -> CoordOffsetAdapter:
    """Freeze the vocabulary of a model and give the coordinate ids trainable offsets, all zero.

    The offsets are added to embeddings and logits of these ids; all other ids stay bit-identical. Install before
    `get_peft_model` and list `coord_offset_adapter` in `modules_to_save` (`with_offset_modules` does so): PEFT then
    trains, saves, switches and disables the offsets together with the LoRA weights.

    Args:
        model: a Hugging Face model with input and output embeddings; changed in place
        coord_ids: K token ids in any order; row k of the tables belongs to the k-th id
        tie_head: whether embedding and head share one table, independently of whether the base ties them
        dtype: "float32", "bfloat16", "float16", or "auto": the model's dtype if DeepSpeed keeps a float32 master copy,
            else float32, because a bfloat16 table without a master copy loses small updates
        fingerprint: fingerprint of the vocabulary; saved in the adapter file and compared on loading

    Returns:
        The adapter module with `embed_offset` [K, H] and `head_offset` [K, H] (no rows when tied).

    Raises:
        ValueError: if offsets are already installed, PEFT already wraps the model, the model has no embeddings, ids
            are empty, repeated or outside the vocabulary, or the dtype is unknown

    Example:
        >>> from transformers import Qwen3Config, Qwen3ForCausalLM
        >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4}
        >>> model = Qwen3ForCausalLM(
        ...     Qwen3Config(vocab_size=30, num_attention_heads=2, num_key_value_heads=1, **sizes)
        ... )
        >>> install_coord_offset_adapter(model, range(20, 30), tie_head=False)
        CoordOffsetAdapter(rows=10, hidden_size=8, tied=False)
    """
    ids = _whole_numbers(coord_ids)
    _check_model(model)
    rows = vocabulary_rows(model)
    _check_ids(ids, rows)
    embedding = model.get_input_embeddings()
    adapter = CoordOffsetAdapter(
        ids,
        embedding.embedding_dim,
        tied=tie_head,
        dtype=resolve_dtype(dtype, embedding.weight.dtype),
        device=embedding.weight.device,
        fingerprint=fingerprint,
        vocab_rows=rows,
    )
    model.add_module(MODULE_NAME, adapter)
    # The guard comes first, so that it can raise an error before PEFT merges anything.
    modules = {GUARD_NAME: OffsetGuard(), **model._modules}
    model._modules.clear()
    model._modules.update(modules)
    attach_hooks(model)
    refuse_partial_loads()
    return adapter


def reattach_coord_offset_hooks(model: nn.Module) -> int:
    """Check the hooks, and attach them to an embedding or head that was replaced.

    In normal use this is not necessary, since the hooks look up the tables on each call. It is necessary after
    `resize_token_embeddings`, which replaces modules.

    Returns:
        The number of missing hooks; 0 in normal use.

    Raises:
        ValueError: if no offsets are installed, their ids lie outside the vocabulary, or they would have no effect for
            another reason
    """
    owner = find_owner(model)
    if owner is None:
        raise ValueError("no coordinate offsets on this model: call install_coord_offset_adapter(model, coord_ids).")
    attached = attach_hooks(owner)
    for module in owner.modules():
        if isinstance(module, CoordOffsetAdapter):
            module.vocab_rows = vocabulary_rows(owner)
            _check_ids(module.token_ids.tolist(), module.vocab_rows)
    check_placement(owner)
    return attached


def resolve_dtype(dtype: str, model_dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the tables; for "auto" see `install_coord_offset_adapter`."""
    if dtype == "auto":
        return model_dtype if deepspeed_keeps_master() else torch.float32
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, expected 'auto' or one of {sorted(DTYPES)}.")
    return DTYPES[dtype]


@torch.no_grad()
def bake_offsets(model: nn.Module) -> nn.Module:
    """Add the offsets to embedding and head rows, so that the model becomes an ordinary one that can be saved.

    PEFT's `merge_and_unload` merges LoRA weights but not the offsets: call this function on its result. If there are
    two tables, a base that ties embedding and head is untied (also in its configuration).

    Args:
        model: a model with offsets, no longer wrapped by PEFT; changed in place

    Returns:
        The same model.

    Raises:
        ValueError: if there are no offsets, or PEFT still wraps the model
    """
    owner = find_owner(model)
    if owner is None:
        raise ValueError("no coordinate offsets on this model; nothing to bake.")
    adapter = owner._modules[MODULE_NAME]
    if is_wrapped(model) or is_wrapped(adapter):
        raise ValueError("PEFT still wraps this model: call bake_offsets(peft_model.merge_and_unload()).")
    _check_layers(owner)
    embedding, head = owner.get_input_embeddings(), output_head(owner)
    shared = embedding.weight is head.weight
    if shared and not adapter.tied:
        _untie(owner, head)
        shared = False
    ids_K = adapter.token_ids
    embedding.weight[ids_K] = moved_rows(embedding.weight[ids_K], adapter.embed_offset)
    if not shared:
        head.weight[ids_K] = moved_rows(head.weight[ids_K], adapter.head_table)
    detach_hooks(owner)
    del owner._modules[MODULE_NAME], owner._modules[GUARD_NAME]
    return model


def vocabulary_rows(model: nn.Module) -> int:
    """Return the vocabulary size V, the smaller one of embedding and head."""
    # From the modules' attributes, since weights partitioned by ZeRO-3 have no size.
    embedding, head = model.get_input_embeddings(), output_head(model)
    return min(int(embedding.num_embeddings), int(head.out_features))


def _check_model(model: nn.Module) -> None:
    if has_adapters(model):
        raise ValueError("the model is already wrapped by PEFT: install the offsets on the base model first.")
    if find_owner(model) is not None:
        raise ValueError("coordinate offsets are already installed on this model.")
    if not hasattr(model, "get_output_embeddings"):
        raise ValueError(f"{type(model).__name__} is no model of transformers: install on the model that has the head.")
    if model.get_input_embeddings() is None or model.get_output_embeddings() is None:
        raise ValueError(f"{type(model).__name__} has no input or no output embeddings to attach offsets to.")
    _check_layers(model)


def _check_layers(model: Any) -> None:
    """Raise an error if adding to a row of the embedding or head would not have the effect of an offset."""
    for site, layer, plain, operation in (
        ("input embedding", model.get_input_embeddings(), nn.Embedding, "look rows up"),
        ("output head", output_head(model), nn.Linear, "multiply by its weight"),
    ):
        if type(layer).forward is not plain.forward and not _only_scales(layer):
            raise ValueError(
                f"the {site} is a {type(layer).__name__}, which does more than {operation} (it may scale without an "
                "embed_scale, or dequantize), so an offset would differ from a changed row. If it is quantized, leave "
                "it unquantized."
            )
        if not layer.weight.is_floating_point():
            raise ValueError(
                f"the {site} holds {layer.weight.dtype}: its rows cannot be changed; leave it out of the quantization."
            )


def _only_scales(layer: Any) -> bool:
    """Return whether an embedding looks rows up and multiplies them by its `embed_scale`, as Gemma's do."""
    scale = embedding_scale(layer) if isinstance(layer, nn.Embedding) else None
    if scale is None:
        return False
    if layer.weight.is_meta or not layer.weight.numel():  # partitioned by ZeRO-3: no row to try it with
        return True
    first = torch.zeros(1, dtype=torch.long, device=layer.weight.device)
    with torch.no_grad():
        return torch.equal(type(layer).forward(layer, first), layer.weight[:1] * scale)


def _whole_numbers(coord_ids: Iterable[Any]) -> list[int]:
    """Return the ids as integers; `int` would cut off the decimals of fractions."""
    numbers = list(coord_ids)
    try:
        return [index(number) for number in numbers]
    except TypeError:
        raise ValueError(
            f"coord_ids must be token ids, whole numbers in one dimension, got {_shorten(numbers)}."
        ) from None


def _check_ids(ids: list[int], rows: int) -> None:
    if not ids:
        raise ValueError("coord_ids is empty, expected the ids of the coordinate tokens.")
    outside = [token_id for token_id in ids if not 0 <= token_id < rows]
    if outside:
        raise ValueError(
            f"coord_ids {_shorten(outside)} lie outside the {rows} rows of the vocabulary: expand the vocabulary first."
        )
    repeated = [token_id for token_id, count in Counter(ids).items() if count > 1]
    if repeated:
        raise ValueError(f"coord_ids repeat {_shorten(repeated)}; each id has one row.")


def _shorten(ids: list[Any]) -> str:
    return str(ids) if len(ids) <= 5 else f"[{ids[0]}, {ids[1]}, ... {ids[-1]}] ({len(ids)} of them)"


def _untie(owner: Any, head: nn.Module) -> None:
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    for config in (owner.config, getattr(owner.config, "text_config", None)):
        if config is not None:
            config.tie_word_embeddings = False
