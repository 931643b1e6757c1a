"""Steps by which an adapter changes the rows of a weight, in PEFT's arithmetic and order.

LoRA (Hu et al. 2021, https://arxiv.org/abs/2106.09685): W + s B A, with s = alpha / r, or alpha / sqrt(r) for
rank-stabilised LoRA (https://arxiv.org/abs/2312.03732). DoRA (Liu et al. 2024, https://arxiv.org/abs/2402.09353):
m (W + s B A) / ||W + s B A||, with the norm over the inputs of each output. All is computed in float32 and rounded
once, so that results are bit-identical to PEFT's `merge_and_unload`, except where PEFT rounds to 16 bits more often: an
embedding's product before it is added, and a head with LoRA before its offsets are added.

Shapes: O outputs, I inputs, R rank of the factors, K rows of a table, H hidden size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from coord_exporter.checkpoint.read import TensorInfo
from coord_exporter.checkpoint.recipe import RowFunction, Step, read_float

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LoraStep(Step):
    """Add the low-rank product to a weight and, for DoRA, rescale it.

    Attributes:
        a: factor A [R, I]
        b: factor B [O, R]
        scale: factor s of the product
        magnitude: m [O] for DoRA, None for LoRA
        transposed: whether the weight is stored [I, O], as in embeddings, which have no magnitude
    """

    a: TensorInfo
    b: TensorInfo
    scale: float
    magnitude: TensorInfo | None = None
    transposed: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether a factor is all 0; DoRA rescales even then."""
        return self.magnitude is None and not (read_float(self.b).any() and read_float(self.a).any())

    def open(self) -> RowFunction:
        """Load the factors."""
        import torch

        a, b = read_float(self.a), read_float(self.b)
        magnitude = None if self.magnitude is None else read_float(self.magnitude).reshape(-1)

        def change(rows: torch.Tensor, lo: int, hi: int) -> torch.Tensor:
            left, right = (b, a[:, lo:hi]) if self.transposed else (b[lo:hi], a)
            delta = torch.mm(left, right).mul_(self.scale)
            rows += delta.T if self.transposed else delta
            if magnitude is None:
                return rows
            return rows.mul_((magnitude[lo:hi] / torch.linalg.norm(rows, dim=1)).view(-1, 1))

        return change


def same_changes(one: Sequence[Step], other: Sequence[Step]) -> bool:
    """Return whether two sequences of steps change a weight alike before rounding.

    With `ensure_weight_tying` PEFT stores one LoRA twice: as an embedding's factors and, transposed, as a head's.
    """
    return len(one) == len(other) and all(map(_same_change, one, other))


def _same_change(one: Step, other: Step) -> bool:
    if not (isinstance(one, LoraStep) and isinstance(other, LoraStep)):
        return one == other
    if one.transposed == other.transposed or one.magnitude or other.magnitude:
        return one == other
    pairs = ((one.a, other.b), (one.b, other.a))
    if one.scale != other.scale or any(mine.shape != theirs.shape[::-1] for mine, theirs in pairs):
        return False
    return all(bool((read_float(mine) == read_float(theirs).T).all()) for mine, theirs in pairs)


@dataclass(frozen=True)
class ExpertStep(Step):
    """Add each expert's low-rank product to its matrix; PEFT's `target_parameters`.

    Attributes:
        a: factors A [E * R, I], with the experts as the outer index
        b: factors B [O, R * E], with the ranks as the outer index
        scale: factor s of the product
        experts: number of experts E
        transposed: whether the weight is stored [E, I, O] instead of [E, O, I]
    """

    a: TensorInfo
    b: TensorInfo
    scale: float
    experts: int
    transposed: bool

    @property
    def block_rows(self) -> int:
        """Return 1, since the product of one expert does not depend on the others."""
        return 1

    @property
    def is_nothing(self) -> bool:
        """Whether a factor is all 0."""
        return not (read_float(self.b).any() and read_float(self.a).any())

    def open(self) -> RowFunction:
        """Load the factors."""
        import torch

        a_ERI = read_float(self.a).reshape(self.experts, -1, self.a.shape[1])
        b_ORE = read_float(self.b).reshape(self.b.shape[0], -1, self.experts)

        def change(rows: torch.Tensor, lo: int, hi: int) -> torch.Tensor:
            delta_EOI = torch.einsum("ore,eri->eoi", b_ORE[..., lo:hi], a_ERI[lo:hi]).mul_(self.scale)
            return rows.add_(delta_EOI.mT if self.transposed else delta_EOI)

        return change


@dataclass(frozen=True)
class BiasStep(Step):
    """Add a scaled `lora_bias` vector [O] to a bias."""

    bias: TensorInfo
    scale: float

    @property
    def is_nothing(self) -> bool:
        """Whether the vector is all 0."""
        return not read_float(self.bias).any()

    def open(self) -> RowFunction:
        """Load the vector."""
        bias = read_float(self.bias)
        return lambda rows, lo, hi: rows.add_(bias[lo:hi] * self.scale)


@dataclass(frozen=True)
class RowsStep(Step):
    """Change some rows by the rows of a table: add offsets, or replace rows by trained or new ones.

    Attributes:
        ids: distinct token ids in the order of the table's rows
        table: rows [K, H], stored or in memory
        added: whether row k is added to row `ids[k]` instead of replacing it
    """

    ids: Sequence[int]
    table: TensorInfo | torch.Tensor
    added: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether rows of 0 are added."""
        return self.added and not self._read().any()

    def touches(self, lo: int, hi: int) -> bool:
        """Return whether an id lies in lo..hi-1."""
        at = bisect_left(self._sorted, lo)
        return at < len(self._sorted) and self._sorted[at] < hi

    @cached_property
    def _sorted(self) -> list[int]:
        return sorted(self.ids)

    def open(self) -> RowFunction:
        """Load the table."""
        import torch

        table = self._read()
        ids = torch.tensor(self.ids)

        def change(rows: torch.Tensor, lo: int, hi: int) -> torch.Tensor:
            inside = (ids >= lo) & (ids < hi)
            here = ids[inside] - lo
            rows[here] = rows[here] + table[inside] if self.added else table[inside]
            return rows

        return change

    def _read(self) -> torch.Tensor:
        return read_float(self.table) if isinstance(self.table, TensorInfo) else self.table
