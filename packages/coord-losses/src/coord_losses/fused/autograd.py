"""A linear head as an autograd function: cross-entropies, gates and coordinate logits of hidden states.

Logits exist for some rows at a time, over the whole vocabulary: one product, one pass in place that leaves their
gradient, and one product into the gradient of the hidden states. With a frozen weight that is all, in the forward pass:
the losses use one number per row, so an upstream gradient only scales the row's gradient. The gradient of a trained
weight sums over rows, so it depends on the upstream gradients of all of them: the backward pass computes the logits
again, with four products instead of three. If the denominators are given beforehand, the upstream gradients are known
up to a common factor (loss scaling): then three products suffice, and the backward pass verifies that factor.

Shapes: T cross-entropy rows, G gate rows, R = T + G, C coordinate rows, H hidden, V vocabulary, K offsets, J coordinate
tokens.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coord_losses.fused.head import Index, LinearHead
from coord_losses.fused.one_pass import Apart, LogitShape, Sets, nll_and_gradient_

_PART_ROWS = 8192
"""Rows of a weight's gradient to which a product in 16 bits is added at a time."""


class Products(NamedTuple):
    """The products of (a part of) a head, in the dtype of the weight; everything else in float32 or better.

    Attributes:
        weight_VH: the weight
        offsets_KH: offsets of some of its rows, float32 or better, or None
        ids: those rows
    """

    weight_VH: Tensor
    offsets_KH: Tensor | None
    ids: Index

    @property
    def wide(self) -> torch.dtype:
        """The dtype of everything else."""
        return torch.promote_types(self.weight_VH.dtype, torch.float32)

    def offset_logits(self, hidden_RH: Tensor) -> Tensor | None:
        """Return the logits that the offsets add in their columns [R, K]."""
        return None if self.offsets_KH is None else hidden_RH.to(self.wide) @ self.offsets_KH.T

    def of_weight(self, hidden_RH: Tensor) -> Tensor:
        """Return the logits without offsets [R, V], in the dtype of the weight."""
        return hidden_RH.to(self.weight_VH.dtype) @ self.weight_VH.T

    def logits(self, hidden_RH: Tensor) -> Tensor:
        """Return all logits [R, V]."""
        logits_RV, added_RK = self.of_weight(hidden_RH).to(self.wide), self.offset_logits(hidden_RH)
        if added_RK is not None:
            logits_RV[:, self.ids] += added_RK
        return logits_RV

    def hidden_gradient(self, grad_RV: Tensor, grad_RK: Tensor | None) -> Tensor:
        """Return the gradient of the hidden states [R, H], given that of the logits and of the offsets' columns."""
        grad_RH = (grad_RV.to(self.weight_VH.dtype) @ self.weight_VH).to(self.wide)
        return grad_RH if self.offsets_KH is None or grad_RK is None else grad_RH.addmm_(grad_RK, self.offsets_KH)


