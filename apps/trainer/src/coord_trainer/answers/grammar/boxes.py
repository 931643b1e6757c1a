"""Restricts the next coordinate so that shapes are ordered as their geometry requires and none is generated twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from coord_codec import GEOMETRIES, CoordVocab, Geometry


@dataclass(frozen=True)
class PartialAnswer:
    """An answer while it is being generated.

    Attributes:
        count: number of complete shapes
        name: of the object whose shape is being generated
        bins: of this shape so far
        same_name: complete shapes of earlier objects with this name
    """

    count: int
    name: Hashable
    bins: tuple[int, ...]
    same_name: frozenset[tuple[int, ...]]


@dataclass
class _Row:
    """The parsed answer of one row: its tokens, the shapes of each name, the tokens and bins after the last shape."""

    tokens: list[int] = field(default_factory=list)
    shapes: dict[Hashable, set[tuple[int, ...]]] = field(default_factory=dict)
    between: list[int] = field(default_factory=list)
    bins: list[int] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True)
class BoxRules:
    """Enforces the order of coordinates (of boxes x1 < x2 and y1 < y2), and no two objects of equal name and shape.

    Args:
        vocab: the coordinate tokens
        name_of: returns the name in the tokens between two shapes, as a hashable key
        geometry: of the objects
        closing_id: the token after a shape; required if shapes can differ in their number of coordinates
    """

    vocab: CoordVocab
    name_of: Callable[[tuple[int, ...]], Hashable]
    geometry: Geometry = GEOMETRIES["box"]
    closing_id: int | None = None
    _rows: dict[int, _Row] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, answer: Sequence[int], row: int = 0) -> PartialAnswer:
        """Parse the token ids of an answer.

        If it extends the answer last read for the same `row`, only the new tokens are parsed, so that the cost per
        token does not grow with the answer.
        """
        parsed, answer = self._rows.get(row), list(answer)
        if parsed is None or answer[: len(parsed.tokens)] != parsed.tokens:
            parsed = self._rows[row] = _Row()
        for token in answer[len(parsed.tokens) :]:
            if token in self.vocab.ids:
                parsed.bins.append(token - self.vocab.first_id)
            elif not parsed.bins:
                parsed.between.append(token)
            if len(parsed.bins) == self.geometry.longest or (parsed.bins and token == self.closing_id):
                parsed.shapes.setdefault(self.name_of(tuple(parsed.between)), set()).add(tuple(parsed.bins))
                parsed.count += 1
                parsed.between, parsed.bins = [], []
        parsed.tokens = answer
        name = self.name_of(tuple(parsed.between))
        return PartialAnswer(parsed.count, name, tuple(parsed.bins), frozenset(parsed.shapes.get(name, ())))

    def restrict(self, allowed_BV: torch.Tensor, states: Mapping[int, PartialAnswer]) -> None:
        """Remove from `allowed_BV` [B, V] the coordinates and ends of shapes that the partial answers rule out.

        Args:
            allowed_BV: which tokens may come next; changed in place
            states: partial answers of the rows in which a coordinate may come next
        """
        if not states:
            return
        first, bins, device = self.vocab.first_id, len(self.vocab.ids), allowed_BV.device
        row_R = torch.tensor(list(states), device=device)
        coord_RK = allowed_BV[row_R, first : first + bins]
        ranges = [self.geometry.next_bins(state.bins, bins) for state in states.values()]
        low_R1, high_R1 = torch.tensor(ranges, device=device).T[..., None]
        bin_K = torch.arange(bins, device=device)
        coord_RK &= (bin_K >= low_R1) & (bin_K < high_R1)
        for place, (row, state) in enumerate(states.items()):
            if exhausted := self._exhausted(state):
                coord_RK[place, exhausted] = False
            if self.closing_id is not None and state.bins in state.same_name and coord_RK[place].any():
                allowed_BV[row, self.closing_id] = False
        allowed_BV[row_R, first : first + bins] = coord_RK

    def _exhausted(self, state: PartialAnswer) -> list[int]:
        """Return the bins after which every shape with this name was already generated; empty if that is all bins."""
        if not state.same_name:
            return []
        place, prefix, bins = len(state.bins), state.bins, len(self.vocab.ids)
        num_shapes = self.geometry.num_shapes
        used = Counter(shape[place] for shape in state.same_name if len(shape) > place and shape[:place] == prefix)
        exhausted = [next_bin for next_bin, count in used.items() if count >= num_shapes((*prefix, next_bin), bins)]
        low, high = self.geometry.next_bins(prefix, bins)
        return exhausted if len(exhausted) < high - low else []  # some token has to remain allowed
