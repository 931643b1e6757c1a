"""What every loss returns: a sum and how many things it sums over."""

from typing import NamedTuple

import torch
from torch import Tensor


class LossTerm(NamedTuple):
    """A loss that nobody has divided yet.

    Micro-batches and ranks add up sums and counts; whoever knows the global batch divides. A mean of means
    is wrong as soon as two micro-batches differ in length.

    Attributes:
        sum: 0-d tensor, float32 or float64. Of an empty input a zero that is still attached to the graph.
        count: 0-d int64 tensor, how many elements `sum` runs over.
    """

    sum: Tensor
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, on purpose

    @classmethod
    def of(cls, values_N: Tensor) -> "LossTerm":
        """Sums per-element losses."""
        return cls(values_N.sum(), torch.tensor(values_N.numel(), device=values_N.device))
