"""Forced tokens: those that the form of an answer leaves no choice in, from which the next can be drafted.

The grammar says which they are, of objects without end, so that the start of a next object is drafted too. Nothing here
limits an answer: what differs from the form is followed, and drafts nothing up to the next object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coord_detect.grammar.matchers import Matchers
from coord_detect.grammar.served import AnswerForm
from coord_detect.model.card import as_trained
from coord_detect.settings.record import Settings
from coord_detect.settings.sections import Asking

LONGEST_DRAFT = 32
"""The most tokens that are drafted at once."""
_ENDLESS = 9999
_BEFORE_NAME = 3
"""The last tokens in front of every description of JSON, `desc": "`; a start marker is one."""


class ForcedTokens:
    """The forced tokens of answers.

    Args:
        form: of the answers, see `CoordGrammar`; None if nothing is known of them: nothing is drafted
        end_id: the token that ends an answer
        tokenizer: a fast one, for JSON
    """

    def __init__(self, form: AnswerForm | None = None, end_id: int = 0, tokenizer: Any = None) -> None:
        self._matchers, self._head, self._begins = list[Matchers](), list[int](), dict[int, int]()
        if form is not None:
            endless = replace(form, min_objects=_ENDLESS, max_objects=_ENDLESS)
            forms = dict.fromkeys((endless, replace(endless, names=None, spelled=None)))
            self._matchers = [Matchers(each, end_id, tokenizer) for each in forms]
            self._head = self.draft([])

    @classmethod
    def for_tokenizer(cls, tokenizer: Any, data: Asking, names: Iterable[str] | None = None) -> ForcedTokens:
        """Return the forced tokens of answers with the markers, style and geometry of `data`."""
        form = AnswerForm.for_tokenizer(
            tokenizer, data.markers, style=data.style, names=names, geometry=data.shape
        ).in_ids(tokenizer)
        return cls(form, tokenizer.eos_token_id, tokenizer if form.as_json else None)

    @classmethod
    def of_checkpoint(cls, folder: str | Path) -> ForcedTokens:
        """Return the forced tokens of a checkpoint's answers, as its `coordexp.json` says how they are written."""
        from transformers import AutoTokenizer

        return cls.for_tokenizer(AutoTokenizer.from_pretrained(folder), as_trained(Settings(), Path(folder)).data)

    def draft(self, answer: Sequence[int], row: int = 0) -> list[int]:
        """Return the tokens that follow the beginning of an answer without a choice; `row` is its number."""
        for name, matchers in self._attempts(answer, row):
            matcher, is_whole = matchers.after(row, self._from(answer, name))
            if is_whole:
                self._begins[row] = name
                return matchers.forced(matcher)[:LONGEST_DRAFT]
        return []

    def _attempts(self, answer: Sequence[int], row: int) -> Iterator[tuple[int, Matchers]]:
        """Yield from which description on an answer may be of the form, and by what; last by any description."""
        yield from ((self._begins.get(row, 0), matchers) for matchers in self._matchers[:1])
        last = self._last_name(answer)
        yield from ((last, matchers) for matchers in self._matchers)

    def following(self, tokens: Sequence[int], most: int = LONGEST_DRAFT) -> list[int]:
        """Return the tokens that follow a prompt and the beginning of its answer without a choice, `most` at most.

        An object begins behind the last start marker, or the last key of a description in JSON; without one nothing is
        drafted.
        """
        name = self._last_name(tokens)
        self._begins.clear()
        return self.draft(self._from(tokens, name))[:most] if name else []

    def _last_name(self, tokens: Sequence[int]) -> int:
        """Return where the last description begins; 0 if there is none."""
        before = self._head[-_BEFORE_NAME:]
        places = range(len(tokens), len(before) - 1, -1)
        return next((at for at in places if list(tokens[at - len(before) : at]) == before), 0)

    def _from(self, tokens: Sequence[int], name: int) -> list[int]:
        """Return the answer whose first description begins at `name`; all tokens if that is 0."""
        return [*(self._head if name else ()), *tokens[name:]]
