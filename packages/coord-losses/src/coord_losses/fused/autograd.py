"""A linear head as a differentiable function: cross-entropies, gates and coordinate logits of hidden states.

With a frozen weight gradients are computed in the forward pass, with two products per block: each row leaves one
number for the losses, so an upstream gradient scales the row's own gradient, and nothing is computed a second time
whatever weights and denominators come later. The gradient of a trained weight mixes rows, so it has to wait for the
upstream gradients of all of them: the backward pass computes the logits again, block by block, with four products
instead of three. Where the denominators are given beforehand, the upstream gradients are known up to a common factor
(loss scaling): then three are enough, and the backward pass checks that factor.

Shapes: T rows of the cross-entropy, G of the gate, R = T + G, C of coordinates, H hidden, V vocabulary, K offsets,
J coordinate tokens.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from coord_losses.fused.blocks import Block, BlockwiseHead, HeadSpec, add_product, index_of, shared_columns
from coord_losses.fused.online_softmax import LogSumExps, NLLRows, OnlineSoftmax, logit_gradient_, online_softmax

if TYPE_CHECKING:
    from coord_losses.fused.triton_walk import TritonWalk

_KNOWN_BYTES = 1 << 28
"""Logits of the rows that are processed together where a trained head's gradients are computed in the forward pass."""


def triton_walk(head: BlockwiseHead, rows: NLLRows) -> "TritonWalk":
    """Return the walk by Triton's kernels, which are imported here alone.

    Raises:
        ImportError: there is no Triton
        ValueError: see `TritonWalk`
    """
    try:
        from coord_losses.fused.triton_walk import TritonWalk
    except ImportError as error:
        raise ImportError("kernel='triton' needs Triton (pip install triton); use kernel='torch'") from error
    return TritonWalk(head, rows)


