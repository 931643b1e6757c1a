"""Negative log-likelihoods of sets of tokens, and their gradients by the logits, in one pass over the logits.

The losses need one number per row of full-vocabulary logits: the negative log-likelihood of a set of tokens,
`nll = logsumexp(all) - logsumexp(set)`. If the set is the target, it is the cross-entropy; if the set is all coordinate
tokens, it is the vocabulary gate. Let the others be all tokens outside the set, and
`d = logsumexp(others) - logsumexp(set)`. Then the nll is `softplus(d)`, and its gradient with respect to the logits is
`sigmoid(d) · (softmax(others) - softmax(set))`; both are accurate even if the nll is small.

Coordinate tokens and tokens with offsets are taken apart in float32, and targets too. In the rest all columns are
alike, so that one kernel reads them for their logsumexp and another one overwrites them: six bytes a logit in 16 bits.

Shapes: R rows, first T with a target, then those of the gate; V vocabulary, A tokens apart, the first K of them with
offsets.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coord_losses.fused.head import Index, LinearHead


class LogitShape(NamedTuple):
    """How products of hidden states and weight become logits: a bias, a cap.

    Attributes:
        bias_V: the bias, or None
        cap: logits become `cap · tanh(logits / cap)`; None for no cap
        factor_R1: factor that the hidden states were multiplied by; applied to bias and cap as well
    """

    bias_V: Tensor | None
    cap: float | None
    factor_R1: Tensor

    def of(self, columns: Index) -> "LogitShape":
        """Return the shape of some columns; with a tensor [R, 1] of one column of each row."""
        return LogitShape(None if self.bias_V is None else self.bias_V[columns], self.cap, self.factor_R1)

    def apply_(self, logits: Tensor) -> Tensor:
        """Overwrite products by logits, and return them."""
        if self.bias_V is not None:
            logits.add_(self.factor_R1 * self.bias_V)
        if self.cap is not None:
            limit_R1 = self.cap * self.factor_R1
            logits.div_(limit_R1).tanh_().mul_(limit_R1)
        return logits

    def slope(self, logits: Tensor) -> Tensor | float:
        """Return the derivative of logits by products."""
        return 1.0 if self.cap is None else 1 - (logits / (self.cap * self.factor_R1)).square()


class Apart(NamedTuple):
    """The tokens whose logits are computed in float32.

    Attributes:
        ids: their ids
        ids_A: the same as a tensor
        place_V: the place of each token among them, -1 for those of the rest
        coord_A: which of them are coordinates
        num_coords: how many of them
    """

    ids: Index
    ids_A: Tensor
    place_V: Tensor
    coord_A: Tensor
    num_coords: int

    @classmethod
    def of(cls, head: LinearHead) -> "Apart":
        """Find the place of each token, on the device."""
        every_V = torch.arange(len(head.weight_VH), device=head.weight_VH.device)
        ids_A, place_V = every_V[head.apart], torch.full_like(every_V, -1)
        place_V[head.apart] = every_V[: len(ids_A)]
        start, stop = head.coord.start, head.coord.stop
        return cls(head.apart, ids_A, place_V, (ids_A >= start) & (ids_A < stop), stop - start)


class Sets(NamedTuple):
    """The set of tokens of each row.

    Attributes:
        target_R1: the target; in rows of the gate any token apart
        place_R1: its place among the tokens apart, -1 if it is of the rest, -2 in rows of the gate
    """

    target_R1: Tensor
    place_R1: Tensor

    @classmethod
    def of(cls, targets_T: Tensor, num_gates: int, apart: Apart) -> "Sets":
        """Return those of rows with a target, followed by rows of the gate."""
        targets_R = torch.cat([targets_T, apart.ids_A[:1].expand(num_gates)])
        place_R = apart.place_V[targets_R]
        place_R[len(targets_T) :].fill_(-2)
        return cls(targets_R[:, None], place_R[:, None])

    def part(self, rows: slice) -> "Sets":
        """Return those of some rows."""
        return Sets(self.target_R1[rows], self.place_R1[rows])


def nll_and_gradient_(
    logits_RV: Tensor, sets: Sets, apart: Apart, added_RK: Tensor | None, shape: LogitShape, grad: bool
) -> tuple[Tensor, Tensor]:
    """Return the nll of each row [R], and overwrite its logits with the nll's gradient by the products.

    Args:
        logits_RV: products of hidden states and weight; all else is computed in float32 or better
        sets: the set of each row
        apart: tokens whose logits are computed in float32
        added_RK: logits of the offsets, or None
        shape: how products become logits
        grad: whether the gradient is needed; without it the logits become anything

    Returns:
        The nlls, and their gradient by the products of the tokens apart [R, A] in float32 or better.
    """
    lowest = torch.finfo(logits_RV.dtype).min
    apart_RA = logits_RV[:, apart.ids].to(shape.factor_R1.dtype, copy=True)
    if added_RK is not None:
        apart_RA[:, : added_RK.shape[1]] += added_RK
    picked_R1 = logits_RV.gather(1, sets.target_R1)
    logits_RV[:, apart.ids] = lowest
    logits_RV.scatter_(1, sets.target_R1, lowest)
    rest_R1 = _by_rows(_rest, logits_RV, shape)
    of_parts = shape.of(sets.target_R1), shape.of(apart.ids)
    nll_R, others_R1, prob_R1, by_target_R1, grad_RA = _run(
        _combined, picked_R1, apart_RA, rest_R1, sets.place_R1, apart.coord_A, apart.num_coords, *of_parts
    )
    if grad:
        _by_rows(_rest_gradient_, logits_RV, shape, others_R1, prob_R1)
        logits_RV.scatter_(1, sets.target_R1, by_target_R1)
        logits_RV[:, apart.ids] = grad_RA.to(logits_RV.dtype)
    return nll_R, grad_RA


def _combined(
    picked_R1: Tensor,
    apart_RA: Tensor,
    rest_R1: Tensor,
    place_R1: Tensor,
    coord_A: Tensor,
    num_coords: int,
    of_target: LogitShape,
    of_apart: LogitShape,
) -> tuple[Tensor, ...]:
    """Return the nll [R], logsumexp and probability of the others [R, 1], and the gradients by the parts' products."""
    num_apart, minus_infinity = apart_RA.shape[1], -torch.inf
    z_RA, z_R1 = of_apart.apply_(apart_RA), of_target.apply_(picked_R1.to(apart_RA.dtype, copy=True))
    gate_R1, apart_R1, column_R1 = place_R1 == -2, place_R1 >= 0, place_R1.clamp(min=0)

    # The smaller part of the tokens apart is the target, or in rows of the gate those that are no coordinates. A target
    # is taken out by its column: a mask [R, A] takes a processor forty times as long as a sum.
    own_R1, larger_RA = z_R1, z_RA
    if num_apart:
        own_R1 = z_RA.gather(1, column_R1)
        larger_RA = z_RA.scatter(1, column_R1, own_R1.masked_fill(apart_R1, minus_infinity))
    in_smaller_RA, no_coords_R1 = None, torch.full_like(z_R1, minus_infinity)
    if num_apart > num_coords:
        in_smaller_RA = gate_R1 & ~coord_A
        larger_RA = larger_RA.masked_fill(in_smaller_RA, minus_infinity)
        no_coords_R1 = z_RA.masked_fill(~in_smaller_RA, minus_infinity).logsumexp(dim=1, keepdim=True)
    larger_R1 = larger_RA.logsumexp(dim=1, keepdim=True)
    smaller_R1 = torch.where(gate_R1, no_coords_R1, torch.where(apart_R1, own_R1, z_R1))

    set_R1 = torch.where(gate_R1, larger_R1, smaller_R1)
    others_R1 = rest_R1.logaddexp(torch.where(gate_R1, smaller_R1, larger_R1))
    difference_R1 = others_R1 - set_R1
    nll_R = torch.nn.functional.softplus(difference_R1, threshold=40)[:, 0]
    prob_R1 = difference_R1.sigmoid()
    by_target_R1 = (-prob_R1 * of_target.slope(z_R1)).to(picked_R1.dtype)

    # The gradient of the larger part, and then that of the smaller one in its place.
    grad_RA = (z_RA - torch.where(gate_R1, set_R1, others_R1)).exp_().mul_(torch.where(gate_R1, -prob_R1, prob_R1))
    if num_apart:
        grad_RA.scatter_(1, column_R1, torch.where(apart_R1, -prob_R1, grad_RA.gather(1, column_R1)))
    if in_smaller_RA is not None:
        grad_RA = torch.where(in_smaller_RA, (z_RA - others_R1).exp_().mul_(prob_R1), grad_RA)
    return nll_R, others_R1, prob_R1, by_target_R1, grad_RA if of_apart.cap is None else grad_RA * of_apart.slope(z_RA)


