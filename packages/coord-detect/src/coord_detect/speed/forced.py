"""Forced tokens, which stand at the same place of every answer, from which the next can be drafted.

An answer is: `head`, a description, `before`, coordinates with `between`, `after`, a description, and so on. With the
markers `obj` the head is the start marker, and `after` the end marker with the next start. In JSON all five are
punctuation and keys. Nothing here limits an answer: what differs from them is followed, and drafts nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coord_codec import CoordVocab, Instance, encode_target
from coord_detect.grammar.markers import DescriptionTrie
from coord_detect.model.card import as_trained
from coord_detect.settings.record import Settings
from coord_detect.settings.sections import Asking

_NAME = "NAME"
_COORDINATE = re.compile(r"<\|coord_\d+\|>")
LONGEST_DRAFT = 32
"""The most tokens that are drafted at once."""


@dataclass(frozen=True)
class AnswerPlace:
    """Where an answer stands.

    Attributes:
        part: `head`, `name`, `before`, `side` (a coordinate is next), `between`, `after`, or `lost`
        at: number of tokens of that part so far
        sides: number of coordinates of the present shape so far
        name: tokens of the present description so far
    """

    part: str = "head"
    at: int = 0
    sides: int = 0
    name: tuple[int, ...] = ()


@dataclass(frozen=True)
class ForcedTokens:
    """The forced tokens of answers.

    Attributes:
        head: before the first description
        before: between a description and its first coordinate
        between: between two coordinates
        after: between the last coordinate and the next description
        sides: number of coordinates of a shape; None if it varies
        vocab: the coordinate tokens
        names: the only descriptions; None if there may be others
    """

    head: tuple[int, ...]
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    sides: int | None
    vocab: CoordVocab
    names: DescriptionTrie | None = None

    @classmethod
    def for_tokenizer(
        cls, tokenizer: Any, data: Asking, vocab: CoordVocab, names: Iterable[str] | None = None
    ) -> ForcedTokens:
        """Return the forced tokens of answers with the markers, style and geometry of `data`."""
        shape = data.shape
        corners = (0.2, 0.3, 0.6, 0.7)
        other = {"geometry": {"type": shape.name, "coordinates": list(shape.example)}}
        sample = {"desc": _NAME, **({"bbox": corners} if shape.is_box else other)}
        text = encode_target(
            Instance(image="x", objects=[sample, sample]),
            markers=data.markers,
            style=data.style,
            form="tokens",
            order="given",
            geometry=shape,
        )
        head, first, _ = text.split(_NAME)
        before, between, *rest = _COORDINATE.split(first)

        def ids(piece: str) -> tuple[int, ...]:
            return tuple(tokenizer(piece, add_special_tokens=False)["input_ids"])

        spelled = None
        if names is not None:
            texts = [json.dumps(name, ensure_ascii=False)[1:-1] if data.style == "json" else name for name in names]
            spelled = DescriptionTrie(map(ids, texts))
        sides = shape.least if shape.fixed else None
        return cls(ids(head), ids(before), ids(between), ids(rest[-1]), sides, vocab, spelled)

    @classmethod
    def of_checkpoint(cls, folder: str | Path) -> ForcedTokens:
        """Return the forced tokens of a checkpoint's answers, as its `coordexp.json` says how they are written."""
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        data = as_trained(Settings(), Path(folder)).data
        return cls.for_tokenizer(tokenizer, data, CoordVocab.from_tokenizer(tokenizer))

    @classmethod
    def none(cls, vocab: CoordVocab) -> ForcedTokens:
        """Return those of answers of which nothing is known: nothing is drafted."""
        return cls((), (), (), (), None, vocab)

    def step(self, place: AnswerPlace, token: int) -> AnswerPlace:
        """Return the place behind one more token."""
        if token in self.vocab.ids:
            sides = place.sides + 1 if place.part == "side" else 1
            closed = sides == self.sides
            return self._settled(AnswerPlace("after" if closed else "between", sides=sides))
        if place.part == "name" and place.name and self.before and token == self.before[0]:
            return self._settled(AnswerPlace("before", at=1))
        if place.part == "name":
            return replace(place, name=(*place.name, token))
        if token == self._fixed(place):
            return self._settled(replace(place, at=place.at + 1))
        return AnswerPlace("name") if self.head and token == self.head[-1] else AnswerPlace("lost")

    def draft(self, place: AnswerPlace) -> list[int]:
        """Return the tokens that follow a place without a choice."""
        drafted: list[int] = []
        while len(drafted) < LONGEST_DRAFT and (token := self._fixed(place)) is not None:
            drafted.append(token)
            place = self.step(place, token)
        return drafted

    def following(self, tokens: Sequence[int], most: int = LONGEST_DRAFT) -> list[int]:
        """Return the tokens that follow a prompt and the beginning of its answer without a choice, `most` at most.

        An object begins behind the last start marker; without one nothing is drafted.
        """
        begins = self.head[-1]
        if begins not in tokens:
            return []
        place = AnswerPlace("name")
        for token in tokens[len(tokens) - tokens[::-1].index(begins) :]:
            place = self.step(place, token)
        return self.draft(place)[:most]

    def _fixed(self, place: AnswerPlace) -> int | None:
        """Return the forced token at a place; None if there is a choice."""
        if place.part == "name" and self.names is not None:
            following = self.names.following(place.name)
            if place.name and not following:
                return next(iter(self.before), None)
            return following[0] if len(following) == 1 and self.names.left(place.name) else None
        run = {"head": self.head, "before": self.before, "between": self.between, "after": self.after}.get(place.part)
        return run[place.at] if run is not None and place.at < len(run) else None

    def _settled(self, place: AnswerPlace) -> AnswerPlace:
        """Return a place, or the beginning of the next part if its own is complete."""
        run = {"head": self.head, "before": self.before, "between": self.between, "after": self.after}[place.part]
        if place.at < len(run):
            return place
        return AnswerPlace("name") if place.part in ("head", "after") else AnswerPlace("side", sides=place.sides)
