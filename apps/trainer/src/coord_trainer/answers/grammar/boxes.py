"""Which coordinates may come next so that boxes have area and no object is said twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class BoxRules:
    """x1 < x2, y1 < y2, and no second object with the same name and box.

    Args:
        vocab: the coordinate tokens
        name_of: the name that stands in the tokens between two boxes, in a form that can be compared
    """

    vocab: CoordVocab
    name_of: Callable[[tuple[int, ...]], Hashable]

    def read(self, answer: Sequence[int]) -> Unfinished:
        """Return what an answer says so far, given its token ids; every four coordinates are a box."""
        boxes: dict[Hashable, set[tuple[int, ...]]] = {}
        between: list[int] = []
        said: list[int] = []
        count = 0
        for token in answer:
            if token in self.vocab.ids:
                said.append(token - self.vocab.first_id)
            elif not said:
                between.append(token)
            if len(said) == _SIDES:
                boxes.setdefault(self.name_of(tuple(between)), set()).add(tuple(said))
                count += 1
                between, said = [], []
        name = self.name_of(tuple(between))
        return Unfinished(count, name, tuple(said), frozenset(boxes.get(name, ())))

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