def _rest(logits_RV: Tensor, shape: LogitShape) -> Tensor:
    """Return the logsumexp of each row's logits [R, 1], without the lowest products, which stand for those apart."""
    z_RV = shape.apply_(logits_RV.to(shape.factor_R1.dtype, copy=True))
    if shape.cap is not None:
        lowest = torch.finfo(logits_RV.dtype).min
        z_RV = torch.where(logits_RV == lowest, lowest, z_RV)
    max_R1 = z_RV.amax(dim=1, keepdim=True)
    return max_R1 + _exp_(z_RV.sub_(max_R1)).sum(dim=1, keepdim=True).log()


def _exp_(x: Tensor) -> Tensor:
    """Overwrite numbers of at most 0 by their exponentials; a processor takes ten times as long below -87."""
    return x.exp_() if torch.compiler.is_compiling() else x.clamp_(min=-87).exp_()


def _rest_gradient_(logits_RV: Tensor, shape: LogitShape, others_R1: Tensor, prob_R1: Tensor) -> Tensor:
    """Overwrite products by the gradient; the lowest become any finite number. Returns what it was given last."""
    z_RV = shape.apply_(logits_RV.to(shape.factor_R1.dtype))
    slope_RV = shape.slope(z_RV)
    _exp_(z_RV.sub_(others_R1)).mul_(prob_R1)
    logits_RV.copy_(z_RV if shape.cap is None else z_RV.mul_(slope_RV))
    return prob_R1


