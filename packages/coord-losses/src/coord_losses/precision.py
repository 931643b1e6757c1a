"""The number format the losses are computed in."""

import torch
from torch import Tensor

_HALF = (torch.bfloat16, torch.float16)


def at_least_float32(x: Tensor) -> Tensor:
    """Casts bfloat16 and float16 up to float32; float32 and float64 pass unchanged.

    A softmax over 150,000 entries, or a CDF over 1000 bins, has no meaning in eight bits of mantissa.
    """
    return x.float() if x.dtype in _HALF else x
