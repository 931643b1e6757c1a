"""Reading a head whose weight is trained: values in the forward pass, gradients in the backward pass.

The weight's gradient mixes rows, so it has to wait for the upstream gradients of all of them. The backward
pass computes the logits again, block by block: four products instead of three, and never all logits.

Shapes: T rows of the cross-entropy, G of the gate, R = T + G, C of coordinates, H hidden, V vocabulary, K offsets,
J coordinate tokens.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from coord_losses.gap import Gap, GapRows, logit_gradient_
from coord_losses.head import Block, Head, HeadSpec, add_product, shared_columns
from coord_losses.reading import read_gap


class ReadTrainedHead(torch.autograd.Function):
    """`nll_T, gate_G, coord_logits_CJ`, differentiable in weight, offsets and hidden states."""

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
        """Keeps the inputs and two numbers of each row, or all gradients of a small vocabulary's logits."""
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = Head(weight_VH, offsets_KH, spec.offset_columns, spec.dtype)
            rows = GapRows(torch.cat([ce_hidden_TH, gate_hidden_GH]), targets_T, spec.coord)
            others_R = rows.hidden_RH.new_empty(len(rows.hidden_RH), dtype=head.wide)
            some_R = torch.empty_like(others_R)
            kept_RV = None
            chunks = list(rows.chunks(spec.chunk_rows))
            keep = len(chunks) == 1 and head.dtype == head.wide
            for part, chunk in chunks:
                reading = read_gap(head, chunk, spec, mean=False, logit_grad=keep)
                others_R[part], some_R[part] = reading.gap
                kept_RV = reading.logit_grad_RV
            coord_logits_CJ = head.part(spec.coord).logits(coord_hidden_CH)
        ctx.spec = spec
        ctx.save_for_backward(
            weight_VH, offsets_KH, rows.hidden_RH, coord_hidden_CH, targets_T, others_R, some_R, kept_RV
        )
        nll_T, gate_G = torch.split(Gap(others_R, some_R).value, [len(targets_T), len(gate_hidden_GH)])
        return nll_T, gate_G, coord_logits_CJ

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_nll_T: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Sums up, after a second walk over the vocabulary unless the logits' gradients were kept."""
        weight_VH, offsets_KH, hidden_RH, coord_hidden_CH, targets_T, *found, kept_RV = ctx.saved_tensors
        spec = ctx.spec
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = Head(weight_VH, offsets_KH, spec.offset_columns, spec.dtype)
            total = _Gradients(head)
            upstream_R = torch.cat([grad_nll_T, grad_gate_G])
            grad_RH = torch.empty_like(hidden_RH)
            for part, rows in GapRows(hidden_RH, targets_T, spec.coord).chunks(spec.chunk_rows):
                if kept_RV is not None:  # the rows' factors belong to what is smaller than all logits
                    factor_R1 = upstream_R[:, None]
                    kept = Block(slice(0, len(weight_VH)), head.weight_VH, kept_RV, kept_RV)
                    grad_RH[part] = total.add([kept], factor_R1 * hidden_RH).mul_(factor_R1)
                else:
                    gap = Gap(*(x_R[part] for x_R in found))
                    blocks = _read_again(head, rows, gap, spec, upstream_R[part])
                    grad_RH[part] = total.add(blocks, rows.hidden_RH)

            coord_head = head.part(spec.coord)
            chosen, columns = shared_columns(spec.offset_columns, spec.coord)
            coord_CH = coord_head.hidden_gradient(grad_coord_CJ).to(coord_hidden_CH.dtype)
            add_product(total.weight_VH[spec.coord], grad_coord_CJ.T, coord_hidden_CH.to(spec.dtype))
            total_KH = total.offsets_KH
            if total_KH is not None:
                total_KH[chosen] += grad_coord_CJ[:, columns].T @ coord_hidden_CH.to(head.wide)
                total_KH = total_KH.to(offsets_KH.dtype)
        ce_TH, gate_GH = torch.split(grad_RH, [len(grad_nll_T), len(grad_gate_G)])
        return total.weight_VH.to(weight_VH.dtype), total_KH, ce_TH, gate_GH, coord_CH, None, None


class _Gradients:
    """Of the weight and the offsets, added up over blocks and rows; float32 or better."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.weight_VH = torch.zeros_like(head.weight_VH, dtype=head.wide)
        self.offsets_KH = None if head.offsets_KH is None else torch.zeros_like(head.offsets_KH)

    def add(self, blocks: Iterable[Block], hidden_RH: Tensor) -> Tensor:
        """Adds what some rows contribute, and returns the gradient of their hidden states [R, H].

        Args:
            blocks: the vocabulary, gradients in place of logits.
            hidden_RH: hidden states of the rows.
        """
        narrow_RH, wide_RH = hidden_RH.to(self.head.dtype), hidden_RH.to(self.head.wide)
        grad_RH = torch.zeros_like(wide_RH)
        for block in blocks:
            narrow_RC = block.rounded()
            add_product(self.weight_VH[block.columns], narrow_RC.T, narrow_RH)
            add_product(grad_RH, narrow_RC, block.weight_CH)
            if self.offsets_KH is not None and self.head.offsets_KH is not None:
                chosen, here = shared_columns(self.head.columns, block.columns)
                offset_grad_RK = block.logits_RC[:, here]
                self.offsets_KH[chosen] += offset_grad_RK.T @ wide_RH
                grad_RH += offset_grad_RK @ self.head.offsets_KH[chosen]
        return grad_RH


def _read_again(head: Head, rows: GapRows, gap: Gap, spec: HeadSpec, upstream_R: Tensor) -> Iterator[Block]:
    """Blocks with gradients in place of their logits."""
    size = head.block_columns(rows.hidden_RH, spec.chunk_vocab)
    for block in head.blocks(rows.hidden_RH, head.offset_logits(rows.hidden_RH), size):
        logit_gradient_(block.logits_RC, block.columns, rows, gap, upstream_R)
        yield block
