"""Applies the row head of `coord_losses.hf` to a head with offsets or LoRA, inside a wrapped forward pass.

During one call the active `lm_head` has a `forward` that selects the rows whose next token is supervised and passes
them to the objective. Since this happens inside `model(**inputs)`, DDP and DeepSpeed see every parameter used; the
sums are returned as `logits`, one column each.

Shapes: B samples, T tokens, H hidden, V vocabulary, K rows with offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from coord_adapter import active_offsets, bypass_head_hook
from coord_losses.hf.head import RowHead, replaced_forward

HEAD = "coord::head and loss"
"""The profiler's range around head and objective."""


@contextmanager
def row_selecting_head(model: nn.Module, head: Any, rows: RowHead) -> Iterator[RowHead]:
    """Make the head of `model` compute the objective on supervised rows, within this block only.

    Unless `rows.fused`, it is computed from the logits of all positions.
    """
    is_plain = isinstance(head, nn.Linear) and head.bias is None  # no layer of LoRA

    def logits(hidden_H: torch.Tensor) -> torch.Tensor:
        logits_V: torch.Tensor = own_forward(hidden_H)
        # If the head is not plain, the hook of its inner layer has added the offsets.
        offsets = active_offsets(model) if is_plain else None
        if offsets is None:
            return logits_V
        added_K = hidden_H.to(offsets.offsets.dtype) @ offsets.offsets.T
        return logits_V.index_add(-1, offsets.ids, added_K.to(logits_V.dtype))

    def forward(hidden_BTH: torch.Tensor) -> torch.Tensor:
        with record_function(HEAD):
            if not rows.fused:
                rows.read_positions(logits(hidden_BTH))
            elif not is_plain:
                rows.read(logits(rows.take(hidden_BTH)))
            else:
                offsets = active_offsets(model)
                added = {"offsets_KH": offsets.offsets, "offset_ids_K": offsets.ids} if offsets is not None else {}
                rows.fuse(rows.take(hidden_BTH), head.weight, **added)
            return rows.sums()

    # The hook of the offsets expects logits, but a plain head returns sums, which include the offsets already.
    bypassed = bypass_head_hook(model) if is_plain else nullcontext()
    with replaced_forward(head, forward) as own_forward, bypassed:
        yield rows
