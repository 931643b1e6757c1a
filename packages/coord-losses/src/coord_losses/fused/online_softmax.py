"""Computes negative log-likelihoods of sets of tokens, and their gradients, with an online softmax over blocks.

The losses need one number per row of full-vocabulary logits: the negative log-likelihood of a set of tokens,
`nll = logsumexp(all) - logsumexp(set)`. If the set is the target, it is the cross-entropy; if the set is all coordinate
tokens, it is the vocabulary gate. Let the others be all tokens outside the set, and
`d = logsumexp(others) - logsumexp(set)`. Then the nll is `softplus(d)`, and its gradient with respect to the logits is
`sigmoid(d) · (softmax(others) - softmax(set))`; both are accurate even if the nll is small.

The sum of exponentials over the others, and the mean of the weight's rows under softmax(others), are accumulated
relative to a running maximum (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022, accumulates a mean in the
same way). The logits of a block can therefore stay in the cache between the two products, and the full logits never
exist, as in Liger-Kernel (Hsu et al. 2024) and Cut Cross-Entropy (Wijmans et al. 2024).

Shapes: R rows, T of them with a target, G with the gate, H hidden, V vocabulary, C columns of a block, K offset
columns, J coordinate tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from coord_losses.fused.blocks import (
    Block,
    BlockwiseHead,
    Columns,
    HeadSpec,
    SortedColumns,
    add_product,
    index_of,
    shared_columns,
)

_CHUNK_ROWS = {"cpu": 4096}
_OTHER_CHUNK_ROWS = 16384
"""Number of rows processed together: more rows mean fewer passes over the weight, but larger accumulators."""


class LogSumExps(NamedTuple):
    """The two logsumexps that determine each row's negative log-likelihood, float32 or better.

    Attributes:
        others_R: logsumexp of all columns outside the set; -inf if there are none
        set_R: logsumexp of the set
    """

    others_R: Tensor
    set_R: Tensor

    @property
    def nll(self) -> Tensor:
        """Negative log-likelihood of the set."""
        return torch.nn.functional.softplus(self.others_R - self.set_R, threshold=40)

    @property
    def others_prob(self) -> Tensor:
        """Probability of the others, which is the derivative of the nll by `others_R`, and by `-set_R`."""
        return torch.sigmoid(self.others_R - self.set_R)


@dataclass(frozen=True)
class NLLRows:
    """Rows that are processed together: first the rows whose set is their target, then the rows of the gate.

    Attributes:
        hidden_RH: input of the head
        targets_T: target token ids, the sets of the first rows
        spec: options of the head; its coordinate columns are the set of the other rows
    """

    hidden_RH: Tensor
    targets_T: Tensor
    spec: HeadSpec

    @property
    def coord(self) -> slice:
        """The coordinate columns."""
        return self.spec.coord

    @cached_property
    def factor_R1(self) -> Tensor:  # noqa: N802  (a shape suffix)
        """Factor that the hidden states were multiplied by: 1, and 1 / temperature in the rows of the gate."""
        wide = torch.promote_types(self.spec.dtype, torch.float32)
        factor_R1 = self.hidden_RH.new_ones((len(self.hidden_RH), 1), dtype=wide)
        factor_R1[len(self.targets_T) :] /= self.spec.gate_temperature
        return factor_R1

    def chunks(self) -> Iterator[tuple[slice, "NLLRows"]]:
        """Yield chunks of nearly equal size, each with the slice of its rows."""
        num_rows = len(self.hidden_RH)
        if not num_rows:
            return
        limit = self.spec.chunk_rows or _CHUNK_ROWS.get(self.hidden_RH.device.type, _OTHER_CHUNK_ROWS)
        size = -(-num_rows // -(-num_rows // limit))
        for start in range(0, num_rows, size):
            rows = slice(start, min(start + size, num_rows))
            yield rows, NLLRows(self.hidden_RH[rows], self.targets_T[rows], self.spec)

    def exchange_targets(self, x_RC: Tensor, columns: Columns, new_T1: Tensor) -> tuple[Tensor, Tensor]:
        """Overwrite the entries of the targets in `x_RC`, whose columns are the given columns of the vocabulary.

        Returns:
            The previous entries [T, 1], and whether each target is among the columns [T, 1].
        """
        if isinstance(columns, SortedColumns):
            same_TC = self.targets_T[:, None] == columns.ids_K
            index_T1, is_present_T1 = same_TC.int().argmax(dim=1, keepdim=True), same_TC.any(dim=1, keepdim=True)
        else:
            last = columns.stop - columns.start - 1
            index_T1 = self.targets_T[:, None] - columns.start
            is_present_T1 = (index_T1 >= 0) & (index_T1 <= last)
            index_T1 = index_T1.clamp(0, last)
        x_TC = x_RC[: len(self.targets_T)]
        previous_T1 = x_TC.gather(1, index_T1)
        x_TC.scatter_(1, index_T1, torch.where(is_present_T1, new_T1, previous_T1))
        return previous_T1, is_present_T1


@dataclass(frozen=True)
class OnlineSoftmax:
    """The result of one pass over the vocabulary, float32 or better.

    Attributes:
        lse: logsumexps of each row
        set_grad_GJ: gradient of the set's logsumexp by its logits in the rows of the gate: their softmax times the
            slope of the cap
        offset_logits_RK: logits in the offset columns; None without offsets
        mean_weight_RH: mean of the weight's rows under softmax(others); None if not requested or not needed
        logit_grad_RV: gradient of all logits if requested and they are one block; else None
    """

    lse: LogSumExps
    set_grad_GJ: Tensor
    offset_logits_RK: Tensor | None
    mean_weight_RH: Tensor | None
    logit_grad_RV: Tensor | None


class _Others:
    """Running sums over the tokens outside the set, relative to a running maximum per row."""

    def __init__(self, head: BlockwiseHead, hidden_RH: Tensor, mean: bool) -> None:
        lowest = torch.finfo(head.wide).min
        self.max_R1 = hidden_RH.new_full((len(hidden_RH), 1), lowest, dtype=head.wide)
        self.sum_R1 = torch.zeros_like(self.max_R1)
        self.weight_RH = self.max_R1.new_zeros(hidden_RH.shape) if mean else None

    def add(self, block: Block, slope_RC: Tensor | None) -> None:
        """Add a block, overwriting its logits with `exp(logits - max)`, times the slope of the cap if there is one.

        The sums are rescaled for every block, since checking whether that is necessary would make the host wait for
        the device.
        """
        max_R1 = torch.maximum(self.max_R1, block.logits_RC.amax(dim=1, keepdim=True))
        factor_R1 = self.max_R1.sub_(max_R1).exp_()
        self.max_R1 = max_R1
        block_sum_R1 = block.logits_RC.sub_(max_R1).exp_().sum(dim=1, keepdim=True)
        self.sum_R1.mul_(factor_R1).add_(block_sum_R1)
        if slope_RC is not None:
            block.logits_RC.mul_(slope_RC)
        if self.weight_RH is not None:
            add_product(self.weight_RH, block.rounded(), block.weight_CH, factor_R1)


def online_softmax(head: BlockwiseHead, rows: NLLRows, spec: HeadSpec, mean: bool, logit_grad: bool) -> OnlineSoftmax:
    """Pass over the vocabulary once.

    Args:
        head: the head that computes the logits
        rows: the rows and their sets
        spec: options; determine the size of a block
        mean: whether to compute the mean of the weight's rows, a second product per block
        logit_grad: whether to return the gradient of the logits instead of the mean if one block is the full vocabulary
    """
    num_targets, vocab_size = len(rows.targets_T), len(head.weight_VH)
    size = head.block_columns(rows.hidden_RH, spec.chunk_vocab, keep=logit_grad and not mean)
    logit_grad = logit_grad and size == vocab_size
    others = _Others(head, rows.hidden_RH, mean and not logit_grad)
    set_R1 = torch.full_like(others.max_R1, -torch.inf)
    minus_inf_T1 = set_R1[:num_targets].clone()
    set_GJ = set_R1.new_empty(len(rows.hidden_RH) - num_targets, rows.coord.stop - rows.coord.start)
    offset_logits_RK = head.offset_logits(rows.hidden_RH)
    for block in head.blocks(rows.hidden_RH, rows.factor_R1, offset_logits_RK, size):
        columns, logits_RC = block.columns, block.logits_RC
        slope_RC = head.slope(logits_RC, rows.factor_R1) if mean or logit_grad else None
        if offset_logits_RK is not None:  # no longer needed: the buffer is reused for the final logits
            chosen, local_columns = shared_columns(head.columns, columns)
            offset_logits_RK[:, chosen] = logits_RC[:, index_of(local_columns)]
        previous_T1, is_present_T1 = rows.exchange_targets(logits_RC, columns, minus_inf_T1)
        set_R1[:num_targets] = torch.where(is_present_T1, previous_T1, set_R1[:num_targets])
        chosen, local_columns = shared_columns(rows.coord, columns)
        set_GJ[:, chosen] = logits_RC[num_targets:, index_of(local_columns)]
        logits_RC[num_targets:, index_of(local_columns)] = -torch.inf
        others.add(block, slope_RC)

    if len(set_GJ):
        set_R1[num_targets:] = set_GJ.logsumexp(dim=1, keepdim=True)
        slope_GJ = head.slope(set_GJ, rows.factor_R1[num_targets:])
        set_GJ = set_GJ.sub_(set_R1[num_targets:]).exp_()
        set_GJ = set_GJ if slope_GJ is None else set_GJ.mul_(slope_GJ)
    lse = LogSumExps((others.max_R1 + others.sum_R1.log())[:, 0], set_R1[:, 0])
    inverse_sum_R1 = 1 / others.sum_R1.clamp_min(torch.finfo(head.wide).tiny)
    if others.weight_RH is not None:
        others.weight_RH *= inverse_sum_R1
    logit_grad_RV = None
    if logit_grad:
        scale_R1 = lse.others_prob[:, None]
        logit_grad_RV = block.logits_RC.mul_(inverse_sum_R1 * scale_R1)
        slope_T1 = head.slope(set_R1[:num_targets], rows.factor_R1[:num_targets])
        if slope_T1 is not None:
            scale_R1[:num_targets] *= slope_T1
        _assign_set_gradient_(logit_grad_RV, slice(0, vocab_size), rows, set_GJ, scale_R1)
    return OnlineSoftmax(lse, set_GJ, offset_logits_RK, others.weight_RH, logit_grad_RV)


def logit_gradient_(
    head: BlockwiseHead,
    logits_RC: Tensor,
    columns: Columns,
    rows: NLLRows,
    lse: LogSumExps,
    upstream_R: Tensor | None = None,
) -> None:
    """Overwrite logits with the gradient of the nlls with respect to the uncapped logits.

    Args:
        head: the head that computed the logits
        logits_RC: the logits, float32 or better
        columns: their columns in the vocabulary, contiguous or not
        rows: the rows of the logits
        lse: logsumexps of those rows
        upstream_R: factor of each row; None for 1
    """
    num_targets = len(rows.targets_T)
    prob_R = lse.others_prob
    scale_R1 = (prob_R if upstream_R is None else prob_R * upstream_R)[:, None]
    slope_RC = head.slope(logits_RC, rows.factor_R1)
    coord_columns, _ = shared_columns(columns, rows.coord)
    set_probs_GJ = (logits_RC[num_targets:, coord_columns] - lse.set_R[num_targets:, None]).exp_()
    logits_RC.sub_(lse.others_R[:, None]).exp_().mul_(scale_R1)
    _assign_set_gradient_(logits_RC, columns, rows, set_probs_GJ, scale_R1)
    if slope_RC is not None:
        logits_RC.mul_(slope_RC)


def _assign_set_gradient_(
    grad_RC: Tensor, columns: Columns, rows: NLLRows, set_grad_GJ: Tensor, scale_R1: Tensor
) -> None:
    """Write the gradient of the set's logits into a gradient that is only correct for the others.

    It is assigned, not added, since `exp` may have overflowed at the logits of the set.
    """
    num_targets = len(rows.targets_T)
    coord_columns, _ = shared_columns(columns, rows.coord)
    grad_RC[num_targets:, coord_columns] = -scale_R1[num_targets:] * set_grad_GJ
    rows.exchange_targets(grad_RC, columns, -scale_R1[:num_targets])
