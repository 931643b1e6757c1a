"""The one thing losses need of full-vocabulary logits: how far the other tokens are below some of them.

A row of logits matters to the losses only through `gap = logsumexp(all) - logsumexp(some)`: with the target as
`some` that is cross-entropy, with the coordinate tokens it is the vocabulary gate. With
`d = logsumexp(others) - logsumexp(some)` the gap is `softplus(d)` and its gradient with respect to the logits
`sigmoid(d) · (softmax(others) - softmax(some))`, neither of which loses digits where the gap is small.

Shapes: R rows, T of them with a target, G with the gate, H hidden, C columns of the vocabulary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from coord_losses.head import shared_columns

# Rows that are read together: more of them mean fewer walks over the weight, and larger sums to add to.
_CHUNK_ROWS = {"cpu": 4096}
_OTHER_CHUNK_ROWS = 16384


class Gap(NamedTuple):
    """Two numbers of each row, float32 or better.

    Attributes:
        others_R: logsumexp of all columns that are not `some`; -inf without any.
        some_R: logsumexp of `some`.
    """

    others_R: Tensor
    some_R: Tensor

    @property
    def value(self) -> Tensor:
        """The gap."""
        return torch.nn.functional.softplus(self.others_R - self.some_R, threshold=40)

    @property
    def slope(self) -> Tensor:
        """Its derivative with respect to `others_R`, and minus that to `some_R`."""
        return torch.sigmoid(self.others_R - self.some_R)


@dataclass(frozen=True)
class GapRows:
    """Rows that are read together: first those with a target each, then those that read the gate.

    Attributes:
        hidden_RH: what the head is applied to.
        targets_T: token ids, `some` of the first rows.
        coord: the coordinate columns, `some` of the others.
    """

    hidden_RH: Tensor
    targets_T: Tensor
    coord: slice

    def chunks(self, chunk_rows: int | None) -> Iterator[tuple[slice, "GapRows"]]:
        """Parts of nearly equal size, and which rows they are."""
        num_rows = len(self.hidden_RH)
        if not num_rows:
            return
        limit = chunk_rows or _CHUNK_ROWS.get(self.hidden_RH.device.type, _OTHER_CHUNK_ROWS)
        size = -(-num_rows // -(-num_rows // limit))
        for start in range(0, num_rows, size):
            rows = slice(start, min(start + size, num_rows))
            yield rows, GapRows(self.hidden_RH[rows], self.targets_T[rows], self.coord)

    def exchange_targets(
        self, x_RC: Tensor, columns: slice | Tensor, new_T1: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Puts something in the targets' places, among those columns of the vocabulary that are at hand.

        Returns:
            What was there [T, 1], and whether the target is one of the columns at all [T, 1].
        """
        if isinstance(columns, Tensor):
            same_TC = self.targets_T[:, None] == columns
            index_T1, there_T1 = same_TC.int().argmax(dim=1, keepdim=True), same_TC.any(dim=1, keepdim=True)
        else:
            last = columns.stop - columns.start - 1
            index_T1 = self.targets_T[:, None] - columns.start
            there_T1 = (index_T1 >= 0) & (index_T1 <= last)
            index_T1 = index_T1.clamp(0, last)
        x_TC = x_RC[: len(self.targets_T)]
        old_T1 = x_TC.gather(1, index_T1)
        x_TC.scatter_(1, index_T1, torch.where(there_T1, new_T1, old_T1))
        return old_T1, there_T1


def logit_gradient_(
    logits_RC: Tensor, columns: slice | Tensor, rows: GapRows, gap: Gap, scale_R: Tensor | None = None
) -> Tensor:
    """Puts the gradient of the gaps, times a scale, in the place of logits.

    Args:
        logits_RC: float32 or better.
        columns: which part of the vocabulary they are, contiguous or not.
        rows: whose logits.
        gap: of those rows.
        scale_R: None for 1.
    """
    num_targets = len(rows.targets_T)
    slope_R1 = gap.slope[:, None] if scale_R is None else (gap.slope * scale_R)[:, None]
    here, _ = shared_columns(columns, rows.coord)
    some_GJ = (logits_RC[num_targets:, here] - gap.some_R[num_targets:, None]).exp_()
    logits_RC.sub_(gap.others_R[:, None]).exp_().mul_(slope_R1)
    return exchange_some_(logits_RC, columns, rows, some_GJ, slope_R1)


def exchange_some_(
    grad_RC: Tensor, columns: slice | Tensor, rows: GapRows, some_GJ: Tensor, slope_R1: Tensor
) -> Tensor:
    """Completes a gradient that is right for the others alone.

    It is assigned, not added: where `some` stands far above the others, theirs overflowed in its place.

    Args:
        grad_RC: the gradient.
        columns: which part of the vocabulary it is.
        rows: whose gradient.
        some_GJ: softmax over the coordinates, in those of its columns that are among `columns`.
        slope_R1: see `Gap`, times the scale.
    """
    num_targets = len(rows.targets_T)
    here, _ = shared_columns(columns, rows.coord)
    grad_RC[num_targets:, here] = -slope_R1[num_targets:] * some_GJ
    rows.exchange_targets(grad_RC, columns, -slope_R1[:num_targets])
    return grad_RC
