"""Gathers tensors that are sharded over ranks (PyTorch's `DTensor`, as FSDP2 leaves parameters)."""

from typing import TYPE_CHECKING, TypeVar, cast

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

TensorT = TypeVar("TensorT", Tensor, Tensor | None)


def is_dtensor(x: Tensor | None) -> bool:
    """Return whether a tensor is a `DTensor`."""
    return hasattr(x, "full_tensor")


def full_weight(x: TensorT) -> TensorT:
    """Return the full tensor of a weight that is a `DTensor`; other values are returned unchanged.

    The gradient is averaged over the ranks, as FSDP2 averages those of the parameters it gathers. This is correct for
    ranks with different batches, whose loss is multiplied by the number of ranks, and for ranks with the same batch.
    """
    if x is None or not is_dtensor(x):
        return x
    from torch.distributed.tensor import Partial

    sharded = cast("DTensor", x)
    full = sharded.full_tensor(grad_placements=[Partial()] * sharded.device_mesh.ndim)
    if full.requires_grad:
        full.register_hook(lambda grad: grad / sharded.device_mesh.size())
    return full


def full_logits(logits_NV: Tensor) -> Tensor:
    """Return the full tensor of logits that are a `DTensor`, the same on all ranks; others are returned unchanged."""
    return cast("DTensor", logits_NV).full_tensor() if is_dtensor(logits_NV) else logits_NV
