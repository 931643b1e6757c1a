"""Applies the grammar for servers within this process: a `LogitsProcessor` over llguidance, for any answer style."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from transformers import LogitsProcessor

from coord_detect.grammar.boxes import BoxRules, shared_length
from coord_detect.grammar.served import AnswerForm, lark_grammar


class MatchedGrammar(LogitsProcessor):
    """Allows the tokens that the grammar of `lark_grammar` allows, and no object twice.

    A polygon in JSON can still be generated twice, since no single token ends every polygon. Unlike
    `CoordGrammar` it enforces no length limit; the number of objects bounds the answer. It takes a fast
    tokenizer.
    """

    def __init__(self, tokenizer: Any, form: AnswerForm, *, prompt_length: int) -> None:
        import llguidance
        import llguidance.hf

        tokens = llguidance.hf.from_tokenizer(tokenizer, n_vocab=len(tokenizer))
        self._start = llguidance.LLMatcher(tokens, llguidance.grammar_from("lark", lark_grammar(form)))
        self._size, self._end, self._prompt_length = len(tokenizer), tokenizer.eos_token_id, prompt_length
        self._matched: dict[int, tuple[list[int], Any]] = {}
        markers = frozenset(form.marker_ids or ())

        def name_of(between: tuple[int, ...]) -> Hashable:
            if not form.as_json:
                text: str = tokenizer.decode([token for token in between if token not in markers])
                return text
            _, key, rest = tokenizer.decode(between).partition('{"desc": ')
            name: Hashable = json.JSONDecoder().raw_decode(rest)[0] if key else None
            return name

        fixed = form.geometry.fixed
        closing = None if fixed or form.marker_ids is None else form.marker_ids[-1]
        self._shapes = BoxRules(form.vocab, name_of, form.geometry, closing)
        self._restricts = fixed or closing is not None
        self._coordinates = form.vocab.ids

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores [B, V] with -inf at every token that the grammar rules out; see `CoordGrammar`."""
        answers = list(enumerate(input_ids[:, self._prompt_length :].tolist()))
        return scores.masked_fill(~self.allowed(answers, scores.shape[1], scores.device), -torch.inf)

    def allowed(self, answers: Sequence[tuple[int, list[int]]], size: int, device: torch.device) -> torch.Tensor:
        """Return which tokens may follow answers, as a boolean mask [N, V] on a device; see `CoordGrammar.allowed`."""
        import llguidance.numpy  # importing llguidance.torch loads torch's compiler, which takes seconds

        shape = llguidance.numpy.get_bitmask_shape(len(answers), self._size)
        packed_NW = torch.full(shape, -1, dtype=torch.int32, pin_memory=torch.cuda.is_available())
        coord_K = torch.arange(self._coordinates.start, self._coordinates.stop)
        ended, in_shapes = [], {}
        for place, (row, answer) in enumerate(answers):
            matcher, is_whole = self._matcher_after(row, answer)
            if matcher.is_stopped():
                ended.append(place)
            elif is_whole:
                llguidance.numpy.fill_next_token_bitmask(matcher, packed_NW.numpy(), place)
                if self._restricts and (packed_NW[place, coord_K // 32] >> coord_K % 32 & 1).any():
                    in_shapes[place] = self._shapes.read(answer, row)
        if ended:
            packed_NW[ended] = 0
            packed_NW[ended, self._end // 32] = torch.tensor(1, dtype=torch.int32) << self._end % 32
        bits_NW32 = packed_NW.to(device, non_blocking=True)[..., None] >> torch.arange(32, device=device) & 1
        allowed_NV = torch.zeros(len(answers), size, dtype=torch.bool, device=device)
        allowed_NV[:, : self._size] = bits_NW32.flatten(1)[:, : self._size].bool()
        self._shapes.restrict(allowed_NV, in_shapes)
        return allowed_NV

    def _matcher_after(self, row: int, answer: list[int]) -> tuple[Any, bool]:
        """Return a matcher after `answer`, up to its end or a wrong draft, and whether it is after all of it."""
        tokens, matcher = self._matched.setdefault(row, ([], self._start.deep_copy()))
        shared = shared_length(tokens, answer)
        if shared < len(tokens):
            matcher.rollback(len(tokens) - shared)
            del tokens[shared:]
        for token in answer[shared:]:
            if matcher.is_stopped() or not matcher.try_consume_tokens([token]):
                return matcher, False
            tokens.append(token)
        return matcher, True
