"""Applies the grammar for servers within this process: a `LogitsProcessor` over llguidance, for any answer style."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any

import torch
from transformers import LogitsProcessor

from coord_trainer.answers.grammar.boxes import BoxRules
from coord_trainer.answers.grammar.served import AnswerForm, lark_grammar


class MatchedGrammar(LogitsProcessor):
    """Allows the tokens that the grammar of `lark_grammar` allows, and no second object with the same name and shape.

    A polygon in JSON can still be generated twice, since no single token ends every polygon.

    Unlike `CoordGrammar` it enforces no length limit; the number of objects bounds the answer.

    Args:
        tokenizer: a fast one
        form: how answers are written
        prompt_length: tokens in front of the answer (the padded prompt's length)
    """

    def __init__(self, tokenizer: Any, form: AnswerForm, *, prompt_length: int) -> None:
        import llguidance
        import llguidance.hf

        tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=len(tokenizer))
        self._start = llguidance.LLMatcher(tokens, llguidance.grammar_from("lark", lark_grammar(form)))
        self._size, self._end, self._prompt_length = len(tokenizer), tokenizer.eos_token_id, prompt_length
        self._rows: dict[int, tuple[list[int], Any]] = {}
        markers = frozenset(form.marker_ids or ())

        def name_of(between: tuple[int, ...]) -> Hashable:
            if not form.as_json:
                return tokenizer.decode([token for token in between if token not in markers])
            _, key, rest = tokenizer.decode(between).partition('{"desc": ')
            return json.JSONDecoder().raw_decode(rest)[0] if key else None

        fixed = form.geometry.fixed
        closing = None if fixed or form.marker_ids is None else form.marker_ids[-1]
        self._shapes = BoxRules(form.vocab, name_of, form.geometry, closing)
        self._restricts = fixed or closing is not None
        self._coordinates = form.vocab.ids

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Return scores [B, V] with -inf at every token that the grammar rules out; see `CoordGrammar`."""
        answers = dict(enumerate(input_ids[:, self._prompt_length :].tolist()))
        return scores.masked_fill(~self.allowed(answers, scores.shape[1]).to(scores.device), -torch.inf)

    def allowed(self, answers: Mapping[int, list[int]], size: int) -> torch.Tensor:
        """Return which tokens may follow answers, as a boolean mask [R, V] on the CPU; see `CoordGrammar.allowed`."""
        import llguidance.numpy  # llguidance.torch compiles a kernel where it is imported, which takes seconds

        for row, answer in answers.items():
            self._rows[row] = self._matcher_after(row, answer)
        packed_RW = llguidance.numpy.allocate_token_bitmask(len(answers), self._size)
        for place, row in enumerate(answers):
            matcher = self._rows[row][1]
            if not matcher.is_stopped():
                llguidance.numpy.fill_next_token_bitmask(matcher, packed_RW, place)
        bits_RW = (torch.from_numpy(packed_RW)[..., None] >> torch.arange(32)) & 1
        allowed_RV = torch.zeros(len(answers), size, dtype=torch.bool)
        allowed_RV[:, : self._size] = bits_RW.flatten(1)[:, : self._size].bool()
        in_shapes = {}
        for place, (row, answer) in enumerate(answers.items()):
            if self._rows[row][1].is_stopped():
                allowed_RV[place] = torch.arange(size) == self._end
            elif self._restricts and allowed_RV[place, self._coordinates.start : self._coordinates.stop].any():
                in_shapes[place] = self._shapes.read(answer, row)
        self._shapes.restrict(allowed_RV, in_shapes)
        return allowed_RV

    def _matcher_after(self, row: int, answer: list[int]) -> tuple[list[int], Any]:
        """Return a matcher that has consumed `answer`: the row's own if `answer` extends its tokens, else a new one."""
        before, matcher = self._rows.get(row, ([], None))
        if matcher is None or answer[: len(before)] != before:
            before, matcher = [], self._start.deep_copy()
        for token in answer[len(before) :]:
            if not matcher.is_stopped():  # what follows the end of the turn is padding
                matcher.consume_token(token)
        return list(answer), matcher