class Totals(NamedTuple):
    """Gradients of weight, offsets and bias, accumulated over rows in float32 or better."""

    weight_VH: Tensor
    offsets_KH: Tensor | None
    bias_V: Tensor

    @classmethod
    def zeros(cls, products: Products) -> "Totals":
        """Return totals of no rows."""
        weight_VH = torch.zeros_like(products.weight_VH, dtype=products.wide)
        offsets_KH = None if products.offsets_KH is None else torch.zeros_like(products.offsets_KH)
        return cls(weight_VH, offsets_KH, weight_VH.new_zeros(len(weight_VH)))

    def add(self, grad_RV: Tensor, grad_RK: Tensor | None, hidden_RH: Tensor, factor_R1: Tensor, biased: bool) -> None:
        """Add the part of some rows; `hidden_RH` and the bias's `factor_R1` include the upstream gradient."""
        add_product(self.weight_VH, grad_RV.T, hidden_RH.to(grad_RV.dtype))
        if self.offsets_KH is not None and grad_RK is not None:
            self.offsets_KH.addmm_(grad_RK.T, hidden_RH.to(grad_RK.dtype))
        if biased:
            self.bias_V.add_((factor_R1.T @ grad_RV.to(self.bias_V.dtype))[0])


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add `left · right` to a total in float32 or better."""
    if total.dtype == right.dtype:
        total.addmm_(left, right)
        return
    if total.is_cuda and hasattr(torch.ops.aten.addmm, "dtype_out"):  # since torch 2.8
        torch.ops.aten.addmm.dtype_out(total, left, right, total.dtype, out=total)
        return
    for total_part, left_part in zip(torch.split(total, _PART_ROWS), torch.split(left, _PART_ROWS), strict=True):
        total_part.add_(left_part @ right)


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


class _Rows(NamedTuple):
    """The rows of the full vocabulary: first those with a target, then those of the gate."""

    hidden_RH: Tensor
    sets: Sets
    factor_R1: Tensor
    """1, and 1 / temperature in the rows of the gate, which their hidden states were multiplied by."""

    @classmethod
    def of(cls, targets_T: Tensor, hidden_RH: Tensor, factor_R1: Tensor, apart: Apart) -> "_Rows":
        return cls(hidden_RH, Sets.of(targets_T, len(hidden_RH) - len(targets_T), apart), factor_R1)

    def part(self, rows: slice) -> "_Rows":
        return _Rows(self.hidden_RH[rows], self.sets.part(rows), self.factor_R1[rows])

    def apply(
        self, head: LinearHead, products: Products, apart: Apart, grad: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return nlls [R], and where `grad` is set their gradients by the logits [R, V] and the offsets' columns."""
        logits_RV, added_RK = products.of_weight(self.hidden_RH), products.offset_logits(self.hidden_RH)
        shape = LogitShape(None if head.bias_V is None else head.bias_V.to(products.wide), head.cap, self.factor_R1)
        nll_R, grad_RA = nll_and_gradient_(logits_RV, self.sets, apart, added_RK, shape, grad)
        return nll_R, logits_RV, None if added_RK is None else grad_RA[:, : added_RK.shape[1]]


def _products(head: LinearHead, weight_VH: Tensor, offsets_KH: Tensor | None, dtype: torch.dtype) -> Products:
    wide = torch.promote_types(dtype, torch.float32)
    return Products(weight_VH.to(dtype), None if offsets_KH is None else offsets_KH.to(wide), head.ids)


def _part(head: LinearHead, products: Products) -> Products:
    """Return the products of the coordinate tokens, with a copy of their rows, without bias and cap."""
    chosen, columns = head.of_coord
    offsets_KH = None if products.offsets_KH is None else products.offsets_KH[chosen].clone()
    return Products(products.weight_VH[head.coord].clone(), offsets_KH, columns)


class HeadCall(NamedTuple):
    """What a call of `ApplyHead` takes beside the tensors that gradients are computed for.

    Attributes:
        head: the head
        targets_T: the target of each cross-entropy row
        temperature: of the gate
        dtype: of the products
        grad: whether gradients are needed at all
        factors_R: the upstream gradients up to a common factor; None if they are unknown
    """

    head: LinearHead
    targets_T: Tensor
    temperature: float
    dtype: torch.dtype
    grad: bool
    factors_R: Tensor | None


class _Needs(NamedTuple):
    """Which gradients are needed: of the head's parts, and of any hidden states."""

    weight: bool
    offsets: bool
    bias: bool
    hidden: bool

    @property
    def trained(self) -> bool:
        return self.weight or self.bias


