"""One walk over the vocabulary, block by block, that finds gaps and their gradients.

What the tokens of a block weigh, and with it the weighted mean of their rows of the weight, is added up relative
to the highest logit so far (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022, keeps a mean likewise). So
a block's logits need not leave the cache between the two products, and all logits never exist, as in Liger-Kernel
(Hsu et al. 2024) and Cut Cross-Entropy (Wijmans et al. 2024).

Shapes: R rows, T of them with a target, G with the gate, H hidden, V vocabulary, C columns of a block, K of the
offsets, J of the coordinates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from coord_losses.gap import Gap, GapRows, exchange_some_
from coord_losses.head import Block, Head, HeadSpec, add_product, shared_columns

# Sums are brought back only when a logit rises so far above the level they are relative to. In float16, which ends
# at e^11, products of anything above 1 could overflow.
_HIGHEST_RISE = {torch.float16: 0.0}
_OTHER_HIGHEST_RISE = 8.0


@dataclass(frozen=True)
class Reading:
    """What a walk finds, float32 or better.

    Attributes:
        gap: of each row.
        some_GJ: softmax over the coordinates, for the rows that read the gate.
        offset_logits_RK: logits in the columns of the offsets; None without offsets.
        mean_RH: rows of the weight, averaged with softmax(others); None if not asked for or not needed.
        logit_grad_RV: the gradient of all logits if it was asked for and they are one block; else None.
    """

    gap: Gap
    some_GJ: Tensor
    offset_logits_RK: Tensor | None
    mean_RH: Tensor | None
    logit_grad_RV: Tensor | None


class _Others:
    """Sums over the columns met so far, relative to a level per row."""

    def __init__(self, head: Head, hidden_RH: Tensor, mean: bool) -> None:
        lowest = torch.finfo(head.wide).min
        self.level_R1 = hidden_RH.new_full((len(hidden_RH), 1), lowest, dtype=head.wide)
        self.mass_R1 = torch.zeros_like(self.level_R1)
        self.mean_RH = self.level_R1.new_zeros(hidden_RH.shape) if mean else None
        self.highest_rise = _HIGHEST_RISE.get(head.dtype, _OTHER_HIGHEST_RISE)

    def add(self, block: Block) -> None:
        """Adds a block, whose logits become `exp(logits - level)`."""
        top_R1 = block.logits_RC.amax(dim=1, keepdim=True)
        rises_R1 = top_R1 - self.level_R1 > self.highest_rise
        if rises_R1.any():
            level_R1 = torch.where(rises_R1, top_R1, self.level_R1)
            factor_R1 = (self.level_R1 - level_R1).exp_()
            self.mass_R1 *= factor_R1
            if self.mean_RH is not None:
                self.mean_RH *= factor_R1
            self.level_R1 = level_R1
        self.mass_R1 += block.logits_RC.sub_(self.level_R1).exp_().sum(dim=1, keepdim=True)
        if self.mean_RH is not None:
            add_product(self.mean_RH, block.rounded(), block.weight_CH)


def read_gap(head: Head, rows: GapRows, spec: HeadSpec, mean: bool, logit_grad: bool) -> Reading:
    """Walks over the vocabulary once.

    Args:
        head: gives the logits.
        rows: what to read.
        spec: how large a block is.
        mean: whether the mean of the weight's rows is wanted, a second product per block.
        logit_grad: whether the gradient of the logits is, and no mean then, if one block is the whole vocabulary.
    """
    num_targets, vocab_size = len(rows.targets_T), len(head.weight_VH)
    size = head.block_columns(rows.hidden_RH, spec.chunk_vocab, keep=logit_grad and not mean)
    logit_grad = logit_grad and size == vocab_size
    others = _Others(head, rows.hidden_RH, mean and not logit_grad)
    some_R1 = torch.full_like(others.level_R1, -torch.inf)
    nothing_T1 = some_R1[:num_targets].clone()
    num_coords = rows.coord.stop - rows.coord.start
    some_GJ = some_R1.new_empty(len(rows.hidden_RH) - num_targets, num_coords)
    added_RK = head.offset_logits(rows.hidden_RH)
    for block in head.blocks(rows.hidden_RH, added_RK, size):
        columns, logits_RC = block.columns, block.logits_RC
        if added_RK is not None:  # from here on what was added is not needed: the logits take its place
            chosen, here = shared_columns(head.columns, columns)
            added_RK[:, chosen] = logits_RC[:, here]
        old_T1, there_T1 = rows.exchange_targets(logits_RC, columns, nothing_T1)
        some_R1[:num_targets] = torch.where(there_T1, old_T1, some_R1[:num_targets])
        chosen, here = shared_columns(rows.coord, columns)
        some_GJ[:, chosen] = logits_RC[num_targets:, here]
        logits_RC[num_targets:, here] = -torch.inf
        others.add(block)

    if len(some_GJ):
        some_R1[num_targets:] = some_GJ.logsumexp(dim=1, keepdim=True)
        some_GJ = some_GJ.sub_(some_R1[num_targets:]).exp_()
    gap = Gap((others.level_R1 + others.mass_R1.log())[:, 0], some_R1[:, 0])
    share_R1 = 1 / others.mass_R1.clamp_min(torch.finfo(head.wide).tiny)
    if others.mean_RH is not None:
        others.mean_RH *= share_R1
    logit_grad_RV = None
    if logit_grad:
        slope_R1 = gap.slope[:, None]
        logit_grad_RV = block.logits_RC.mul_(share_R1 * slope_R1)
        exchange_some_(logit_grad_RV, slice(0, vocab_size), rows, some_GJ, slope_R1)
    return Reading(gap, some_GJ, added_RK, others.mean_RH, logit_grad_RV)
