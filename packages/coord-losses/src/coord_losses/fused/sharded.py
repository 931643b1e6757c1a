"""A head whose weight is sharded over ranks, by rows of the vocabulary or as PyTorch's `DTensor`.

Shapes: R rows, C coordinate rows, H hidden, V vocabulary, L rows of the weight on this rank, K rows of the offset
table, J coordinate tokens.
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


def is_dtensor(x: Tensor | None) -> bool:
    """Return whether a tensor is a `DTensor`."""
    return hasattr(x, "full_tensor")


TensorT = TypeVar("TensorT", Tensor, Tensor | None)


def gathered(x: TensorT) -> TensorT:
    """Return the full tensor of a `DTensor`; other values are returned unchanged.

    The gradient is averaged over the ranks, as FSDP2 averages those of the parameters it gathers. This is correct for
    ranks with different batches, whose loss is multiplied by the number of ranks, and for ranks with the same batch.
    """
    if x is None or not is_dtensor(x):
        return x
    from torch.distributed.tensor import Partial

    sharded = cast("DTensor", x)
    full = sharded.full_tensor(grad_placements=[Partial()] * sharded.device_mesh.ndim)
    if full.requires_grad:
        full.register_hook(lambda grad: grad / sharded.device_mesh.size())  # type: ignore[no-untyped-call]
    return full


def local_part(x: TensorT) -> TensorT:
    """Return this rank's rows of a `DTensor`; other values are returned unchanged.

    Raises:
        ValueError: if it is not sharded along its first dimension
    """
    if x is None or not is_dtensor(x):
        return x
    from torch.distributed.tensor import Shard

    sharded = cast("DTensor", x)
    if tuple(sharded.placements) != (Shard(0),):
        raise ValueError(
            "with vocab_group a DTensor must be sharded over the vocabulary, [Shard(0)], got "
            f"{list(sharded.placements)}; leave vocab_group out to gather it"
        )
    return sharded.to_local()


class _CopyToRanks(torch.autograd.Function):
    """Identity in the forward pass; sums the gradient over ranks in the backward pass."""

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
    """Sum over ranks; the backward pass is the identity, since all ranks compute the same loss from the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def copy_to_ranks(x: TensorT, group: ProcessGroup) -> TensorT:
    """Return the tensor unchanged; its gradient is summed over the ranks of a group."""
    if x is None:
        return x
    copied: Tensor = _CopyToRanks.apply(x, group)
    return copied


def sum_over_ranks(x: Tensor, group: ProcessGroup) -> Tensor:
    """Return the sum over the ranks of a group, all of which must compute the same loss from it."""
    total: Tensor = _SumOverRanks.apply(x, group)
    return total


def shard_range(rows: int, group: ProcessGroup, device: torch.device) -> tuple[slice, int]:
    """Return this rank's range of token ids, in order of rank, and the size of the vocabulary over all ranks.

    Raises:
        ValueError: if a rank has no rows
    """
    sizes = [torch.empty(1, dtype=torch.long, device=device) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([rows], device=device), group=group)
    counts: list[int] = torch.cat(sizes).tolist()
    if 0 in counts:
        raise ValueError(f"rank {counts.index(0)} of vocab_group has no row of the vocabulary; use fewer ranks")
    start = sum(counts[: dist.get_rank(group)])
    return slice(start, start + rows), sum(counts)


def gather_logits(logits_NL: Tensor, group: ProcessGroup | None) -> Tensor:
    """Gather the logits of the full vocabulary [N, V] on every rank; `group` is None if they are a `DTensor`."""
    if group is None:
        return cast("DTensor", logits_NL).full_tensor()
    token_range, size = shard_range(logits_NL.shape[1], group, logits_NL.device)
    return sum_over_ranks(pad(logits_NL, (token_range.start, size - token_range.stop)), group)


