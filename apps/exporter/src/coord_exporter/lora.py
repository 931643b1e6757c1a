"""LoRA and DoRA as changes of weight rows, in PEFT's arithmetic and order of operations.

LoRA (Hu et al. 2021, https://arxiv.org/abs/2106.09685): W + s B A, with s = alpha / r, or alpha / sqrt(r)
for rank-stabilised LoRA (https://arxiv.org/abs/2312.03732). DoRA (Liu et al. 2024,
https://arxiv.org/abs/2402.09353): m (W + s B A) / ||W + s B A||, the norm over each output's inputs.
Everything is float32 and rounded once, which gives the bits of PEFT's `merge_and_unload`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .checkpoint import TensorInfo
from .recipe import RowFunction, read_float
from .workspace import Workspace

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LoraStep:
    """Add the low-rank product to a weight and, for DoRA, rescale it.

    Attributes:
        a: factor A [r, in].
        b: factor B [out, r].
        scale: s, the factor of the product.
        magnitude: m [out], for DoRA; None for LoRA.
        transposed: the weight is stored [in, out]: embeddings and `Conv1D` layers (fan_in_fan_out).
    """

    a: TensorInfo
    b: TensorInfo
    scale: float
    magnitude: TensorInfo | None = None
    transposed: bool = False

    @property
    def whole(self) -> bool:
        """A transposed weight's norms run across its rows."""
        return self.transposed and self.magnitude is not None

    def touches(self, lo: int, hi: int) -> bool:
        """Every row changes."""
        return True

    def open(self, workspace: Workspace) -> RowFunction:
        """Load the factors."""
        import torch

        a, b = read_float(self.a), read_float(self.b)
        magnitude = None if self.magnitude is None else read_float(self.magnitude).reshape(-1)

        def change(rows: torch.Tensor, lo: int, hi: int) -> torch.Tensor:
            left, right = (b, a[:, lo:hi]) if self.transposed else (b[lo:hi], a)
            delta = workspace.take("delta", (len(left), right.shape[1]), rows.dtype)
            torch.mm(left, right, out=delta).mul_(self.scale)
            rows += delta.T if self.transposed else delta
            if magnitude is None:
                return rows
            if self.transposed:
                return rows.mul_((magnitude / _norms(rows.T)).view(1, -1))
            return rows.mul_((magnitude[lo:hi] / _norms(rows)).view(-1, 1))

        return change


def _norms(weight_OI: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.linalg.norm(weight_OI, dim=1)


@dataclass(frozen=True)
class BiasStep:
    """Add a scaled `lora_bias` vector [out] to a bias."""

    bias: TensorInfo
    scale: float
    whole: bool = True

    def touches(self, lo: int, hi: int) -> bool:
        """Every value changes."""
        return True

    def open(self, workspace: Workspace) -> RowFunction:
        """Load the vector."""
        bias = read_float(self.bias)
        return lambda rows, lo, hi: rows.add_(bias[lo:hi] * self.scale)
