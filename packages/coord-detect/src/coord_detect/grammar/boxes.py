"""Restricts the next coordinate so that shapes are ordered as their geometry requires and none is generated twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import torch

from coord_codec import GEOMETRIES, CoordVocab, Geometry


class PartialAnswer(NamedTuple):
    """An answer while it is being generated.

    Attributes:
        shapes: complete shapes by the name of their object
        count: number of complete shapes
        between: tokens after the last of them, in front of the next shape
        bins: of the shape that is being generated, so far
    """

    shapes: Mapping[Hashable, frozenset[tuple[int, ...]]] = MappingProxyType({})
    count: int = 0  # type: ignore[assignment]  # it hides the method `count` of a tuple, which nothing calls
    between: tuple[int, ...] = ()
    bins: tuple[int, ...] = ()


def shared_length(tokens: Sequence[int], others: Sequence[int]) -> int:
    """Return how many tokens two lists begin with in common."""
    shared = min(len(tokens), len(others))
    while tokens[:shared] != others[:shared]:
        shared -= 1
    return shared


@dataclass(frozen=True)
class BoxRules:
    """Enforces the order of coordinates (x1 < x2 and y1 < y2), and no two objects of equal name and shape.

    `name_of` returns the name in the tokens between two shapes, as a hashable key. `closing_id`, the token
    after a shape, is required if shapes can differ in their number of coordinates.
    """

    vocab: CoordVocab
    name_of: Callable[[tuple[int, ...]], Hashable]
    geometry: Geometry = GEOMETRIES["box"]
    closing_id: int | None = None
    _rows: dict[int, tuple[list[int], list[PartialAnswer]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Of each row the answer last read, and what it was after each number of tokens."""

    def read(self, answer: list[int], row: int = 0) -> PartialAnswer:
        """Parse the token ids of an answer.

        What it has in common with the answer last read for the same `row` is not parsed again, so that the cost per
        token does not grow with the answer, and a rejected draft costs no more than its own tokens.
        """
        tokens, states = self._rows.setdefault(row, ([], [PartialAnswer()]))
        shared = shared_length(tokens, answer)
        del tokens[shared:], states[shared + 1 :]
        for token in answer[shared:]:
            tokens.append(token)
            states.append(self._after(states[-1], token))
        return states[-1]

    def _after(self, state: PartialAnswer, token: int) -> PartialAnswer:
        """Return an answer with one more token."""
        if token in self.vocab.ids:
            state = state._replace(bins=(*state.bins, token - self.vocab.first_id))
        elif not state.bins:
            return state._replace(between=(*state.between, token))
        if len(state.bins) < self.geometry.longest and token != self.closing_id:
            return state
        name = self.name_of(state.between)
        shapes = {**state.shapes, name: state.shapes.get(name, frozenset()) | {state.bins}}
        return PartialAnswer(shapes, state.count + 1)

    def restrict(self, allowed_NV: torch.Tensor, states: Mapping[int, PartialAnswer]) -> None:
        """Remove from `allowed_NV` [N, V], in place, what the partial answers rule out."""
        if not states:
            return
        coord = slice(self.vocab.ids.start, self.vocab.ids.stop)
        limits, exhausted = [], []
        for place, (row, state) in enumerate(states.items()):
            same_name = state.shapes.get(self.name_of(state.between), frozenset())
            limits.append([row, *self.geometry.next_bins(state.bins, len(self.vocab.ids)), state.bins in same_name])
            exhausted += [[place, used] for used in self._exhausted(state.bins, same_name)]
        row_R, low_R, high_R, is_repeated_R = moved(limits, allowed_NV.device).T
        bin_K = torch.arange(len(self.vocab.ids), device=allowed_NV.device)
        coord_RK = allowed_NV[row_R, coord] & (bin_K >= low_R[:, None]) & (bin_K < high_R[:, None])
        if exhausted:
            place_P, bin_P = moved(exhausted, allowed_NV.device).T
            coord_RK[place_P, bin_P] = False
        if self.closing_id is not None:
            allowed_NV[row_R, self.closing_id] &= ~(is_repeated_R.bool() & coord_RK.any(dim=1))
        allowed_NV[row_R, coord] = coord_RK

    def _exhausted(self, prefix: tuple[int, ...], same_name: Collection[tuple[int, ...]]) -> list[int]:
        """Return the bins after which every shape with this name was already generated; empty if that is all bins."""
        if not same_name:
            return []
        place, bins = len(prefix), len(self.vocab.ids)
        used = Counter(shape[place] for shape in same_name if len(shape) > place and shape[:place] == prefix)
        num_shapes = self.geometry.num_shapes
        exhausted = [next_bin for next_bin, count in used.items() if count >= num_shapes((*prefix, next_bin), bins)]
        low, high = self.geometry.next_bins(prefix, bins)
        return exhausted if len(exhausted) < high - low else []  # some token has to remain allowed


def moved(rows: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """Return rows of numbers on a device, without waiting for it."""
    return torch.tensor(rows).to(device, non_blocking=True)
