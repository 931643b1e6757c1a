"""Reading a head whose weight is not trained: gradients in the forward pass, two products per block.

Each row leaves one number for the losses, so an upstream gradient scales the row's own gradient, and nothing
is computed a second time whatever weights and denominators come later.

Shapes: T rows of the cross-entropy, G of the gate, R = T + G, C of coordinates, H hidden, V vocabulary, K offsets,
J coordinate tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from coord_losses.gap import GapRows, logit_gradient_
from coord_losses.head import Head, HeadSpec, add_product, shared_columns
from coord_losses.reading import Reading, read_gap


class ReadFrozenHead(torch.autograd.Function):
    """`nll_T, gate_G, coord_logits_CJ`, differentiable in the hidden states and the offsets."""

    @staticmethod
    def forward(
        ctx: Any,
        weight_VH: Tensor,
        offsets_KH: Tensor | None,
        ce_hidden_TH: Tensor,
        gate_hidden_GH: Tensor,
        coord_hidden_CH: Tensor,
        targets_T: Tensor,
        spec: HeadSpec,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keeps per row the gradient of its hidden state and, where offsets are trained, of their columns."""
        _, offsets_asked, *hidden_asked = (spec.grad and asked for asked in ctx.needs_input_grad[:5])
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = Head(weight_VH, offsets_KH, spec.offset_columns, spec.dtype)
            coord_head = head.part(spec.coord)
            rows = GapRows(torch.cat([ce_hidden_TH, gate_hidden_GH]), targets_T, spec.coord)
            value_R, grad_RH, grad_RK = _read(head, coord_head, rows, spec, any(hidden_asked), offsets_asked)
            coord_logits_CJ = coord_head.logits(coord_hidden_CH)
        ctx.spec, ctx.hidden_dtype = spec, coord_hidden_CH.dtype
        ctx.offsets_dtype = None if offsets_KH is None else offsets_KH.dtype
        hidden = (rows.hidden_RH, coord_hidden_CH) if offsets_asked else (None, None)
        # Neither weight nor offsets but copies of the coordinate rows: sharded ones are gone by the backward
        # pass.
        ctx.save_for_backward(grad_RH, grad_RK, *hidden, coord_head.weight_VH, coord_head.offsets_KH)
        nll_T, gate_G = torch.split(value_R, [len(targets_T), len(gate_hidden_GH)])
        return nll_T, gate_G, coord_logits_CJ

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_nll_T: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Scales each row."""
        grad_RH, grad_RK, hidden_RH, coord_hidden_CH, weight_JH, coord_offsets = ctx.saved_tensors
        chosen, columns = shared_columns(ctx.spec.offset_columns, ctx.spec.coord)
        hidden_gradients: list[Tensor | None] = [None, None, None]
        offsets_gradient = None
        with torch.autocast(grad_nll_T.device.type, enabled=False):
            upstream_R1 = torch.cat([grad_nll_T, grad_gate_G])[:, None]
            if grad_RH is not None:
                coord_head = Head(weight_JH, coord_offsets, columns, ctx.spec.dtype)
                coord_CH = coord_head.hidden_gradient(grad_coord_CJ)
                rows_RH = (upstream_R1 * grad_RH).to(ctx.hidden_dtype)
                parts = torch.split(rows_RH, [len(grad_nll_T), len(grad_gate_G)])
                hidden_gradients = [*parts, coord_CH.to(ctx.hidden_dtype)]
            if grad_RK is not None:
                total_KH = (upstream_R1 * grad_RK).T @ hidden_RH.to(grad_RK.dtype)
                total_KH[chosen] += grad_coord_CJ[:, columns].T @ coord_hidden_CH.to(total_KH.dtype)
                offsets_gradient = total_KH.to(ctx.offsets_dtype)
        return None, offsets_gradient, *hidden_gradients, None, None


def _read(
    head: Head, coord_head: Head, rows: GapRows, spec: HeadSpec, keep_hidden: bool, keep_offsets: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gaps [R], and the gradients of each with respect to its hidden state [R, H] and offset logits [R, K]."""
    num_rows = len(rows.hidden_RH)
    value_R = rows.hidden_RH.new_empty(num_rows, dtype=head.wide)
    grad_RH = torch.empty_like(rows.hidden_RH) if keep_hidden else None
    grad_RK = None
    if keep_offsets and head.offsets_KH is not None:
        grad_RK = value_R.new_empty(num_rows, len(head.offsets_KH))
    for part, chunk in rows.chunks(spec.chunk_rows):
        reading = read_gap(head, chunk, spec, mean=keep_hidden, logit_grad=keep_hidden)
        value_R[part] = reading.gap.value
        offset_grad_RK = reading.offset_logits_RK
        if offset_grad_RK is not None and (keep_hidden or keep_offsets):
            logit_gradient_(offset_grad_RK, head.columns, chunk, reading.gap)
        if offset_grad_RK is not None and grad_RK is not None:
            grad_RK[part] = offset_grad_RK
        if grad_RH is not None:
            grad_RH[part] = _hidden_gradient(head, coord_head, chunk, reading)
    return value_R, grad_RH, grad_RK


def _hidden_gradient(head: Head, coord_head: Head, rows: GapRows, reading: Reading) -> Tensor:
    """`sigmoid(d) · (mean of the others' weights - mean of some's)`, plus what the offsets add [R, H]."""
    if reading.logit_grad_RV is not None:
        return head.hidden_gradient(reading.logit_grad_RV)
    num_targets, grad_RH = len(rows.targets_T), reading.mean_RH
    assert grad_RH is not None
    grad_RH[:num_targets] -= head.weight_VH[rows.targets_T]
    add_product(grad_RH[num_targets:], -reading.some_GJ, coord_head.weight_VH)
    grad_RH *= reading.gap.slope[:, None]
    if head.offsets_KH is not None and reading.offset_logits_RK is not None:  # a gradient by now
        grad_RH += reading.offset_logits_RK @ head.offsets_KH
    return grad_RH