_compiled = cache(torch.compile)
_COMPILED_ON = {"cuda"}
_CACHED_BYTES = 1 << 20
"""Elsewhere passes over the logits go through rows of so many bytes, which stay in a processor's cache."""


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of tensors: on a GPU as few kernels, which read and write the logits where they are."""
    device = arguments[0].device.type
    if device in _COMPILED_ON:
        try:
            return _compiled(function)(*arguments)
        except Exception as error:  # neither Triton nor a C compiler, say: compiling fails before anything is written
            _COMPILED_ON.discard(device)
            reason = str(error).partition("\n")[0]
            warnings.warn(f"the fused objective is not compiled, so slower and larger: {reason}", stacklevel=2)
    return function(*arguments)


def _by_rows(function: Callable[..., Tensor], logits_RV: Tensor, shape: LogitShape, *columns_R1: Tensor) -> Tensor:
    """Call a function of rows, which returns a column."""
    size = max(1, _CACHED_BYTES // max(1, logits_RV.shape[1] * shape.factor_R1.itemsize))
    if logits_RV.device.type in _COMPILED_ON or len(logits_RV) <= size:
        found_R1: Tensor = _run(function, logits_RV, shape, *columns_R1)
        return found_R1
    parts = zip(*(torch.split(x, size) for x in (logits_RV, shape.factor_R1, *columns_R1)), strict=True)
    return torch.cat([function(rows, shape._replace(factor_R1=factor), *others) for rows, factor, *others in parts])
