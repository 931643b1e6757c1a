"""A head whose weight is spread over ranks: by rows of the vocabulary, or as PyTorch's `DTensor`.

Shapes: R rows, C of coordinates, H hidden, V vocabulary, L rows of the weight on this rank, K rows of the offset table,
J coordinate tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from coord_losses.fused.blocks import shared_columns
from coord_losses.fused.head import LinearHead

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor


def is_spread(x: Tensor | None) -> bool:
    """Return whether a tensor is a `DTensor`."""
    return hasattr(x, "full_tensor")


TensorT = TypeVar("TensorT", Tensor, Tensor | None)


def gathered(x: TensorT) -> TensorT:
    """Return the whole of a `DTensor`; anything else as it is.

    Its gradient is averaged over the ranks, as FSDP2 averages that of the parameters that it gathers itself: right for
    ranks with batches of their own, whose loss is multiplied by their number, and for ranks with the same batch.
    """
    if x is None or not is_spread(x):
        return x
    from torch.distributed.tensor import Partial

    spread = cast("DTensor", x)
    whole = spread.full_tensor(grad_placements=[Partial()] * spread.device_mesh.ndim)
    if whole.requires_grad:
        whole.register_hook(lambda grad: grad / spread.device_mesh.size())  # type: ignore[no-untyped-call]
    return whole


def local_part(x: TensorT) -> TensorT:
    """Return this rank's rows of a `DTensor`; anything else as it is.

    Raises:
        ValueError: it is not spread by its first dimension
    """
    if x is None or not is_spread(x):
        return x
    from torch.distributed.tensor import Shard

    spread = cast("DTensor", x)
    if tuple(spread.placements) != (Shard(0),):
        raise ValueError(
            "with vocab_group a DTensor must be spread over the vocabulary, [Shard(0)], got "
            f"{list(spread.placements)}; leave vocab_group out, and it is gathered"
        )
    return spread.to_local()


class _CopyToRanks(torch.autograd.Function):
    """The same tensor on every rank, whose gradient is the sum over ranks of what each rank's part contributes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