class ApplyHead(torch.autograd.Function):
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
        call: HeadCall,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Save each row's gradient of its hidden state and of the offset columns; of a trained head the inputs.

        If the upstream gradients are known up to a common factor, those of a trained head are computed here as well.
        """
        weight, offsets, bias, *hidden = (call.grad and one for one in ctx.needs_input_grad[:6])
        needs = _Needs(weight, offsets, bias, any(hidden))
        head, targets_T = call.head, call.targets_T
        with torch.autocast(weight_VH.device.type, enabled=False):
            products = _products(head, weight_VH, offsets_KH, call.dtype)
            hidden_RH = torch.cat([ce_hidden_TH, gate_hidden_GH])
            factor_R1 = hidden_RH.new_ones((len(hidden_RH), 1), dtype=products.wide)
            factor_R1[len(targets_T) :] /= call.temperature
            apart = Apart.of(head)
            rows_R = _Rows.of(targets_T, hidden_RH, factor_R1, apart)
            grad_RH = grad_RK = total = None
            if needs.trained and call.factors_R is not None and len(call.factors_R):
                upstream_R1 = call.factors_R[:, None]
                nll_R, grad_RH, total = _trained_pass(head, products, rows_R, apart, upstream_R1, needs.bias)
            else:
                nll_R, grad_RH, grad_RK = _frozen_pass(head, products, rows_R, apart, needs)
            coord = _part(head, products)
            coord_logits_CJ = coord.logits(coord_hidden_CH)
        ctx.trained, ctx.total, ctx.dtype, ctx.of_coord = needs.trained, total, call.dtype, head.of_coord
        ctx.hidden_dtype, ctx.offsets_dtype = coord_hidden_CH.dtype, None if offsets_KH is None else offsets_KH.dtype
        ctx.head = head if needs.trained else None  # a frozen weight may be released before the backward pass
        needed = (hidden_RH, coord_hidden_CH) if needs.trained or needs.offsets else (None, None)
        inputs = (weight_VH, offsets_KH, bias_V, targets_T, factor_R1, call.factors_R) if needs.trained else (None,) * 6
        ctx.save_for_backward(grad_RH, grad_RK, *needed, coord.weight_VH, coord.offsets_KH, *inputs)
        return nll_R[: len(targets_T)].clone(), nll_R[len(targets_T) :].clone(), coord_logits_CJ

    @staticmethod
    @_once
    def backward(ctx: Any, grad_nll_T: Tensor, grad_gate_G: Tensor, grad_coord_CJ: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the saved gradients; of a trained head compute the logits again unless all were saved."""
        grad_RH, grad_RK, hidden_RH, coord_hidden_CH, coord_weight_JH, coord_offsets_KH, *inputs = ctx.saved_tensors
        chosen, columns = ctx.of_coord
        upstream_R1 = torch.cat([grad_nll_T, grad_gate_G])[:, None]
        total_VH = total_KH = total_V = None
        with torch.autocast(grad_nll_T.device.type, enabled=False):
            if ctx.trained:
                grad_RH, total = _trained_gradients(ctx, grad_RH, hidden_RH, upstream_R1, *inputs)
                total_VH, total_KH, total_V = total
                add_product(total_VH[ctx.head.coord], grad_coord_CJ.T.to(ctx.dtype), coord_hidden_CH.to(ctx.dtype))
            elif grad_RH is not None:
                grad_RH = upstream_R1 * grad_RH
            if grad_RK is not None:
                total_KH = (upstream_R1 * grad_RK).T @ hidden_RH.to(grad_RK.dtype)
            if total_KH is not None:
                total_KH[chosen] += grad_coord_CJ[:, columns].T @ coord_hidden_CH.to(total_KH.dtype)
                total_KH = total_KH.to(ctx.offsets_dtype)
            hidden: list[Tensor | None] = [None, None, None]
            if grad_RH is not None:
                parts = torch.split(grad_RH.to(ctx.hidden_dtype), [len(grad_nll_T), len(grad_gate_G)])
                coord = Products(coord_weight_JH, coord_offsets_KH, columns)
                coord_CH = coord.hidden_gradient(grad_coord_CJ, grad_coord_CJ[:, columns]).to(ctx.hidden_dtype)
                hidden = [*parts, coord_CH]
        if ctx.trained and total_VH is not None:
            weight_VH, _, bias_V, *_ = inputs
            total_VH = total_VH.to(weight_VH.dtype)
            total_V = None if bias_V is None or total_V is None else total_V.to(bias_V.dtype)
        return total_VH, total_KH, total_V, *hidden, None


