"""Recipe of an output tensor: rows of a stored tensor, and steps that change them in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coord_exporter.checkpoint.read import TensorInfo, TensorKind

if TYPE_CHECKING:
    import torch

RowFunction = Callable[["torch.Tensor", int, int], "torch.Tensor"]
"""Function of rows lo..hi-1 in float32, lo and hi; returns the changed rows, possibly in place."""

_CHUNK_VALUES = 1 << 19  # float32 values processed at a time: 2 MB fit in the cache and in allocated memory
_BLOCK_ROWS = 64


class Step:
    """A change of rows. Steps are comparable, which shows whether two output tensors will be equal."""

    @property
    def block_rows(self) -> int:
        """Rows that must be changed together: matrix products work in blocks of rows."""
        return _BLOCK_ROWS

    def touches(self, lo: int, hi: int) -> bool:
        """Return whether any of rows lo..hi-1 changes."""
        return True

    @property
    def is_nothing(self) -> bool:
        """Whether no value changes, whatever it is, since what would be added is 0."""
        return False

    def open(self) -> RowFunction:
        """Load the step's tensors, which live as long as the returned function."""
        raise NotImplementedError


@dataclass(frozen=True)
class Recipe(TensorKind):
    """An output tensor: name, dtype and shape, the stored tensor that it starts from, and the steps in order.

    Rows beyond those of the source start as zeros. Without steps and with the source's dtype it is a byte copy. A
    tensor in memory has `data` and does not use the source.
    """

    source: TensorInfo
    steps: tuple[Step, ...] = ()
    data: memoryview | None = None

    @property
    def copied(self) -> bool:
        """Whether the stored bytes are copied unchanged."""
        return not self.steps and self.dtype == self.source.dtype and self.shape == self.source.shape

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield ranges lo, hi of rows to process together, of about 2 MB each in float32.

        Chunks start at multiples of 64 rows and are no shorter (unless the tensor is): matrix products work in blocks
        of rows, and a product in chunks is bit-identical to the full product only if the blocks coincide. Each expert
        is a separate matrix.
        """
        width = max(1, math.prod(self.shape[1:]))
        block = max((step.block_rows for step in self.steps), default=_BLOCK_ROWS)
        size = max(block, _CHUNK_VALUES // width // block * block)
        lo = 0
        while lo < self.rows:
            hi = lo + size if self.rows - lo - size >= block else self.rows
            yield lo, hi
            lo = hi


def copy_of(tensor: TensorInfo) -> Recipe:
    """Return the recipe of an unchanged copy of a tensor."""
    return Recipe(tensor.name, tensor.dtype, tensor.shape, tensor)


def made_of(name: str, value: torch.Tensor, source: TensorInfo) -> Recipe:
    """Return the recipe of a tensor in memory, of a dtype that adapters contain."""
    import torch

    names = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.int64: "I64", torch.uint8: "U8"}
    return Recipe(name, names[value.dtype], tuple(value.shape), source, data=bytes_of(value))


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor's values."""
    import torch

    return tensor.contiguous().view(-1).view(torch.uint8).numpy().data


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a floating dtype name of safetensors."""
    import torch

    return {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}[name]


def read_rows(tensor: TensorInfo, lo: int, hi: int) -> torch.Tensor:
    """Read rows lo..hi-1 in float32, shape [hi - lo, ...]."""
    import torch

    shape = (hi - lo, *tensor.shape[1:])
    if not math.prod(shape):
        return torch.zeros(shape)
    return torch.frombuffer(tensor.read(lo, hi), dtype=torch_dtype(tensor.dtype)).view(shape).float()


def read_float(tensor: TensorInfo) -> torch.Tensor:
    """Read a whole tensor in float32, meant for the small factors of an adapter."""
    return read_rows(tensor, 0, tensor.rows).reshape(tensor.shape)


def same_values(one: TensorInfo, other: TensorInfo) -> bool:
    """Return whether two stored tensors have the same bytes."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(one.read(lo, hi) == other.read(lo, hi) for lo, hi in one.blocks())


def first_not_finite(rows: torch.Tensor) -> int | None:
    """Return the index of the first row with NaN or infinity, None without one."""
    if rows.sum().isfinite():  # a quick test: NaN and infinity propagate to the sum
        return None
    faulty = (~rows.isfinite()).reshape(len(rows), -1).any(1).nonzero()
    return int(faulty[0]) if len(faulty) else None
