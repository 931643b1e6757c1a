"""A linear head as an autograd function: cross-entropies, gates and coordinate logits of hidden states.

With a frozen weight the gradients are computed in the forward pass, with two products per block: the losses use one
number per row, so an upstream gradient only scales the row's gradient, and nothing is recomputed for any weights and
denominators. The gradient of a trained weight sums over rows, so it depends on the upstream gradients of all of them:
the backward pass recomputes the logits block by block, with four products instead of three. If the denominators are
given beforehand, the upstream gradients are known up to a common factor (loss scaling): then three products suffice,
and the backward pass verifies that factor.

Shapes: T cross-entropy rows, G gate rows, R = T + G, C coordinate rows, H hidden, V vocabulary, K offsets, J coordinate
tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from coord_losses.fused.blocks import Block, BlockwiseHead, HeadSpec, add_product, index_of, shared_columns
from coord_losses.fused.online_softmax import LogSumExps, NLLRows, OnlineSoftmax, logit_gradient_, online_softmax

_PRECOMPUTED_BYTES = 1 << 28
"""Size of the logits of rows processed together if a trained head's gradients are computed in the forward pass."""


def _once(backward: Callable[..., tuple[Tensor | None, ...]]) -> Callable[..., tuple[Tensor | None, ...]]:
    """Refuse second derivatives, which `once_differentiable` takes as zero if the upstream gradient is a constant."""

    @wraps(backward)
    def call(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # only with create_graph=True
            raise RuntimeError(
                "the fused objective has first derivatives only, and create_graph=True asks for second ones: compute "
                "the objective from logits instead, or leave create_graph out"
            )
        return backward(ctx, *upstream)

    return call


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
        """Save each row's gradient of its hidden state and, if offsets are trained, of the offset columns."""
        offsets_needed, _, *hidden_needed = (spec.grad and needed for needed in ctx.needs_input_grad[1:6])
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = BlockwiseHead(weight_VH, offsets_KH, spec.offset_columns, spec.dtype, bias_V, spec.cap)
            coord_head = head.part(spec.coord)
            rows = NLLRows(torch.cat([ce_hidden_TH, gate_hidden_GH]), targets_T, spec)
            lse, grad_RH, grad_RK = _nll_and_gradients(head, coord_head, rows, spec, any(hidden_needed), offsets_needed)
            coord_logits_CJ = coord_head.logits(coord_hidden_CH)
        ctx.spec, ctx.hidden_dtype = spec, coord_hidden_CH.dtype
        ctx.offsets_dtype = None if offsets_KH is None else offsets_KH.dtype
        hidden = (rows.hidden_RH, coord_hidden_CH) if offsets_needed else (None, None)
        # Save copies of the coordinate rows only: a sharded weight may be released before the backward pass.
        ctx.save_for_backward(grad_RH, grad_RK, *hidden, coord_head.weight_VH, coord_head.offsets_KH)
        nll_R = lse.nll
        return nll_R[: len(targets_T)].clone(), nll_R[len(targets_T) :].clone(), coord_logits_CJ

    @staticmethod
    @_once
    def backward(ctx: Any, grad_nll_T: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the saved gradient of each row."""
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
) -> tuple[LogSumExps, Tensor | None, Tensor | None]:
    """Return logsumexps [R], gradients of nlls by the hidden states [R, H] and by the offset logits [R, K]."""
    num_rows = len(rows.hidden_RH)
    others_R = rows.hidden_RH.new_empty(num_rows, dtype=head.wide)
    lse = LogSumExps(others_R, torch.empty_like(others_R))
    grad_RH = torch.empty_like(rows.hidden_RH) if hidden_needed else None
    grad_RK = None
    if offsets_needed and head.offsets_KH is not None:
        grad_RK = others_R.new_empty(num_rows, len(head.offsets_KH))
    for part, chunk in rows.chunks():
        softmax = online_softmax(head, chunk, spec, mean=hidden_needed, logit_grad=hidden_needed)
        lse.others_R[part], lse.set_R[part] = softmax.lse
        offset_grad_RK = softmax.offset_logits_RK
        if offset_grad_RK is not None and (hidden_needed or offsets_needed):
            logit_gradient_(head, offset_grad_RK, head.columns, chunk, softmax.lse)
        if offset_grad_RK is not None and grad_RK is not None:
            grad_RK[part] = offset_grad_RK
        if grad_RH is not None:
            grad_RH[part] = _hidden_gradient(head, coord_head, chunk, softmax)
    return lse, grad_RH, grad_RK


def _hidden_gradient(head: BlockwiseHead, coord_head: BlockwiseHead, rows: NLLRows, softmax: OnlineSoftmax) -> Tensor:
    """Return `sigmoid(d) · (mean weight of others - mean weight of set)` plus the part of the offsets [R, H]."""
    if softmax.logit_grad_RV is not None:
        return head.hidden_gradient(softmax.logit_grad_RV)
    num_targets, grad_RH = len(rows.targets_T), softmax.mean_weight_RH
    assert grad_RH is not None
    target_TH = head.weight_VH[rows.targets_T].to(head.dtype)
    slope_T1 = head.slope(softmax.lse.set_R[:num_targets, None], rows.factor_R1[:num_targets])
    grad_RH[:num_targets] -= target_TH if slope_T1 is None else slope_T1 * target_TH
    add_product(grad_RH[num_targets:], -softmax.set_grad_GJ, coord_head.weight_VH)
    grad_RH *= softmax.lse.others_prob[:, None]
    if head.offsets_KH is not None and softmax.offset_logits_RK is not None:  # overwritten with its gradient
        grad_RH += softmax.offset_logits_RK @ head.offsets_KH
    return grad_RH


class ApplyTrainedHead(torch.autograd.Function):
    """As `ApplyFrozenHead`, differentiable in weight, offsets, bias and hidden states."""

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
        """Save the inputs and two numbers per row, or all gradients of the logits if the vocabulary is small.

        If the upstream gradients are known up to a common factor (`factors_R`), all other gradients are computed here
        in three products, with the logits of the full vocabulary for some rows at a time.
        """
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = BlockwiseHead(weight_VH, offsets_KH, spec.offset_columns, spec.dtype, bias_V, spec.cap)
            rows = NLLRows(torch.cat([ce_hidden_TH, gate_hidden_GH]), targets_T, spec)
            others_R = rows.hidden_RH.new_empty(len(rows.hidden_RH), dtype=head.wide)
            lse = LogSumExps(others_R, torch.empty_like(others_R))
            kept_RV = None
            ahead = None
            if factors_R is not None and len(others_R) and head.dtype == weight_VH.dtype and not spec.chunk_vocab:
                limit = spec.chunk_rows or max(1, _PRECOMPUTED_BYTES // (head.wide.itemsize * len(weight_VH)))
                rows = replace(rows, spec=replace(spec, chunk_rows=limit, chunk_vocab=len(weight_VH)))
                ahead = _Precomputed(_Gradients(head), rows.hidden_RH.new_empty(rows.hidden_RH.shape, dtype=head.wide))
            chunks = list(rows.chunks())
            keep = len(chunks) == 1 and head.dtype == head.wide
            for part, chunk in chunks:
                result = online_softmax(head, chunk, chunk.spec, mean=False, logit_grad=keep or ahead is not None)
                lse.others_R[part], lse.set_R[part] = result.lse
                if ahead is not None and factors_R is not None and result.logit_grad_RV is not None:
                    ahead.hidden_RH[part] = ahead.total.add_kept(result.logit_grad_RV, chunk, factors_R[part])
                else:
                    kept_RV = result.logit_grad_RV
            coord_logits_CJ = head.part(spec.coord).logits(coord_hidden_CH)
        ctx.spec, ctx.precomputed = spec, ahead
        ctx.save_for_backward(
            weight_VH, offsets_KH, bias_V, rows.hidden_RH, coord_hidden_CH, targets_T, *lse, kept_RV, factors_R
        )
        nll_R = lse.nll
        return nll_R[: len(targets_T)].clone(), nll_R[len(targets_T) :].clone(), coord_logits_CJ

    @staticmethod
    @_once
    def backward(ctx: Any, grad_nll_T: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor) -> tuple[Tensor | None, ...]:
        """Accumulate the gradients, with a second pass over the vocabulary unless they were saved."""
        weight_VH, offsets_KH, bias_V, hidden_RH, coord_hidden_CH, targets_T, *lse, kept_RV, factors_R = (
            ctx.saved_tensors
        )
        spec, ahead, ctx.precomputed = ctx.spec, ctx.precomputed, None  # frees the memory after use
        with torch.autocast(weight_VH.device.type, enabled=False):
            head = BlockwiseHead(weight_VH, offsets_KH, spec.offset_columns, spec.dtype, bias_V, spec.cap)
            upstream_R = torch.cat([grad_nll_T, grad_gate_G])
            ratio = None if ahead is None else _ratio(upstream_R, factors_R)
            if ahead is not None and ratio is not None:
                total, grad_RH = ahead.total.scale_(ratio), (ratio * ahead.hidden_RH).to(hidden_RH.dtype)
            else:
                ahead, total, grad_RH = None, _Gradients(head), torch.empty_like(hidden_RH)
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
class _Precomputed:
    """Gradients computed in the forward pass, for assumed upstream gradients."""

    total: "_Gradients"
    hidden_RH: Tensor


def _ratio(upstream_R: Tensor, factors_R: Tensor) -> float | None:
    """Return the common factor between two vectors, or None if there is none; synchronises with the device."""
    common = upstream_R.dot(factors_R) / factors_R.dot(factors_R)
    distance = (upstream_R - common * factors_R).abs().max()
    allowed = 64 * torch.finfo(factors_R.dtype).eps * upstream_R.abs().max()
    ratio, distance, allowed = torch.stack([common, distance, allowed]).tolist()
    return ratio if distance <= allowed else None


class _Gradients:
    """Gradients of weight, offsets and bias, accumulated over blocks and rows in float32 or better."""

    def __init__(self, head: BlockwiseHead) -> None:
        self.head = head
        self.weight_VH = torch.zeros_like(head.weight_VH, dtype=head.wide)
        self.offsets_KH = None if head.offsets_KH is None else torch.zeros_like(head.offsets_KH)
        self.bias_V = self.weight_VH.new_zeros(len(self.weight_VH))

    def scale_(self, factor: float) -> "_Gradients":
        """Multiply all gradients by a factor in place."""
        if factor != 1:
            for total in (self.weight_VH, self.offsets_KH, self.bias_V):
                _ = None if total is None else total.mul_(factor)
        return self

    def add_kept(self, logit_grad_RV: Tensor, rows: NLLRows, upstream_R: Tensor) -> Tensor:
        """Add the contribution of rows given the gradient of all their logits; return that of the hidden states."""
        upstream_R1 = upstream_R[:, None]  # scales tensors that are smaller than the logits
        same = self.head.dtype == self.head.wide
        narrow_RV = logit_grad_RV if same else torch.empty_like(logit_grad_RV, dtype=self.head.dtype)
        weight_VH = self.head.weight_VH.to(self.head.dtype)
        kept = Block(slice(0, len(weight_VH)), weight_VH, logit_grad_RV, narrow_RV)
        return self.add([kept], upstream_R1 * rows.hidden_RH, upstream_R1 * rows.factor_R1).mul_(upstream_R1)

    def add(self, blocks: Iterable[Block], hidden_RH: Tensor, factor_R1: Tensor) -> Tensor:
        """Add the contribution of some rows, given blocks that contain gradients instead of logits.

        Args:
            blocks: the blocks of those rows
            hidden_RH: factor of the gradients for the weight
            factor_R1: factor of the gradients for the bias

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
                chosen, local_columns = shared_columns(self.head.columns, block.columns)
                offset_grad_RK = block.logits_RC[:, index_of(local_columns)]
                self.offsets_KH[chosen] += offset_grad_RK.T @ wide_RH
                grad_RH += offset_grad_RK @ self.head.offsets_KH[chosen]
        return grad_RH


def _gradient_blocks(
    head: BlockwiseHead, rows: NLLRows, lse: LogSumExps, spec: HeadSpec, upstream_R: Tensor
) -> Iterator[Block]:
    """Recompute the logits and yield blocks that contain their gradients instead."""
    size = head.block_columns(rows.hidden_RH, spec.chunk_vocab)
    for block in head.blocks(rows.hidden_RH, rows.factor_R1, head.offset_logits(rows.hidden_RH), size):
        logit_gradient_(head, block.logits_RC, block.columns, rows, lse, upstream_R)
        yield block
