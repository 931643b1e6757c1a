"""Which coordinates may come next so that boxes have area and no object is said twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch

from coord_codec import CoordVocab

_SIDES = 4


@dataclass(frozen=True)
class Unfinished:
    """An answer so far.

    Attributes:
        count: of whole boxes
        name: of the object whose box is being said
        said: bins of this box so far, three at most
        before: whole boxes that this name has already
    """

    count: int
    name: Hashable
    said: tuple[int, ...]
    before: frozenset[tuple[int, ...]]


@dataclass
class _Row:
    """What was read of one row's answer: its tokens, the boxes of each name, what follows the last box."""

    tokens: list[int] = field(default_factory=list)
    boxes: dict[Hashable, set[tuple[int, ...]]] = field(default_factory=dict)
    between: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    count: int = 0


@dataclass(frozen=True)
class BoxRules:
    """x1 < x2, y1 < y2, and no second object with the same name and box.

    Args:
        vocab: the coordinate tokens
        name_of: the name that stands in the tokens between two boxes, in a form that can be compared
    """

    vocab: CoordVocab
    name_of: Callable[[tuple[int, ...]], Hashable]
    _rows: dict[int, _Row] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, answer: Sequence[int], row: int = 0) -> Unfinished:
        """Return what an answer says so far, given its token ids; every four coordinates are a box.

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
            if len(found.said) == _SIDES:
                found.boxes.setdefault(self.name_of(tuple(found.between)), set()).add(tuple(found.said))
                found.count += 1
                found.between, found.said = [], []
        found.tokens = answer
        name = self.name_of(tuple(found.between))
        return Unfinished(found.count, name, tuple(found.said), frozenset(found.boxes.get(name, ())))

    def restrict(self, allowed_V: torch.Tensor, state: Unfinished) -> torch.Tensor:
        """Return `allowed_V` [V] without the coordinates that `state` rules out; other tokens stay as they are."""
        first, bins = self.vocab.first_id, len(self.vocab.ids)
        place, said = len(state.said), state.said
        low, high = (0, bins - 1) if place < 2 else (said[place - 2] + 1, bins)
        allowed_V = allowed_V.clone()
        allowed_V[first : first + low] = False
        allowed_V[first + high : first + bins] = False
        begun = [box for box in state.before if box[:place] == said]
        used = [box[place] for box in begun]
        full = [each for each in set(used) if used.count(each) >= self._possible((*said, each))]
        if full and len(full) < high - low:  # with every box of a name said there is nothing else to say
            allowed_V[torch.tensor(full, device=allowed_V.device) + first] = False
        return allowed_V

    def _possible(self, said: tuple[int, ...]) -> int:
        """How many boxes begin with these bins."""
        last = len(self.vocab.ids) - 1
        x1, y1 = said[0], said[1] if len(said) > 1 else None
        wide = last - x1 if len(said) < 3 else 1
        if y1 is None:
            return wide * last * (last + 1) // 2
        return wide * (last - y1 if len(said) < _SIDES else 1)
