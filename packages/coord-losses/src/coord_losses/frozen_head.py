"""Reading a head whose weight is not trained: gradients in the forward pass, two products per chunk.

Each row leaves one number for the losses, so an upstream gradient scales the row's own gradient, and nothing
is computed a second time whatever weights and denominators come later.

Shapes: R rows of the cross-entropy, G of the gate, C of coordinates, H hidden, V vocabulary, K offsets,
J coordinate tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from coord_losses.gap import gaps
from coord_losses.head import Head, HeadSpec, add_product, shared_columns


class ReadFrozenHead(torch.autograd.Function):
    """`nll_R, gate_G, coord_logits_CJ`, differentiable in the hidden states and the offsets."""

    @staticmethod
    def forward(
        ctx: Any,
        weight_VH: Tensor,
        offsets_KH: Tensor | None,
        ce_hidden_RH: Tensor,
        gate_hidden_GH: Tensor,
        coord_hidden_CH: Tensor,
        targets_R: Tensor,
        spec: HeadSpec,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keeps per row the gradient of its hidden state and, where offsets are trained, of their columns."""
        _, offsets_asked, *hidden_asked = (spec.grad and asked for asked in ctx.needs_input_grad[:5])
        keep = any(hidden_asked), offsets_asked
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = Head(weight_VH, offsets_KH, spec.offset_columns, spec.dtype)
            coord_head = head.part(spec.coord)
            nll_R, *ce_kept = _read(head, ce_hidden_RH, targets_R, spec, *keep)
            gate_G, *gate_kept = _read(head, gate_hidden_GH, spec.coord, spec, *keep)
            coord_logits_CJ = coord_head.logits(coord_hidden_CH)
        ctx.spec, ctx.hidden_dtype = spec, coord_hidden_CH.dtype
        ctx.offsets_dtype = None if offsets_KH is None else offsets_KH.dtype
        hidden = (ce_hidden_RH, gate_hidden_GH, coord_hidden_CH) if offsets_asked else (None, None, None)
        # Neither weight nor offsets but copies of the coordinate rows: sharded ones are gone by the backward
        # pass.
        ctx.save_for_backward(*ce_kept, *gate_kept, *hidden, coord_head.weight_VH, coord_head.offsets_KH)
        return nll_R, gate_G, coord_logits_CJ

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_nll_R: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Scales each row."""
        ce_RH, ce_RK, gate_GH, gate_GK, *rest = ctx.saved_tensors
        ce_hidden_RH, gate_hidden_GH, coord_hidden_CH, weight_JH, coord_offsets = rest
        chosen, columns = shared_columns(ctx.spec.offset_columns, ctx.spec.coord)
        hidden_gradients: list[Tensor | None] = [None, None, None]
        offsets_gradient = None
        with torch.autocast(grad_nll_R.device.type, enabled=False):
            if ce_RH is not None:
                coord_head = Head(weight_JH, coord_offsets, columns, ctx.spec.dtype)
                coord_CH = coord_head.hidden_gradient(
                    grad_coord_CJ.to(ctx.spec.dtype), grad_coord_CJ[:, columns]
                )
                rows = grad_nll_R[:, None] * ce_RH, grad_gate_G[:, None] * gate_GH, coord_CH
                hidden_gradients = [gradient.to(ctx.hidden_dtype) for gradient in rows]
            if ce_RK is not None:
                total_KH = ce_RK.new_zeros(ce_RK.shape[1], ce_hidden_RH.shape[1])
                add_product(total_KH, grad_nll_R[:, None] * ce_RK, ce_hidden_RH)
                add_product(total_KH, grad_gate_G[:, None] * gate_GK, gate_hidden_GH)
                total_KH[chosen] += grad_coord_CJ[:, columns].T @ coord_hidden_CH.to(total_KH.dtype)
                offsets_gradient = total_KH.to(ctx.offsets_dtype)
        return None, offsets_gradient, *hidden_gradients, None, None


def _read(
    head: Head, hidden_RH: Tensor, some: Tensor | slice, spec: HeadSpec, keep_hidden: bool, keep_offsets: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gaps [R], and the gradients of each with respect to its hidden state [R, H] and offset logits [R, K]."""
    value_R = hidden_RH.new_empty(len(hidden_RH), dtype=head.wide)
    grad_RH = torch.empty_like(hidden_RH) if keep_hidden else None
    offset_RK = None
    if keep_offsets and head.offsets_KH is not None:
        offset_RK = value_R.new_empty(len(hidden_RH), len(head.offsets_KH))
    for gap in gaps(head, hidden_RH, some, spec.chunk_rows):
        value_R[gap.rows] = gap.value_c
        if grad_RH is not None:
            grad_RH[gap.rows] = head.hidden_gradient(gap.grad_cV, gap.offset_grad_cK)
        if offset_RK is not None and gap.offset_grad_cK is not None:
            offset_RK[gap.rows] = gap.offset_grad_cK
    return value_R, grad_RH, offset_RK