class ShardedHead(LinearHead):
    """`LinearHead` for a weight of which each rank of a group has contiguous rows, in order of rank.

    All ranks call it with the same hidden states, from `copy_to_ranks`, and get the same losses. Each rank processes
    its own rows; they exchange maxima, sums of exponentials, target logits and the logits of the coordinate tokens.

    Args:
        token_range: token ids of this rank
        size: size V of the full vocabulary
        group: the ranks
        coord: see `LinearHead`, in the full vocabulary
        weight_LH: this rank's rows
        offsets_KH: the full table, from `copy_to_ranks`, or None
        offset_ids_K: see `LinearHead`, in the full vocabulary
        options: further arguments of `LinearHead`; the bias is this rank's part
    """

    def __init__(
        self,
        token_range: slice,
        size: int,
        group: ProcessGroup,
        coord: slice,
        weight_LH: Tensor,
        offsets_KH: Tensor | None = None,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        *options: Any,
    ) -> None:
        self.token_range, self.size, self.group, self.all_coord = token_range, size, group, coord
        self.own_coord, local_coord = shared_columns(coord, token_range)
        assert isinstance(local_coord, slice)
        # The gate needs a non-empty set of tokens: a rank without coordinate tokens uses its first token.
        local_coord = local_coord if local_coord.stop > local_coord.start else slice(0, 1)
        self.unused_offsets: Tensor | None = None
        if offsets_KH is not None:
            all_ids: Iterable[int] = range(coord.start, coord.stop)
            if offset_ids_K is not None:
                all_ids = offset_ids_K.tolist() if isinstance(offset_ids_K, Tensor) else offset_ids_K
            ids = list(all_ids)
            if ids and not 0 <= min(ids) <= max(ids) < size:
                raise ValueError(f"offset_ids_K must lie in 0..{size - 1}, got {min(ids)}..{max(ids)}")
            if len(ids) != len(offsets_KH):
                raise ValueError(f"offsets_KH must have {len(ids)} rows, one per offset id, got {len(offsets_KH)}")
            local_indices = [i for i, token in enumerate(ids) if token_range.start <= token < token_range.stop]
            self.unused_offsets = None if local_indices else offsets_KH
            offsets_KH = offsets_KH[local_indices] if local_indices else None
            offset_ids_K = [ids[i] - token_range.start for i in local_indices] if local_indices else None
        super().__init__(local_coord, weight_LH, offsets_KH, offset_ids_K, *options)

    def apply(
        self,
        ce_hidden_RH: Tensor,
        targets_R: Tensor,
        gate_hidden_GH: Tensor,
        coord_hidden_CH: Tensor,
        gate_temperature: float = 1.0,
        factors_R: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `LinearHead.apply`; `factors_R` has no effect, since the gradients depend on other ranks."""
        if self.unused_offsets is not None:  # all ranks must take part in the all-reduce of its gradient
            zero = 0 * self.unused_offsets.sum()
            ce_hidden_RH, gate_hidden_GH, coord_hidden_CH = (
                x + zero.to(x.dtype) for x in (ce_hidden_RH, gate_hidden_GH, coord_hidden_CH)
            )
        is_local_R, local_R = self._local_targets(targets_R)
        num_gate = len(gate_hidden_GH)
        nll_R, gate_G, set_logits = super().apply(
            ce_hidden_RH, local_R, gate_hidden_GH, torch.cat([coord_hidden_CH, gate_hidden_GH]), gate_temperature
        )
        local_logits_R = super().target_logits(ce_hidden_RH, local_R)
        target_logits_R = sum_over_ranks(torch.where(is_local_R, local_logits_R, 0), self.group)
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
        """See `LinearHead.target_logits`."""
        is_local_R, local_R = self._local_targets(targets_R)
        return sum_over_ranks(torch.where(is_local_R, super().target_logits(hidden_RH, local_R), 0), self.group)

    def mean_logits(self, hidden_RH: Tensor) -> Tensor:
        """See `LinearHead.mean_logits`."""
        sum_R = super().mean_logits(hidden_RH) * (self.token_range.stop - self.token_range.start)
        return sum_over_ranks(sum_R, self.group) / self.size

    def _local_targets(self, targets_R: Tensor) -> tuple[Tensor, Tensor]:
        """Return which targets are on this rank, and their rows in its weight; 0 for targets on other ranks."""
        is_local_R = (targets_R >= self.token_range.start) & (targets_R < self.token_range.stop)
        return is_local_R, torch.where(is_local_R, targets_R - self.token_range.start, 0)

    def _logsumexp(self, local_R: Tensor) -> Tensor:
        """Combine the ranks' logsumexps."""
        largest_R = local_R.detach().clone()
        dist.all_reduce(largest_R, dist.ReduceOp.MAX, group=self.group)
        return largest_R + sum_over_ranks(torch.exp(local_R - largest_R), self.group).log()
