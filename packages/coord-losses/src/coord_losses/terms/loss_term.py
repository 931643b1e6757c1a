"""The return type of all losses, and their minimum precision."""

from typing import NamedTuple

import torch
from torch import Tensor


class LossTerm(NamedTuple):
    """An undivided loss.

    Sums and counts are added over micro-batches and ranks, and divided once for the global batch. A mean of means would
    be wrong if micro-batches differ in length.

    Attributes:
        sum: 0-d tensor, float32 or float64; for an empty input a zero that is still attached to the autograd graph
        count: 0-d int64 tensor, the number of elements in `sum`

    Example:
        >>> import torch
        >>> LossTerm.of(torch.tensor([0.5, 1.0]))
        LossTerm(sum=tensor(1.5000), count=tensor(2))
    """

    sum: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, on purpose

    @classmethod
    def of(cls, values_N: Tensor) -> "LossTerm":
        """Sum per-element losses."""
        return cls(values_N.sum(), torch.full((), values_N.numel(), device=values_N.device))


def at_least_float32(x: Tensor) -> Tensor:
    """Cast bfloat16 and float16 to float32; float32 and float64 are returned unchanged.

    Eight bits of mantissa are not enough for a softmax over 150,000 entries or a CDF over 1000 bins.
    """
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
