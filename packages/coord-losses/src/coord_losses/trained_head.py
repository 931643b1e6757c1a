"""Reading a head whose weight is trained: values in the forward pass, gradients in the backward pass.

The weight's gradient mixes rows, so it has to wait for the upstream gradients of all of them. The backward
pass computes the logits again, chunk by chunk: four products instead of three, and never all logits.

Shapes: R rows of the cross-entropy, G of the gate, C of coordinates, H hidden, V vocabulary, K offsets,
J coordinate tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from coord_losses.gap import gaps
from coord_losses.head import Head, HeadSpec, add_product, shared_columns


class ReadTrainedHead(torch.autograd.Function):
    """`nll_R, gate_G, coord_logits_CJ`, differentiable in weight, offsets and hidden states."""

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
        """Keeps the inputs."""
        ctx.spec = spec
        ctx.save_for_backward(weight_VH, offsets_KH, ce_hidden_RH, gate_hidden_GH, coord_hidden_CH, targets_R)
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = Head(weight_VH, offsets_KH, spec.offset_columns, spec.dtype)
            coord_head = head.part(spec.coord)
            coord_logits_CJ = coord_head.logits(coord_hidden_CH)
            return (
                _read(head, ce_hidden_RH, targets_R, spec),
                _read(head, gate_hidden_GH, spec.coord, spec),
                coord_logits_CJ,
            )

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_nll_R: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Walks over the rows again and sums up."""
        weight_VH, offsets_KH, ce_hidden_RH, gate_hidden_GH, coord_hidden_CH, targets_R = ctx.saved_tensors
        spec = ctx.spec
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = Head(weight_VH, offsets_KH, spec.offset_columns, spec.dtype)
            total_VH = torch.zeros_like(weight_VH, dtype=head.wide)
            total_KH = None if head.offsets_KH is None else torch.zeros_like(head.offsets_KH)
            totals = total_VH, total_KH
            asked = any(ctx.needs_input_grad[2:5])
            ce_RH = _read_again(head, ce_hidden_RH, targets_R, spec, grad_nll_R, totals, asked)
            gate_GH = _read_again(head, gate_hidden_GH, spec.coord, spec, grad_gate_G, totals, asked)

            coord_head, narrow_CJ = head.part(spec.coord), grad_coord_CJ.to(spec.dtype)
            chosen, columns = shared_columns(spec.offset_columns, spec.coord)
            coord_CH = None
            if asked:
                coord_CH = coord_head.hidden_gradient(narrow_CJ, grad_coord_CJ[:, columns])
                coord_CH = coord_CH.to(coord_hidden_CH.dtype)
            add_product(total_VH[spec.coord], narrow_CJ, coord_hidden_CH)
            if total_KH is not None:
                total_KH[chosen] += grad_coord_CJ[:, columns].T @ coord_hidden_CH.to(head.wide)
                total_KH = total_KH.to(offsets_KH.dtype)
        return total_VH.to(weight_VH.dtype), total_KH, ce_RH, gate_GH, coord_CH, None, None


def _read(head: Head, hidden_RH: Tensor, some: Tensor | slice, spec: HeadSpec) -> Tensor:
    value_R = hidden_RH.new_empty(len(hidden_RH), dtype=head.wide)
    for gap in gaps(head, hidden_RH, some, spec.chunk_rows):
        value_R[gap.rows] = gap.value_c
    return value_R


def _read_again(
    head: Head,
    hidden_RH: Tensor,
    some: Tensor | slice,
    spec: HeadSpec,
    upstream_R: Tensor,
    totals: tuple[Tensor, Tensor | None],
    asked: bool,
) -> Tensor | None:
    """Returns the gradient of the hidden states, if asked for; adds those of weight and offsets to the totals."""
    total_VH, total_KH = totals
    grad_RH = torch.empty_like(hidden_RH) if asked else None
    for gap in gaps(head, hidden_RH, some, spec.chunk_rows, upstream_R):
        if grad_RH is not None:
            grad_RH[gap.rows] = head.hidden_gradient(gap.grad_cV, gap.offset_grad_cK)
        add_product(total_VH, gap.grad_cV, hidden_RH[gap.rows])
        if total_KH is not None and gap.offset_grad_cK is not None:
            add_product(total_KH, gap.offset_grad_cK, hidden_RH[gap.rows])
    return grad_RH
