"""Put the offset tables on a model."""

from collections import Counter
from collections.abc import Iterable

import torch
from peft import PeftModel
from torch import nn

from coord_adapter.guard import GUARD_NAME, OffsetGuard
from coord_adapter.hooks import find_owner
from coord_adapter.placement import attach_hooks, check_placement
from coord_adapter.tables import MODULE_NAME, CoordOffsetAdapter

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def install_coord_offset_adapter(
    model: nn.Module,
    coord_ids: Iterable[int],
    tie_head: bool = True,
    dtype: str = "auto",
    fingerprint: str | None = None,
) -> CoordOffsetAdapter:
    """Freeze the vocabulary of a model and give the coordinate ids trainable offsets, all zero.

    Embeddings and logits of the ids get the offset; every other id keeps its bits. Install before
    `get_peft_model` and name `coord_offset_adapter` in `modules_to_save` (`with_offset_modules` does it):
    PEFT then trains, saves, switches and disables the offsets together with the LoRA weights.

    Args:
        model: A Hugging Face model with input and output embeddings; changed in place.
        coord_ids: K token ids in any order; row i of the tables belongs to the i-th.
        tie_head: One table for embedding and head, whether or not the base ties them; else two.
        dtype: "float32", "bfloat16", "float16", or "auto": the model's dtype where DeepSpeed keeps a float32
            master, else float32, because a bfloat16 table without a master loses small updates.
        fingerprint: The vocabulary's fingerprint; it travels in the adapter file and is compared on loading.

    Returns:
        The adapter module with `embed_offset` [K, H] and `head_offset` [K, H] (no rows when tied).

    Raises:
        ValueError: A second install, a model that PEFT wraps already or without embeddings, no ids, repeated
            ids or ids outside the vocabulary, an unknown dtype.
    """
    ids = [int(token_id) for token_id in coord_ids]
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
    model.add_module(GUARD_NAME, OffsetGuard())
    attach_hooks(model)
    return adapter


def reattach_coord_offset_hooks(model: nn.Module) -> int:
    """Verify that the hooks are where they belong, and put back what a replaced embedding or head took along.

    Never needed in normal use: the hooks find the tables on each call. After `resize_token_embeddings`, which
    replaces modules, this attaches to the new ones.

    Returns:
        How many hooks were missing; 0 in normal use.

    Raises:
        ValueError: No offsets are installed, or something else keeps them from working.
    """
    owner = find_owner(model)
    if owner is None:
        raise ValueError(
            "no coordinate offsets on this model: call install_coord_offset_adapter(model, coord_ids)."
        )
    attached = attach_hooks(owner)
    for module in owner.modules():
        if isinstance(module, CoordOffsetAdapter):
            module.vocab_rows = vocabulary_rows(owner)
    check_placement(owner)
    return attached


def resolve_dtype(dtype: str, model_dtype: torch.dtype) -> torch.dtype:
    """The dtype of the tables; "auto" is explained at `install_coord_offset_adapter`."""
    if dtype == "auto":
        return model_dtype if deepspeed_keeps_master() else torch.float32
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, expected 'auto' or one of {sorted(DTYPES)}.")
    return DTYPES[dtype]


def deepspeed_keeps_master() -> bool:
    """Whether a DeepSpeed run in half precision is set up, whose optimizer holds float32 copies."""
    from transformers.integrations.deepspeed import deepspeed_config

    config = deepspeed_config()
    return bool(config) and any(config.get(key, {}).get("enabled") is True for key in ("bf16", "fp16"))


def vocabulary_rows(model: nn.Module) -> int:
    """V, the smaller of embedding and head."""
    # From the modules' own fields: under ZeRO-3 weights have no size.
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    return min(int(embedding.num_embeddings), int(head.out_features))


def _check_model(model: nn.Module) -> None:
    if isinstance(model, PeftModel) or getattr(model, "peft_config", None):
        raise ValueError("the model is wrapped by PEFT already: install the offsets on the base model first.")
    if find_owner(model) is not None:
        raise ValueError("coordinate offsets are installed on this model already.")
    if model.get_input_embeddings() is None or model.get_output_embeddings() is None:
        raise ValueError(f"{type(model).__name__} has no input or no output embeddings to attach offsets to.")
    kind = type(model.get_input_embeddings())
    if kind.forward is not nn.Embedding.forward:
        raise ValueError(
            f"the input embedding is a {kind.__name__}, which does more than look rows up (it scales them, say): an "
            "offset would not be the same as a moved row."
        )


def _check_ids(ids: list[int], rows: int) -> None:
    if not ids:
        raise ValueError("coord_ids is empty, expected the ids of the coordinate tokens.")
    outside = [token_id for token_id in ids if not 0 <= token_id < rows]
    if outside:
        raise ValueError(
            f"coord_ids {_shorten(outside)} lie outside the {rows} rows of the vocabulary: expand the "
            "vocabulary first."
        )
    repeated = [token_id for token_id, times in Counter(ids).items() if times > 1]
    if repeated:
        raise ValueError(f"coord_ids repeat {_shorten(repeated)}; each id has one row.")


def _shorten(ids: list[int]) -> str:
    return str(ids) if len(ids) <= 5 else f"[{ids[0]}, {ids[1]}, ... {ids[-1]}] ({len(ids)} of them)"
