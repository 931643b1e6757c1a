"""Matchers of llguidance: what may follow an answer, and what has to, read from the grammar of `lark_grammar`.

Answers with markers are matched by their token ids alone, so that no tokenizer is needed, a name has one spelling, and
a mask costs the same for every size of vocabulary. JSON is matched as text, and takes a fast tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from coord_detect.grammar.boxes import shared_length
from coord_detect.grammar.served import AnswerForm, lark_grammar


class _Ids:
    """A tokenizer, as llguidance takes it, of ids without text."""

    bos_token_id = None
    special_token_ids: tuple[int, ...] = ()

    def __init__(self, size: int, end_id: int) -> None:
        self.tokens, self.eos_token_id = [b""] * size, end_id

    def __call__(self, text: str | bytes) -> list[int]:
        return []


@lru_cache(maxsize=8)
def _tokens(tokenizer: Any, size: int, end_id: int) -> Any:
    import llguidance
    import llguidance.hf

    if tokenizer is None:
        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Ids(size, end_id)))
    return llguidance.hf.from_tokenizer(tokenizer, n_vocab=size, eos_token=end_id)


@lru_cache(maxsize=8)
def _compiled(tokens: Any, lark: str) -> Any:
    import llguidance

    matcher = llguidance.LLMatcher(tokens, llguidance.grammar_from("lark", lark))
    if matcher.is_error():  # it would allow the end alone
        raise ValueError(f"llguidance refuses the grammar: {matcher.get_error()}")
    return matcher


class Matchers:
    """A matcher for each answer, which reads only what differs from the answer last given for its number.

    Coordinates are in any order.

    Args:
        form: of the answers, with descriptions as token ids for markers (see `AnswerForm.in_ids`), and text for JSON
        end_id: the token that ends an answer
        tokenizer: a fast one, for JSON alone

    Attributes:
        size: of the vocabulary that a mask is of; tokens above it may never follow
    """

    def __init__(self, form: AnswerForm, end_id: int, tokenizer: Any = None) -> None:
        self._has_text = form.as_json
        ids = (end_id, form.vocab.ids[-1], *(form.marker_ids or ()), *(form.words or ()))
        self.size = len(tokenizer) if self._has_text else 1 + max(ids)
        self._tokens = _tokens(tokenizer if self._has_text else None, self.size, end_id)
        self._start = _compiled(self._tokens, lark_grammar(form, in_order=False))
        self._rows: dict[int, tuple[list[int], Any]] = {}

    def after(self, row: int, answer: Sequence[int]) -> tuple[Any, bool]:
        """Return a matcher after `answer`, up to its end or a wrong token, and whether it is after all of it."""
        tokens, matcher = self._rows.setdefault(row, ([], self._start.deep_copy()))
        shared = shared_length(tokens, answer)
        if shared < len(tokens):
            matcher.rollback(len(tokens) - shared)
            del tokens[shared:]
        for token in answer[shared:]:
            if matcher.is_stopped() or not matcher.try_consume_tokens([token]):
                return matcher, False
            tokens.append(token)
        return matcher, True

    def forced(self, matcher: Any) -> list[int]:
        """Return the tokens that follow without a choice.

        llguidance holds the last token of forced text back, since a longer one could take its place. It is returned
        here, as the tokenizer would write it.
        """
        if self._has_text:
            return list(self._tokens.tokenize_bytes(matcher.compute_ff_bytes()))
        return list(matcher.compute_ff_tokens())