class _SumOverRanks(torch.autograd.Function):
    """The sum over ranks; every rank computes the same loss from it, so that its gradient is already the whole one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def copy_to_ranks(x: TensorT, group: ProcessGroup) -> TensorT:
    """Return the tensor, whose gradient will be summed over the ranks of a group."""
    if x is None:
        return x
    copied: Tensor = _CopyToRanks.apply(x, group)
    return copied


def sum_over_ranks(x: Tensor, group: ProcessGroup) -> Tensor:
    """Return the sum over the ranks of a group, each of which goes on to compute the same loss."""
    total: Tensor = _SumOverRanks.apply(x, group)
    return total


def shard_range(rows: int, group: ProcessGroup, device: torch.device) -> tuple[slice, int]:
    """Return which tokens of the vocabulary this rank holds, in order of rank, and how many there are on all of them.

    Raises:
        ValueError: a rank has none
    """
    sizes = [torch.empty(1, dtype=torch.long, device=device) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([rows], device=device), group=group)
    counts: list[int] = torch.cat(sizes).tolist()
    if 0 in counts:
        raise ValueError(f"rank {counts.index(0)} of vocab_group has no row of the vocabulary; use fewer ranks")
    start = sum(counts[: dist.get_rank(group)])
    return slice(start, start + rows), sum(counts)


def whole_logits(logits_NL: Tensor, group: ProcessGroup | None) -> Tensor:
    """Return the logits of the whole vocabulary [N, V] on every rank of a group; None for those of a `DTensor`."""
    if group is None:
        return cast("DTensor", logits_NL).full_tensor()
    own, size = shard_range(logits_NL.shape[1], group, logits_NL.device)
    return sum_over_ranks(pad(logits_NL, (own.start, size - own.stop)), group)


class ShardedHead(LinearHead):
    """`LinearHead` of a weight each rank of a group has contiguous rows of, in order of rank.

    Every rank calls it with the same hidden states, of `copy_to_ranks`, and gets the same losses. Each passes over its
    own rows; maxima and sums of exponentials, the target's logit and the logits of the coordinate tokens are exchanged.

    Args:
        own: which tokens this rank has
        size: V
        group: its ranks
        coord: see `LinearHead`, in the whole vocabulary
        weight_LH: this rank's rows
        offsets_KH: the whole table, of `copy_to_ranks`, or None
        offset_ids_K: see `LinearHead`, in the whole vocabulary
        options: the further arguments of `LinearHead`, its bias being this rank's part
    """

    def __init__(
        self,
        own: slice,
        size: int,
        group: ProcessGroup,
        coord: slice,
        weight_LH: Tensor,
        offsets_KH: Tensor | None = None,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        *options: Any,
    ) -> None:
        self.own, self.size, self.group, self.all_coord = own, size, group, coord
        self.own_coord, here = shared_columns(coord, own)
        assert isinstance(here, slice)
        # A set of tokens is needed for the gate: without a coordinate of its own, the rank's first token.
        here = here if here.stop > here.start else slice(0, 1)
        self.unused: Tensor | None = None
        if offsets_KH is not None:
            given: Iterable[int] = range(coord.start, coord.stop)
            if offset_ids_K is not None:
                given = offset_ids_K.tolist() if isinstance(offset_ids_K, Tensor) else offset_ids_K
            ids = list(given)
            if ids and not 0 <= min(ids) <= max(ids) < size:
                raise ValueError(f"offset_ids_K must lie in 0..{size - 1}, got {min(ids)}..{max(ids)}")
            if len(ids) != len(offsets_KH):
                raise ValueError(f"offsets_KH must have {len(ids)} rows, one per offset id, got {len(offsets_KH)}")
            mine = [i for i, token in enumerate(ids) if own.start <= token < own.stop]
            self.unused = None if mine else offsets_KH
            offsets_KH = offsets_KH[mine] if mine else None
            offset_ids_K = [ids[i] - own.start for i in mine] if mine else None
        super().__init__(here, weight_LH, offsets_KH, offset_ids_K, *options)

    def apply(
        self,
        ce_hidden_RH: Tensor,
        targets_R: Tensor,
        gate_hidden_GH: Tensor,
        coord_hidden_CH: Tensor,
        gate_temperature: float = 1.0,
        factors_R: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `LinearHead.apply`; `factors_R` is not used, since ranks exchange what the gradients need."""
        if self.unused is not None:  # every rank takes part in the sum of its gradient
            nothing = 0 * self.unused.sum()
            ce_hidden_RH, gate_hidden_GH, coord_hidden_CH = (
                x + nothing.to(x.dtype) for x in (ce_hidden_RH, gate_hidden_GH, coord_hidden_CH)
            )
        mine_R, local_R = self._local_targets(targets_R)
        num_gate = len(gate_hidden_GH)
        nll_R, gate_G, set_logits = super().apply(
            ce_hidden_RH, local_R, gate_hidden_GH, torch.cat([coord_hidden_CH, gate_hidden_GH]), gate_temperature
        )
        local_logits_R = super().target_logits(ce_hidden_RH, local_R)
        target_logits_R = sum_over_ranks(torch.where(mine_R, local_logits_R, 0), self.group)
        nll_R = self._logsumexp(nll_R + local_logits_R) - target_logits_R

        width = self.own_coord.stop - self.own_coord.start
        left = self.own_coord.start if width else 0
        right = self.all_coord.stop - self.all_coord.start - left - width
        coord_logits = sum_over_ranks(pad(set_logits[:, :width], (left, right)), self.group)
        coord_logits_CJ, gate_logits_GJ = coord_logits.tensor_split([len(coord_hidden_CH)])
        if num_gate:
            local_lse_G = gate_G + (set_logits[-num_gate:] / gate_temperature).logsumexp(dim=1)
            gate_G = self._logsumexp(local_lse_G) - (gate_logits_GJ / gate_temperature).logsumexp(dim=1)
        return nll_R, gate_G, coord_logits_CJ

    def target_logits(self, hidden_RH: Tensor, targets_R: Tensor) -> Tensor:
        """As `LinearHead.target_logits`."""
        mine_R, local_R = self._local_targets(targets_R)
        return sum_over_ranks(torch.where(mine_R, super().target_logits(hidden_RH, local_R), 0), self.group)

    def mean_logits(self, hidden_RH: Tensor) -> Tensor:
        """As `LinearHead.mean_logits`."""
        sum_R = super().mean_logits(hidden_RH) * (self.own.stop - self.own.start)
        return sum_over_ranks(sum_R, self.group) / self.size

    def _local_targets(self, targets_R: Tensor) -> tuple[Tensor, Tensor]:
        """Return which targets this rank has, and their place in its weight; the first one for those it has not."""
        mine_R = (targets_R >= self.own.start) & (targets_R < self.own.stop)
        return mine_R, torch.where(mine_R, targets_R - self.own.start, 0)

    def _logsumexp(self, local_R: Tensor) -> Tensor:
        """Return the logsumexp over the ranks."""
        largest_R = local_R.detach().clone()
        dist.all_reduce(largest_R, dist.ReduceOp.MAX, group=self.group)
        return largest_R + sum_over_ranks(torch.exp(local_R - largest_R), self.group).log()