def apply_head(
    head: LinearHead,
    ce_hidden_RH: Tensor,
    targets_R: Tensor,
    gate_hidden_GH: Tensor,
    coord_hidden_CH: Tensor,
    gate_temperature: float = 1.0,
    factors_R: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the differentiable inputs of the losses, in float32 or better.

    Args:
        head: the head
        ce_hidden_RH: rows whose cross-entropy is needed
        targets_R: targets of those rows
        gate_hidden_GH: rows whose gate is needed
        coord_hidden_CH: rows whose coordinate logits are needed
        gate_temperature: temperature of the gate
        factors_R: the upstream gradients of cross-entropies and gates up to a common factor, which save a trained head
            one product; None if they are unknown

    Returns:
        Cross-entropy [R], gate [G] and coordinate logits [C, J].

    Raises:
        ValueError: if a sharded weight has been released in the meantime
    """
    if len(head.weight_VH) < head.coord.stop:
        raise ValueError("the head's weight has been released since; call diagnostics while it is gathered")
    nll_R, gate_G, coord_logits_CJ = ApplyHead.apply(
        head.weight_VH,
        head.offsets_KH,
        head.bias_V,
        ce_hidden_RH,
        gate_hidden_GH / gate_temperature,
        coord_hidden_CH,
        HeadCall(head, targets_R, gate_temperature, head.dtype, torch.is_grad_enabled(), factors_R),
    )
    return nll_R, gate_G, head.finish(coord_logits_CJ, head.coord)


def _trained_gradients(
    ctx: Any,
    grad_RH: Tensor | None,
    hidden_RH: Tensor,
    upstream_R1: Tensor,
    weight_VH: Tensor,
    offsets_KH: Tensor | None,
    bias_V: Tensor | None,
    targets_T: Tensor,
    factor_R1: Tensor,
    factors_R: Tensor | None,
) -> tuple[Tensor, Totals]:
    """Return the gradients of the hidden states, and of weight, offsets and bias."""
    saved, ctx.total = ctx.total, None  # frees the memory after use
    ratio = None if saved is None or factors_R is None else _ratio(upstream_R1[:, 0], factors_R)
    if saved is not None and grad_RH is not None and ratio is not None:
        if ratio != 1:
            for total in saved:
                _ = None if total is None else total.mul_(ratio)
        return ratio * grad_RH, saved
    products, apart = _products(ctx.head, weight_VH, offsets_KH, ctx.dtype), Apart.of(ctx.head)
    rows_R = _Rows.of(targets_T, hidden_RH, factor_R1, apart)
    return _trained_pass(ctx.head, products, rows_R, apart, upstream_R1, bias_V is not None)[1:]


def _frozen_pass(
    head: LinearHead, products: Products, rows_R: _Rows, apart: Apart, needs: _Needs
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return nlls [R], and of a frozen head the gradients that are needed: by hidden states and by offset columns.

    An upstream gradient scales the rows of both. Of a trained head the nlls alone are computed.
    """
    nll_R = rows_R.factor_R1.new_empty(len(rows_R.hidden_RH))
    grad_RH = grad_RK = None
    if needs.hidden and not needs.trained:
        grad_RH = nll_R.new_empty(rows_R.hidden_RH.shape)
    if needs.offsets and not needs.trained and products.offsets_KH is not None:
        grad_RK = nll_R.new_empty(len(nll_R), len(products.offsets_KH))
    for part in head.chunks(len(nll_R), products.weight_VH.dtype.itemsize, False):
        grad = grad_RH is not None or grad_RK is not None
        nll_R[part], chunk_RV, chunk_RK = rows_R.part(part).apply(head, products, apart, grad)
        if grad_RH is not None:
            grad_RH[part] = products.hidden_gradient(chunk_RV, chunk_RK)
        if grad_RK is not None and chunk_RK is not None:
            grad_RK[part] = chunk_RK
        del chunk_RV, chunk_RK  # before the next product
    return nll_R, grad_RH, grad_RK


def _trained_pass(
    head: LinearHead, products: Products, rows_R: _Rows, apart: Apart, upstream_R1: Tensor, biased: bool
) -> tuple[Tensor, Tensor, Totals]:
    """Return nlls [R], and the gradients of hidden states [R, H] and of a trained head, given the upstream ones."""
    nll_R = rows_R.factor_R1.new_empty(len(rows_R.hidden_RH))
    grad_RH, total = nll_R.new_empty(rows_R.hidden_RH.shape), Totals.zeros(products)
    for part in head.chunks(len(nll_R), products.weight_VH.dtype.itemsize, True):
        rows, up_R1 = rows_R.part(part), upstream_R1[part]
        nll_R[part], chunk_RV, chunk_RK = rows.apply(head, products, apart, grad=True)
        grad_RH[part] = up_R1 * products.hidden_gradient(chunk_RV, chunk_RK)
        total.add(chunk_RV, chunk_RK, up_R1 * rows.hidden_RH, up_R1 * rows.factor_R1, biased)
        del chunk_RV, chunk_RK  # before the next product
    return nll_R, grad_RH, total


def _ratio(upstream_R: Tensor, factors_R: Tensor) -> float | None:
    """Return the common factor between two vectors, or None if there is none; synchronises with the device."""
    common = upstream_R.dot(factors_R) / factors_R.dot(factors_R)
    distance = (upstream_R - common * factors_R).abs().max()
    allowed = 64 * torch.finfo(factors_R.dtype).eps * upstream_R.abs().max()
    ratio, distance, allowed = torch.stack([common, distance, allowed]).tolist()
    return ratio if distance <= allowed else None
