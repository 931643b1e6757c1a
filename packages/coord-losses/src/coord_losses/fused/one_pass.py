"""Negative log-likelihoods of sets of tokens, and their gradients by the logits, in one pass over the logits.

The losses need one number per row of full-vocabulary logits: the negative log-likelihood of a set of tokens,
`nll = logsumexp(all) - logsumexp(set)`. If the set is the target, it is the cross-entropy; if the set is all coordinate
tokens, it is the vocabulary gate. Let the others be all tokens outside the set, and
`d = logsumexp(others) - logsumexp(set)`. Then the nll is `softplus(d)`, and its gradient with respect to the logits is
`sigmoid(d) · (softmax(others) - softmax(set))`; both are accurate even if the nll is small.

Shapes: R rows, first T with a target, then G with the gate; V vocabulary, K offset columns, J coordinate tokens.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor


def nll_and_gradient_(
    logits_RV: Tensor,
    targets_T: Tensor,
    coord: slice,
    added_RK: Tensor | None,
    ids: slice | Tensor,
    bias_V: Tensor | None,
    cap: float | None,
    factor_R1: Tensor,
    grad: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the nll of each row [R], and overwrite its logits with the nll's gradient by the products.

    Args:
        logits_RV: products of hidden states and weight; all else is computed in float32 or better
        targets_T: target token ids of the first rows
        coord: the coordinate tokens, the set of the other rows
        added_RK: logits of the offsets, or None
        ids: the columns that these are added to
        bias_V: the bias, or None
        cap: logits become `cap · tanh(logits / cap)`; None for no cap
        factor_R1: factor that the hidden states were multiplied by; applied to bias and cap as well
        grad: whether the gradient is needed

    Returns:
        The nlls, and the gradient in the columns of the offsets [R, K], not rounded to the dtype of the products.
    """
    z_RV, num_targets = logits_RV.to(factor_R1.dtype), len(targets_T)
    if added_RK is not None:
        z_RV[:, ids] += added_RK
    if bias_V is not None:
        z_RV.addcmul_(factor_R1, bias_V)
    slope_RV = None
    if cap is not None:
        z_RV.div_(cap * factor_R1).tanh_()
        slope_RV = 1 - z_RV.square() if grad else None
        z_RV.mul_(cap * factor_R1)

    # The set of each row, and the others, whose entries of the set become 0
    of_target_TV, of_gate_GV, targets_T1 = z_RV[:num_targets], z_RV[num_targets:], targets_T[:, None]
    coord_GJ = of_gate_GV[:, coord].clone()
    set_R1 = torch.cat([of_target_TV.gather(1, targets_T1), coord_GJ.logsumexp(dim=1, keepdim=True)])
    of_target_TV.scatter_(1, targets_T1, -torch.inf)
    of_gate_GV[:, coord] = -torch.inf
    limits = torch.finfo(z_RV.dtype)
    max_R1 = z_RV.amax(dim=1, keepdim=True).clamp(min=limits.min)  # there may be no others
    sum_R1 = z_RV.sub_(max_R1).exp_().sum(dim=1, keepdim=True)
    difference_R1 = max_R1 + sum_R1.log() - set_R1
    nll_R = torch.nn.functional.softplus(difference_R1, threshold=40)[:, 0]
    if not grad:
        return nll_R, None

    # In the set the gradient is assigned, not added, since `exp` may have overflowed there.
    prob_R1 = difference_R1.sigmoid()
    z_RV.mul_(prob_R1 / sum_R1.clamp(min=limits.tiny))
    of_target_TV.scatter_(1, targets_T1, -prob_R1[:num_targets])
    of_gate_GV[:, coord] = -prob_R1[num_targets:] * coord_GJ.softmax(dim=1)
    if slope_RV is not None:
        z_RV.mul_(slope_RV)
    if z_RV.dtype != logits_RV.dtype:
        logits_RV.copy_(z_RV)
    return nll_R, None if added_RK is None else z_RV[:, ids].clone()


@cache
def compiled() -> Callable[..., Any]:
    """Return `nll_and_gradient_` as one kernel or two, which read and write the logits where they are."""
    return torch.compile(nll_and_gradient_, dynamic=True)
