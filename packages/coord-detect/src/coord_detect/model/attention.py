"""Computes attention within each sample of a packed row, and within each image of a vision tower.

With sdpa, transformers makes a mask over the whole packed row, whose cost grows with the square of its length. In a
vision tower it calls the attention for each image, after asking the device for the lengths of images three times in
each layer. Here a layer receives the bounds of its samples or images, and the longest of them as a number of the host.

On a GPU torch's own `varlen_attn` computes all samples in one call, in half precision and without another package.
Elsewhere sdpa computes samples of one length at once, and of several lengths one after another: it is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from inspect import signature
from typing import Any, cast

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_BY_SAMPLE = "flash_by_sample"
"""Since it contains "flash", transformers passes bounds of images to a vision tower; it makes no mask for this name."""


@cache
def _of_torch() -> Callable[..., Any]:
    """Return torch's kernel, whose import takes as long as an answer of a small model and is for a GPU alone."""
    from torch.nn.attention.varlen import varlen_attn as kernel

    grouped = "enable_gqa" in signature(kernel).parameters  # heads are announced since torch 2.12
    return partial(kernel, enable_gqa=True) if grouped else kernel


def varlen_attn(*rows: Any, **settings: Any) -> Any:
    """Call torch's function of this name; heads may be grouped."""
    return _of_torch()(*rows, **settings)


def attend_by_sample(model: PreTrainedModel, tower_name: str = "model.visual", packed: bool = False) -> None:
    """Make the vision tower attend within each image, and the text model within each sample of a packed row.

    Checkpoints are not affected. Where attention is not sdpa, nothing is changed, and a tower without
    `blocks` that have an attention `attn` takes images or tiles of one size, as those of InternVL3 and Gemma
    3, and is left alone. With `packed` the text model accepts packed rows only, with the bounds of their
    samples.
    """
    if model.config._attn_implementation != "sdpa":
        return
    # Flash before cuDNN, which torch prefers on an H100: a report has it five times slower on short samples, and it
    # makes a plan for each new shape, of which batches have many. The switch also holds where checkpointed layers are
    # computed again, which an order of backends within a context would not.
    torch.backends.cuda.enable_cudnn_sdp(False)
    AttentionInterface.register(_BY_SAMPLE, _attend)
    parts = ["vision_config"] * any(hasattr(b, "attn") for b in getattr(model.get_submodule(tower_name), "blocks", ()))
    model.set_attn_implementation(dict.fromkeys(parts + ["text_config"] * packed, _BY_SAMPLE))


@contextmanager
def attend_to_whole_rows(model: PreTrainedModel) -> Iterator[None]:
    """Undo `packed` of `attend_by_sample` within this context, for rows that are not packed."""
    packed = model.config.get_text_config()._attn_implementation == _BY_SAMPLE
    if packed:
        model.set_attn_implementation({"text_config": "sdpa"})
    try:
        yield
    finally:
        if packed:
            model.set_attn_implementation({"text_config": _BY_SAMPLE})


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    is_causal: bool | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention within each sample of a row: [1, heads, T, D] -> [1, T, heads, D]."""
    if attention_mask is not None or cu_seq_lens_q is None or max_length_q is None or settings.get("sliding_window"):
        raise ValueError("packed rows alone: expected bounds of samples, no attention mask and no sliding window")
    is_causal = cast("bool", module.is_causal) if is_causal is None else is_causal
    if _runs_varlen(query) and not settings.get("dropout"):
        # Autocast does not know varlen_attn, and norms of float32 weights leave queries and keys in float32
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
        query_THD, key_THD, value_THD = (row_1HTD[0].transpose(0, 1).to(dtype) for row_1HTD in (query, key, value))
        attended_THD = varlen_attn(
            query_THD,
            key_THD,
            value_THD,
            cu_seq_lens_q,
            cu_seq_lens_q,
            max_length_q,
            max_length_q,
            scale=settings.get("scaling"),
            window_size=(-1, 0) if is_causal else (-1, -1),
        )
        return cast("torch.Tensor", attended_THD)[None], None  # alone, since no further output is asked for
    lengths = _lengths(cu_seq_lens_q)
    settings |= {"attention_mask": None, "is_causal": is_causal}
    if len(set(lengths)) == 1:
        rows = (row_1HTD[0].unflatten(1, (-1, lengths[0])).transpose(0, 1) for row_1HTD in (query, key, value))
        return sdpa_attention_forward(module, *rows, **settings)[0].flatten(0, 1)[None], None
    samples = zip(*(row_1HTD.split(lengths, dim=2) for row_1HTD in (query, key, value)), strict=True)
    return torch.cat([sdpa_attention_forward(module, *rows, **settings)[0] for rows in samples], dim=1), None


def _runs_varlen(query: torch.Tensor) -> bool:
    """Return whether flash-attention runs where `query` is: a GPU since Ampere, half precision, heads that it knows."""
    half = query.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled("cuda")
    return (
        query.is_cuda
        and half
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
        and query.shape[-1] % 8 == 0
        and query.shape[-1] <= 256
    )


@lru_cache(maxsize=4)
def _lengths(bounds: torch.Tensor) -> list[int]:
    """Return the lengths of samples; since all layers share a tensor, a device is asked once in a forward pass."""
    return bounds.diff().tolist()
