"""The target's grammar as a `LogitsProcessor`: marker, description, the coordinates of the geometry, end.

It works with any `generate` of transformers, with beams and batches, since the answer so far alone decides what may
follow. A description consists of any tokens but markers, coordinates and control tokens, or is one of a list of known
descriptions. Boxes have area, no object is generated twice, and the turn ends only between objects.

Shapes: B answers, T tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers import LogitsProcessor

from coord_codec import GEOMETRIES, CoordVocab, Geometry
from coord_codec.vocab import marker_family
from coord_detect.grammar.boxes import BoxRules, moved

_Rules = dict[str, list[tuple[Any, str]]]
_NAMED: dict[int, _Rules] = {
    2: {"named": [("desc", "named"), ("coord", "1")]},
    4: {"named": [("desc", "named"), (1, "closed")], "closed": [(2, "0")], "0": [("coord", "1")]},
}
"""Rules of the states after a description, by number of markers; see `_rules`."""
_AFTER_MARKER = {2: ("begun", "outside"), 4: ("begun", "closed", "0", "outside")}
"""The state after each marker, by number of markers."""


def _rules(markers: int, geometry: Geometry) -> _Rules:
    """Return the transitions from each state: (class of the next token, next state).

    A class is a position among the markers, "coord", "desc" or "end"; state "3" is the one after three coordinates.
    """
    around: _Rules = {
        "outside": [(0, "begun"), ("end", "done")],
        "begun": [("desc", "named")],
        "done": [("end", "done")],
    }
    longest = geometry.longest
    coordinates: _Rules = {
        str(n): [("coord", str(n + 1))] * (n < longest) + [(markers - 1, "outside")] * geometry.fits(n)
        for n in range(1, longest + 1)
    }
    return around | _NAMED[markers] | coordinates


class CoordGrammar(LogitsProcessor):
    """Allows only the tokens after which the answer can still become well-formed.

    With `max_new_tokens` a complete answer also ends within that many tokens, end of turn included.

    Args:
        vocab: the coordinate tokens
        marker_ids: two or four, as `MarkerFamily.ids` gives them
        end_id: the token that ends the turn
        description_ids: tokens that a description may contain
        prompt_length: tokens in front of the answer (the padded prompt's length)
        max_new_tokens: the length limit given to `generate`; None for no limit
        descriptions: token ids of the only allowed descriptions, each of `description_ids`; None allows any.
            A known description ends when it is complete, even if the model was never taught to stop there.
        max_objects: the most objects of an answer; None for no limit
        min_objects: the fewest objects, unless the length limit leaves no space for them
        geometry: of the objects
    """

    def __init__(
        self,
        vocab: CoordVocab,
        marker_ids: Sequence[int],
        end_id: int,
        description_ids: Iterable[int],
        *,
        prompt_length: int,
        max_new_tokens: int | None = None,
        descriptions: Iterable[Sequence[int]] | None = None,
        max_objects: int | None = None,
        min_objects: int = 0,
        geometry: Geometry = GEOMETRIES["box"],
    ) -> None:
        if len(marker_ids) not in _NAMED:
            raise ValueError(f"marker_ids: expected two or four ids, found {list(marker_ids)}")
        if max_new_tokens is not None and max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected None or at least 1, found {max_new_tokens}")
        self._vocab, self._end_id = vocab, end_id
        self._max_objects, self._min_objects, self._longest = max_objects, min_objects, geometry.longest
        markers = frozenset(marker_ids)
        closing = None if geometry.fixed else marker_ids[-1]
        self._shapes = BoxRules(
            vocab, lambda between: tuple(token for token in between if token not in markers), geometry, closing
        )
        self._rules = _rules(len(marker_ids), geometry)
        self._after = dict(zip(marker_ids, _AFTER_MARKER[len(marker_ids)], strict=True))
        excluded = {*marker_ids, end_id, *vocab.ids}
        self._description = frozenset(description_ids) - excluded
        self._classes: dict[int | str, list[int]] = {
            **{place: [token] for place, token in enumerate(marker_ids)},
            "coord": list(vocab.ids),
            "desc": sorted(self._description),
            "end": [end_id],
        }
        self._prompt_length, self._limit = prompt_length, max_new_tokens
        self._cost = _costs(self._rules)
        self._known = None if descriptions is None else DescriptionTrie(descriptions)
        if self._known is not None:
            self._cost["begun"] = self._known.left(()) + self._cost["named"]
        self._masks: dict[tuple[Any, ...], torch.Tensor] = {}

    @classmethod
    def for_tokenizer(
        cls,
        tokenizer: Any,
        markers: str,
        *,
        prompt_length: int,
        max_new_tokens: int | None = None,
        descriptions: Iterable[str] | None = None,
        max_objects: int | None = None,
        min_objects: int = 0,
        geometry: Geometry = GEOMETRIES["box"],
    ) -> CoordGrammar:
        """Return the grammar of a marker family (`"obj"`, `"qwen"`) in a tokenizer's ids; `descriptions` are texts.

        Descriptions cannot contain added tokens of any kind (control tokens, the other family's markers, the
        wildcard) or padding rows of the embedding.

        Raises:
            ValueError: the tokenizer lacks a coordinate token or a marker.
        """
        words = set(range(len(tokenizer))) - set(tokenizer.get_added_vocab().values())
        return cls(
            CoordVocab.from_tokenizer(tokenizer),
            marker_family(markers).ids(tokenizer),
            tokenizer.eos_token_id,
            words - set(tokenizer.all_special_ids),
            prompt_length=prompt_length,
            max_new_tokens=max_new_tokens,
            descriptions=None
            if descriptions is None
            else [tokenizer(text, add_special_tokens=False)["input_ids"] for text in descriptions],
            max_objects=max_objects,
            min_objects=min_objects,
            geometry=geometry,
        )

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores [B, V] of the next token with -inf at every token that the grammar rules out.

        Args:
            input_ids: [B, T], the prompts and the answers so far
            scores: [B, V], the logits of the next token
        """
        generated = input_ids.shape[1] - self._prompt_length
        if generated < 0:
            raise ValueError(
                f"prompt_length is {self._prompt_length}, but generation is at {input_ids.shape[1]} tokens"
            )
        answers = list(enumerate(input_ids[:, self._prompt_length :].tolist()))
        return scores.masked_fill(~self.allowed(answers, scores.shape[1], scores.device), -torch.inf)

    def allowed(self, answers: Sequence[tuple[int, list[int]]], size: int, device: torch.device) -> torch.Tensor:
        """Return which tokens may follow answers of any lengths, as a boolean mask [N, V].

        `answers` are number and token ids so far of each; what an answer has in common with the one last
        given for its number costs nothing.
        """
        masks, names, in_shapes = [], [], {}
        for place, (row, answer) in enumerate(answers):
            classes, following = self._following(answer, row)
            masks.append(self._mask(classes, size, device))
            names += [[place, token] for token in following]
            if "coord" in classes:
                in_shapes[place] = self._shapes.read(answer, row)
        allowed_NV = torch.stack(masks)
        if names:
            place_P, token_P = moved(names, device).T
            allowed_NV[place_P, token_P] = True
        self._shapes.restrict(allowed_NV, in_shapes)
        return allowed_NV

    def _state(self, answer: list[int]) -> str:
        """Return the state after an answer."""
        if not answer:
            return "outside"
        if answer[-1] in self._vocab.ids:
            sides = 0
            while sides < min(len(answer), self._longest) and answer[-1 - sides] in self._vocab.ids:
                sides += 1
            return str(sides)
        # A token that is neither marker nor part of a description is the end of the turn or the padding after it.
        return self._after.get(answer[-1]) or ("named" if answer[-1] in self._description else "done")

    def _following(self, answer: list[int], row: int) -> tuple[tuple[Any, ...], list[int]]:
        """Return the classes of tokens that may follow `answer`, before `BoxRules` is applied, and further tokens."""
        state = self._state(answer)
        left = None if self._limit is None or state == "done" else self._limit - len(answer)
        classes = tuple(
            name for name, following in self._rules[state] if left is None or 1 + self._cost[following] <= left
        )
        if state == "outside":
            count, most = self._shapes.read(answer, row).count, self._max_objects
            if most is not None and count >= most:
                return ("end",), []
            if count < self._min_objects and len(classes) > 1:
                return tuple(name for name in classes if name != "end"), []
        if self._known is None or state not in {"begun", "named"}:
            return classes, []
        start = max(place for place, token in enumerate([None, *answer]) if token not in self._description)
        beginning = tuple(answer[start:])
        names = [
            token
            for token in self._known.following(beginning)
            if left is None or 1 + self._known.left((*beginning, token)) + self._cost["named"] <= left
        ]
        is_complete = self._known.left(beginning) == 0
        return tuple(name for name in classes if is_complete and name != "desc"), names

    def _mask(self, classes: tuple[Any, ...], size: int, device: torch.device) -> torch.Tensor:
        """Return the tokens [V] of some classes."""
        key = (classes, size, device)
        if key not in self._masks:
            mask_V = torch.zeros(size, dtype=torch.bool)
            for name in classes:
                mask_V[torch.tensor(self._classes[name], dtype=torch.long)] = True
            self._masks[key] = mask_V.to(device, non_blocking=True)
        return self._masks[key]


def _costs(rules: dict[str, list[tuple[Any, str]]]) -> dict[str, int]:
    """Return the fewest tokens from each state to the end of the turn, that token included."""
    cost = {"done": 0}
    while len(cost) < len(rules):
        for state, transitions in rules.items():
            costs = [1 + cost[following] for _, following in transitions if following in cost]
            if state not in cost and costs:
                cost[state] = min(costs)
    return cost


class DescriptionTrie:
    """Prefix tree of the known descriptions' tokens.

    Args:
        descriptions: token ids of each known description

    Raises:
        ValueError: there is no description, or one is empty.
    """

    def __init__(self, descriptions: Iterable[Sequence[int]]) -> None:
        known = {tuple(ids) for ids in descriptions}
        if not known or () in known:
            raise ValueError("descriptions: expected at least one, none of them empty")
        self._left: dict[tuple[int, ...], int] = {}
        self._next: dict[tuple[int, ...], list[int]] = {}
        for ids in sorted(known):
            for cut in range(len(ids) + 1):
                beginning = ids[:cut]
                self._left[beginning] = min(self._left.get(beginning, len(ids)), len(ids) - cut)
                following = self._next.setdefault(beginning, [])
                if cut < len(ids) and ids[cut] not in following:
                    following.append(ids[cut])

    def following(self, beginning: tuple[int, ...]) -> list[int]:
        """Return the tokens that continue `beginning` towards a known description."""
        return self._next.get(beginning, [])

    def left(self, beginning: tuple[int, ...]) -> int:
        """Return the fewest tokens that complete a known description; 0 if it is complete, or can never become one."""
        return self._left.get(beginning, 0)
