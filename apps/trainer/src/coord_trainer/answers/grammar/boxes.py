"""Which coordinates may come next so that boxes have area and no object is said twice, whatever its shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from coord_codec import GEOMETRIES, CoordVocab, Geometry


@dataclass(frozen=True)
class Unfinished:
    """An answer so far.

    Attributes:
        count: of whole shapes
        name: of the object whose shape is being said
        said: bins of this shape so far
        before: whole shapes that this name has already
    """

    count: int
    name: Hashable
    said: tuple[int, ...]
    before: frozenset[tuple[int, ...]]


@dataclass
class _Row:
    """What was read of one row's answer: its tokens, the shapes of each name, what follows the last shape."""

    tokens: list[int] = field(default_factory=list)
    shapes: dict[Hashable, set[tuple[int, ...]]] = field(default_factory=dict)
    between: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True)
class BoxRules:
    """Of boxes x1 < x2 and y1 < y2; of all shapes no second object with the same name and coordinates.

    Args:
        vocab: the coordinate tokens
        name_of: the name that stands in the tokens between two shapes, in a form that can be compared
        geometry: what the objects are
        closing_id: the token behind a shape; needed where not all have as many coordinates
    """

    vocab: CoordVocab
    name_of: Callable[[tuple[int, ...]], Hashable]
    geometry: Geometry = GEOMETRIES["box"]
    closing_id: int | None = None
    _rows: dict[int, _Row] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, answer: Sequence[int], row: int = 0) -> Unfinished:
        """Return what an answer says so far, given its token ids.

        Where it goes on from what was read for the same `row` before, the new tokens alone are read, so that a long
        answer costs no more a token than a short one.
        """
        found, answer = self._rows.get(row), list(answer)
        if found is None or answer[: len(found.tokens)] != found.tokens:
            found = self._rows[row] = _Row()
        for token in answer[len(found.tokens) :]:
            if token in self.vocab.ids:
                found.said.append(token - self.vocab.first_id)
            elif not found.said:
                found.between.append(token)
            if len(found.said) == self.geometry.longest or (found.said and token == self.closing_id):
                found.shapes.setdefault(self.name_of(tuple(found.between)), set()).add(tuple(found.said))
                found.count += 1
                found.between, found.said = [], []
        found.tokens = answer
        name = self.name_of(tuple(found.between))
        return Unfinished(found.count, name, tuple(found.said), frozenset(found.shapes.get(name, ())))

    def restrict(self, allowed_BV: torch.Tensor, states: Mapping[int, Unfinished]) -> None:
        """Take out of `allowed_BV` [B, V] what states rule out: coordinates, and the end of a shape.

        Args:
            allowed_BV: which tokens may come next; changed in place
            states: of the rows in which a coordinate may come next
        """
        if not states:
            return
        first, bins, device = self.vocab.first_id, len(self.vocab.ids), allowed_BV.device
        row_R = torch.tensor(list(states), device=device)
        coord_RK = allowed_BV[row_R, first : first + bins]
        low_R1, high_R1 = torch.tensor([self._range(s.said) for s in states.values()], device=device).T[..., None]
        bin_K = torch.arange(bins, device=device)
        coord_RK &= (bin_K >= low_R1) & (bin_K < high_R1)
        for place, (row, state) in enumerate(states.items()):
            if full := self._exhausted(state):
                coord_RK[place, full] = False
            if self.closing_id is not None and state.said in state.before and coord_RK[place].any():
                allowed_BV[row, self.closing_id] = False
        allowed_BV[row_R, first : first + bins] = coord_RK

    def _exhausted(self, state: Unfinished) -> list[int]:
        """Return the bins behind which every shape of the name is said; none where that is all of them."""
        if not state.before:
            return []
        place, said = len(state.said), state.said
        used = Counter(shape[place] for shape in state.before if len(shape) > place and shape[:place] == said)
        full = [each for each, count in used.items() if count >= self._possible((*said, each))]
        low, high = self._range(said)
        return full if len(full) < high - low else []  # with every shape of a name said there is nothing else to say

    def _range(self, said: tuple[int, ...]) -> tuple[int, int]:
        """The first bin that may come next, and the one behind the last."""
        bins, place = len(self.vocab.ids), len(said)
        if self.geometry.name != "box":
            return 0, bins
        return (0, bins - 1) if place < 2 else (said[place - 2] + 1, bins)

    def _possible(self, said: tuple[int, ...]) -> int:
        """How many shapes begin with these bins."""
        last = len(self.vocab.ids) - 1
        if self.geometry.name != "box":
            lengths = range(len(said), self.geometry.longest + 1)
            return sum((last + 1) ** (n - len(said)) for n in lengths if self.geometry.fits(n))
        x1, y1 = said[0], said[1] if len(said) > 1 else None
        wide = last - x1 if len(said) < 3 else 1
        if y1 is None:
            return wide * last * (last + 1) // 2
        return wide * (last - y1 if len(said) < 4 else 1)