class ApplyFrozenHead(torch.autograd.Function):
    """`nll_T, gate_G, coord_logits_CJ`, differentiable in the hidden states and the offsets."""

    @staticmethod
    def forward(
        ctx: Any,
        weight_VH: Tensor,
        offsets_KH: Tensor | None,
        bias_V: Tensor | None,
        ce_hidden_TH: Tensor,
        gate_hidden_GH: Tensor,
        coord_hidden_CH: Tensor,
        targets_T: Tensor,
        spec: HeadSpec,
        factors_R: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keep per row the gradient of its hidden state and, where offsets are trained, of their columns."""
        offsets_needed, _, *hidden_needed = (spec.grad and needed for needed in ctx.needs_input_grad[1:6])
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = BlockwiseHead(weight_VH, offsets_KH, spec.offset_columns, spec.dtype, bias_V, spec.cap)
            coord_head = head.part(spec.coord)
            rows = NLLRows(torch.cat([ce_hidden_TH, gate_hidden_GH]), targets_T, spec)
            if spec.kernel == "triton":
                walk = triton_walk(head, rows)
                lse = walk.log_sum_exps()
                nll_R, grad_RH, grad_RK = lse.nll, None, None
                if offsets_needed or any(hidden_needed):
                    grad_RH, grad_RK = walk.gradients(lse, torch.ones_like(nll_R))
            else:
                nll_R, grad_RH, grad_RK = _nll_and_gradients(
                    head, coord_head, rows, spec, any(hidden_needed), offsets_needed
                )
            coord_logits_CJ = coord_head.logits(coord_hidden_CH)
        ctx.spec, ctx.hidden_dtype = spec, coord_hidden_CH.dtype
        ctx.offsets_dtype = None if offsets_KH is None else offsets_KH.dtype
        hidden = (rows.hidden_RH, coord_hidden_CH) if offsets_needed else (None, None)
        # Neither weight nor offsets but copies of the coordinate rows: sharded ones are gone by the backward pass.
        ctx.save_for_backward(grad_RH, grad_RK, *hidden, coord_head.weight_VH, coord_head.offsets_KH)
        nll_T, gate_G = torch.split(nll_R, [len(targets_T), len(gate_hidden_GH)])
        return nll_T, gate_G, coord_logits_CJ

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_nll_T: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradient of each row."""
        grad_RH, grad_RK, hidden_RH, coord_hidden_CH, weight_JH, coord_offsets = ctx.saved_tensors
        chosen, columns = shared_columns(ctx.spec.offset_columns, ctx.spec.coord)
        hidden_gradients: list[Tensor | None] = [None, None, None]
        offsets_gradient = None
        with torch.autocast(grad_nll_T.device.type, enabled=False):
            upstream_R1 = torch.cat([grad_nll_T, grad_gate_G])[:, None]
            if grad_RH is not None:
                coord_head = BlockwiseHead(weight_JH, coord_offsets, columns, ctx.spec.dtype)
                coord_CH = coord_head.hidden_gradient(grad_coord_CJ)
                rows_RH = (upstream_R1 * grad_RH).to(ctx.hidden_dtype)
                parts = torch.split(rows_RH, [len(grad_nll_T), len(grad_gate_G)])
                hidden_gradients = [*parts, coord_CH.to(ctx.hidden_dtype)]
            if grad_RK is not None:
                total_KH = (upstream_R1 * grad_RK).T @ hidden_RH.to(grad_RK.dtype)
                total_KH[chosen] += grad_coord_CJ[:, index_of(columns)].T @ coord_hidden_CH.to(total_KH.dtype)
                offsets_gradient = total_KH.to(ctx.offsets_dtype)
        return None, offsets_gradient, None, *hidden_gradients, None, None, None


def _nll_and_gradients(
    head: BlockwiseHead,
    coord_head: BlockwiseHead,
    rows: NLLRows,
    spec: HeadSpec,
    hidden_needed: bool,
    offsets_needed: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the nlls [R], and the gradient of each by its hidden state [R, H] and its offset logits [R, K]."""
    num_rows = len(rows.hidden_RH)
    nll_R = rows.hidden_RH.new_empty(num_rows, dtype=head.wide)
    grad_RH = torch.empty_like(rows.hidden_RH) if hidden_needed else None
    grad_RK = None
    if offsets_needed and head.offsets_KH is not None:
        grad_RK = nll_R.new_empty(num_rows, len(head.offsets_KH))
    for part, chunk in rows.chunks():
        found = online_softmax(head, chunk, spec, mean=hidden_needed, logit_grad=hidden_needed)
        nll_R[part] = found.lse.nll
        offset_grad_RK = found.offset_logits_RK
        if offset_grad_RK is not None and (hidden_needed or offsets_needed):
            logit_gradient_(head, offset_grad_RK, head.columns, chunk, found.lse)
        if offset_grad_RK is not None and grad_RK is not None:
            grad_RK[part] = offset_grad_RK
        if grad_RH is not None:
            grad_RH[part] = _hidden_gradient(head, coord_head, chunk, found)
    return nll_R, grad_RH, grad_RK


def _hidden_gradient(head: BlockwiseHead, coord_head: BlockwiseHead, rows: NLLRows, found: OnlineSoftmax) -> Tensor:
    """Return `sigmoid(d) · (mean weight of the others - mean weight of the set)`, plus what the offsets add [R, H]."""
    if found.logit_grad_RV is not None:
        return head.hidden_gradient(found.logit_grad_RV)
    num_targets, grad_RH = len(rows.targets_T), found.mean_weight_RH
    assert grad_RH is not None
    target_TH = head.weight_VH[rows.targets_T].to(head.dtype)
    slope_T1 = head.slope(found.lse.set_R[:num_targets, None], rows.factor_R1[:num_targets])
    grad_RH[:num_targets] -= target_TH if slope_T1 is None else slope_T1 * target_TH
    add_product(grad_RH[num_targets:], -found.set_grad_GJ, coord_head.weight_VH)
    grad_RH *= found.lse.others_prob[:, None]
    if head.offsets_KH is not None and found.offset_logits_RK is not None:  # a gradient by now
        grad_RH += found.offset_logits_RK @ head.offsets_KH
    return grad_RH


class ApplyTrainedHead(torch.autograd.Function):
    """`nll_T, gate_G, coord_logits_CJ`, differentiable in weight, offsets, bias and hidden states."""

    @staticmethod
    def forward(
        ctx: Any,
        weight_VH: Tensor,
        offsets_KH: Tensor | None,
        bias_V: Tensor | None,
        ce_hidden_TH: Tensor,
        gate_hidden_GH: Tensor,
        coord_hidden_CH: Tensor,
        targets_T: Tensor,
        spec: HeadSpec,
        factors_R: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the inputs and two numbers of each row, or all gradients of a small vocabulary's logits.

        Where the upstream gradients are known up to a common factor (`factors_R`), all other gradients are computed
        here, in three products: the logits of some rows exist as a whole.
        """
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = BlockwiseHead(weight_VH, offsets_KH, spec.offset_columns, spec.dtype, bias_V, spec.cap)
            rows = NLLRows(torch.cat([ce_hidden_TH, gate_hidden_GH]), targets_T, spec)
            others_R = rows.hidden_RH.new_empty(len(rows.hidden_RH), dtype=head.wide)
            lse = LogSumExps(others_R, torch.empty_like(others_R))
            kept_RV = None
            known = None
            if spec.kernel == "triton":
                lse = triton_walk(head, rows).log_sum_exps()
            elif factors_R is not None and len(others_R) and head.dtype == weight_VH.dtype and not spec.chunk_vocab:
                limit = spec.chunk_rows or max(1, _KNOWN_BYTES // (head.wide.itemsize * len(weight_VH)))
                rows = replace(rows, spec=replace(spec, chunk_rows=limit, chunk_vocab=len(weight_VH)))
                known = _Known(_Gradients(head), rows.hidden_RH.new_empty(rows.hidden_RH.shape, dtype=head.wide))
            chunks = list(rows.chunks()) if spec.kernel == "torch" else []
            keep = len(chunks) == 1 and head.dtype == head.wide
            for part, chunk in chunks:
                found = online_softmax(head, chunk, chunk.spec, mean=False, logit_grad=keep or known is not None)
                lse.others_R[part], lse.set_R[part] = found.lse
                if known is not None and factors_R is not None and found.logit_grad_RV is not None:
                    known.hidden_RH[part] = known.total.add_kept(found.logit_grad_RV, chunk, factors_R[part])
                else:
                    kept_RV = found.logit_grad_RV
            coord_logits_CJ = head.part(spec.coord).logits(coord_hidden_CH)
        ctx.spec, ctx.known = spec, known
        ctx.save_for_backward(
            weight_VH, offsets_KH, bias_V, rows.hidden_RH, coord_hidden_CH, targets_T, *lse, kept_RV, factors_R
        )
        nll_T, gate_G = torch.split(lse.nll, [len(targets_T), len(gate_hidden_GH)])
        return nll_T, gate_G, coord_logits_CJ

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_nll_T: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor) -> tuple[Tensor | None, ...]:
        """Add up, after a second pass over the vocabulary unless the logits' gradients were kept."""
        weight_VH, offsets_KH, bias_V, hidden_RH, coord_hidden_CH, targets_T, *lse, kept_RV, factors_R = (
            ctx.saved_tensors
        )
        spec, known, ctx.known = ctx.spec, ctx.known, None  # what was computed before is handed on, and not kept
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = BlockwiseHead(weight_VH, offsets_KH, spec.offset_columns, spec.dtype, bias_V, spec.cap)
            upstream_R = torch.cat([grad_nll_T, grad_gate_G])
            ratio = None if known is None else _ratio(upstream_R, factors_R)
            if spec.kernel == "triton":
                total, rows = _Gradients(head), NLLRows(hidden_RH, targets_T, spec)
                walk = triton_walk(head, rows)
                grad_RH, grad_RK = walk.gradients(LogSumExps(*lse), upstream_R, total.weight_VH, total.bias_V)
                if grad_RK is not None and total.offsets_KH is not None:
                    total.offsets_KH += grad_RK.T @ hidden_RH.to(head.wide)
                grad_RH = grad_RH.to(hidden_RH.dtype)
            elif known is not None and ratio is not None:
                total, grad_RH = known.total.scale_(ratio), (ratio * known.hidden_RH).to(hidden_RH.dtype)
            else:
                known, total, grad_RH = None, _Gradients(head), torch.empty_like(hidden_RH)
                for part, rows in NLLRows(hidden_RH, targets_T, spec).chunks():
                    if kept_RV is not None:
                        grad_RH[part] = total.add_kept(kept_RV, rows, upstream_R)
                    else:
                        part_lse = LogSumExps(*(x_R[part] for x_R in lse))
                        blocks = _gradient_blocks(head, rows, part_lse, spec, upstream_R[part])
                        grad_RH[part] = total.add(blocks, rows.hidden_RH, rows.factor_R1)

            coord_head = head.part(spec.coord)
            chosen, columns = shared_columns(spec.offset_columns, spec.coord)
            coord_CH = coord_head.hidden_gradient(grad_coord_CJ).to(coord_hidden_CH.dtype)
            add_product(total.weight_VH[spec.coord], grad_coord_CJ.T, coord_hidden_CH.to(spec.dtype))
            total_KH = total.offsets_KH
            if total_KH is not None:
                total_KH[chosen] += grad_coord_CJ[:, index_of(columns)].T @ coord_hidden_CH.to(head.wide)
                total_KH = total_KH.to(offsets_KH.dtype)
        ce_TH, gate_GH = torch.split(grad_RH, [len(grad_nll_T), len(grad_gate_G)])
        grad_V = None if bias_V is None else total.bias_V.to(bias_V.dtype)
        return total.weight_VH.to(weight_VH.dtype), total_KH, grad_V, ce_TH, gate_GH, coord_CH, None, None, None


@dataclass
class _Known:
    """Gradients computed in the forward pass, for assumed upstream gradients."""

    total: "_Gradients"
    hidden_RH: Tensor


def _ratio(upstream_R: Tensor, factors_R: Tensor) -> float | None:
    """Return the factor between two vectors, None where there is no common one; the host waits for the device."""
    common = upstream_R.dot(factors_R) / factors_R.dot(factors_R)
    distance = (upstream_R - common * factors_R).abs().max()
    allowed = 64 * torch.finfo(factors_R.dtype).eps * upstream_R.abs().max()
    ratio, distance, allowed = torch.stack([common, distance, allowed]).tolist()
    return ratio if distance <= allowed else None


class _Gradients:
    """Gradients of the weight, the offsets and the bias, added up over blocks and rows; float32 or better."""

    def __init__(self, head: BlockwiseHead) -> None:
        self.head = head
        self.weight_VH = torch.zeros_like(head.weight_VH, dtype=head.wide)
        self.offsets_KH = None if head.offsets_KH is None else torch.zeros_like(head.offsets_KH)
        self.bias_V = self.weight_VH.new_zeros(len(self.weight_VH))

    def scale_(self, factor: float) -> "_Gradients":
        """Multiply all of them."""
        if factor != 1:
            for total in (self.weight_VH, self.offsets_KH, self.bias_V):
                _ = None if total is None else total.mul_(factor)
        return self

    def add_kept(self, logit_grad_RV: Tensor, rows: NLLRows, upstream_R: Tensor) -> Tensor:
        """Add the contribution of rows from the gradient of all their logits; returns that of the hidden states."""
        upstream_R1 = upstream_R[:, None]  # scales what is smaller than all logits
        same = self.head.dtype == self.head.wide
        narrow_RV = logit_grad_RV if same else torch.empty_like(logit_grad_RV, dtype=self.head.dtype)
        weight_VH = self.head.weight_VH.to(self.head.dtype)
        kept = Block(slice(0, len(weight_VH)), weight_VH, logit_grad_RV, narrow_RV)
        return self.add([kept], upstream_R1 * rows.hidden_RH, upstream_R1 * rows.factor_R1).mul_(upstream_R1)

    def add(self, blocks: Iterable[Block], hidden_RH: Tensor, factor_R1: Tensor) -> Tensor:
        """Add the contribution of some rows, from blocks that hold gradients in place of logits.

        Args:
            blocks: of those rows
            hidden_RH: what the gradients are multiplied by for the weight
            factor_R1: what they are multiplied by for the bias

        Returns:
            The gradient of the rows' hidden states [R, H].
        """
        narrow_RH, wide_RH = hidden_RH.to(self.head.dtype), hidden_RH.to(self.head.wide)
        grad_RH = torch.zeros_like(wide_RH)
        for block in blocks:
            narrow_RC = block.rounded()
            add_product(self.weight_VH[block.columns], narrow_RC.T, narrow_RH)
            if self.head.bias_V is not None:
                self.bias_V[block.columns] += (factor_R1.T @ block.logits_RC)[0]
            add_product(grad_RH, narrow_RC, block.weight_CH)
            if self.offsets_KH is not None and self.head.offsets_KH is not None:
                chosen, here = shared_columns(self.head.columns, block.columns)
                offset_grad_RK = block.logits_RC[:, index_of(here)]
                self.offsets_KH[chosen] += offset_grad_RK.T @ wide_RH
                grad_RH += offset_grad_RK @ self.head.offsets_KH[chosen]
        return grad_RH


def _gradient_blocks(
    head: BlockwiseHead, rows: NLLRows, lse: LogSumExps, spec: HeadSpec, upstream_R: Tensor
) -> Iterator[Block]:
    """Compute the logits again and yield blocks that hold their gradients instead."""
    size = head.block_columns(rows.hidden_RH, spec.chunk_vocab)
    for block in head.blocks(rows.hidden_RH, rows.factor_R1, head.offset_logits(rows.hidden_RH), size):
        logit_gradient_(head, block.logits_RC, block.columns, rows, lse, upstream_R)
        yield block
