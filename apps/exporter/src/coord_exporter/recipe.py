"""How one output tensor is made: rows of a stored tensor, and steps that change them in float32."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .checkpoint import ITEM_BYTES, TensorInfo
from .workspace import Workspace, bytes_of

if TYPE_CHECKING:
    import torch

#: Takes rows lo..hi-1 in float32 and the range, returns those rows changed; may work in place.
RowFunction = Callable[["torch.Tensor", int, int], "torch.Tensor"]

_CHUNK_VALUES = 1 << 21  # float32 values worked on at a time: 8 MB stays in the cache and out of the way
_BLOCK_ROWS = 64


class Step(Protocol):
    """A change of rows. Steps are compared to tell whether two tensors would come out equal."""

    #: Whether all rows are needed at once.
    whole: bool

    def touches(self, lo: int, hi: int) -> bool:
        """Whether any of rows lo..hi-1 changes."""

    def open(self, workspace: Workspace) -> RowFunction:
        """Load what the step needs (factors, offsets), dropped when the tensor is done; the rest is worked in."""


@dataclass(frozen=True)
class Recipe:
    """An output tensor: name, type and shape, the stored rows it starts from, and the steps in order.

    Rows beyond those of the source start as zeros. With no steps and the source's own type it is a byte copy.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: TensorInfo
    steps: tuple[Step, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def rows(self) -> int:
        """Length of the first dimension; 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def copied(self) -> bool:
        """Whether the stored bytes are taken over as they are."""
        return not self.steps and self.dtype == self.source.dtype and self.shape == self.source.shape

    def same_values(self, other: Recipe) -> bool:
        """Whether both tensors would hold the same values."""
        mine, theirs = ((r.dtype, r.shape, r.source, r.steps) for r in (self, other))
        return mine == theirs


def copy_of(tensor: TensorInfo) -> Recipe:
    """The recipe that leaves a tensor as it is."""
    return Recipe(tensor.name, tensor.dtype, tensor.shape, tensor)


def row_chunks(recipe: Recipe) -> Iterator[tuple[int, int]]:
    """Ranges lo, hi of rows to work on, of about 8 MB each in float32.

    Chunks start at multiples of 64 rows and none is shorter (unless the tensor is): matrix products work in
    blocks of rows, and only where these fall alike does a product in chunks have the bits of the whole product.
    """
    width = max(1, recipe.nbytes // ITEM_BYTES[recipe.dtype] // max(1, recipe.rows))
    size = max(_BLOCK_ROWS, _CHUNK_VALUES // width // _BLOCK_ROWS * _BLOCK_ROWS)
    if any(step.whole for step in recipe.steps):
        size = recipe.rows
    lo = 0
    while lo < recipe.rows:
        hi = lo + size if recipe.rows - lo - size >= _BLOCK_ROWS else recipe.rows
        yield lo, hi
        lo = hi


def torch_dtype(name: str) -> torch.dtype:
    """The torch type of a safetensors floating type name."""
    import torch

    return {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}[name]


def read_rows(
    tensor: TensorInfo, fd: int, lo: int, hi: int, workspace: Workspace | None = None
) -> torch.Tensor:
    """Rows lo..hi-1 in float32, shape [hi - lo, ...]; in a workspace they are valid until the next are read."""
    import torch

    shape, workspace = (hi - lo, *tensor.shape[1:]), workspace or Workspace()
    stored = workspace.take("stored", shape, torch_dtype(tensor.dtype))
    tensor.pread_into(bytes_of(stored), fd, lo)
    if stored.dtype == torch.float32:
        return stored
    return workspace.take("rows", shape, torch.float32).copy_(stored)


def first_not_finite(rows: torch.Tensor) -> int | None:
    """The first row with NaN or infinity, if any: both pass through to the extremes, which are quick to find."""
    import torch

    if not rows.numel() or all(extreme.isfinite() for extreme in torch.aminmax(rows)):
        return None
    return int((~rows.isfinite()).reshape(len(rows), -1).any(1).nonzero()[0])


def read_float(tensor: TensorInfo) -> torch.Tensor:
    """A whole tensor in float32: for adapter factors, which are small."""
    with opened(tensor) as fd:
        return read_rows(tensor, fd, 0, tensor.rows).reshape(tensor.shape)


@contextmanager
def opened(tensor: TensorInfo) -> Iterator[int]:
    """The tensor's file, open for reading."""
    fd = os.open(tensor.path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)
