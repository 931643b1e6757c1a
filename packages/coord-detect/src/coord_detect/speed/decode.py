"""Drafts several tokens of each answer, and verifies them in one forward pass.

A pass is given the last token of an answer and the drafted ones behind it. Its logits at each of them are those that
plain decoding would have computed, as long as all tokens before are right. So drafted tokens are accepted up to the
first that is not the likeliest (under the grammar, if there is one), in whose place the likeliest is taken: the answer
is that of plain greedy decoding, token for token, up to ties within the rounding error of the logits.

The forced tokens of answers draft: markers, punctuation, names with one continuation. This is speculative decoding
(Leviathan et al. 2023, https://arxiv.org/abs/2211.17192) without a draft model.

Shapes: B rows, W tokens of a pass, N places of tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from coord_codec import CoordVocab
from coord_detect.grammar.boxes import moved
from coord_detect.model.token_statistics import Unforced, read_statistics, token_statistics
from coord_detect.speed.forced import LONGEST_DRAFT, ForcedTokens
from coord_detect.speed.passes import Passes


class Grammar(Protocol):
    """Says which tokens may follow answers."""

    def allowed(self, answers: Sequence[tuple[int, list[int]]], size: int, device: torch.device) -> torch.Tensor:
        """Return the mask [N, V] of the tokens that may follow each of the numbered answers, made on the device."""


@dataclass(frozen=True)
class Rules:
    """When answers end, at `end_id` or as long as they may be, and which of their tokens are coordinates."""

    end_id: int
    max_new_tokens: int
    vocab: CoordVocab


@dataclass
class _Row:
    number: int
    tokens: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    done: bool = False


@dataclass(frozen=True)
class Decoded:
    """The tokens of each answer, its end included, their statistics by name, and the number of passes."""

    answers: list[list[int]]
    statistics: list[dict[str, list[Any]]]
    passes: int


def decode(
    passes: Passes,
    inputs: Any,
    forced: ForcedTokens,
    rules: Rules,
    grammar: Grammar | None = None,
    unforced: Unforced | None = None,
) -> Decoded:
    """Return the greedy answers to prompts, which are padded on the left.

    `grammar` restricts them; they are scored by that of `unforced`, if given.
    """
    first = forced.draft([])
    passes.begin(inputs, first, rules.max_new_tokens + LONGEST_DRAFT)
    rows = [_Row(number, drafted=first) for number in range(len(inputs["input_ids"]))]
    verifier = _Verifier(forced, rules, grammar, len(rows), unforced)
    present, logits_BWV = rows, passes.logits_BWV
    while True:
        verifier.verify(present, logits_BWV)
        if all(row.done for row in present):
            break
        active = [place for place, row in enumerate(present) if not row.done]
        verifier.draft(present)
        if 2 * len(active) <= len(present):  # a pass costs as much for answers that have ended
            if passes.fixed_shapes:  # halves, so that few numbers of rows are captured
                ended = [place for place, row in enumerate(present) if row.done]
                active = sorted([*active, *ended[: (len(present) + 1) // 2 - len(active)]])
            passes.keep(active)
            present = [present[place] for place in active]
        starts = [passes.prompt_length + len(row.tokens) - 1 for row in present]
        tokens = [[row.tokens[-1], *row.drafted] for row in present]
        logits_BWV = passes(starts, tokens)
    return Decoded([row.tokens for row in rows], verifier.read(), passes.count)


class _Verifier:
    def __init__(
        self,
        forced: ForcedTokens,
        rules: Rules,
        grammar: Grammar | None,
        answers: int,
        unforced: Unforced | None = None,
    ) -> None:
        self._forced, self._rules, self._grammar, self._unforced = forced, rules, grammar, unforced
        self._owners: list[int] = []
        self._recorded: list[dict[str, torch.Tensor]] = []
        self._answers = answers

    def verify(self, rows: Sequence[_Row], logits_BWV: torch.Tensor) -> None:
        """Extend each answer by its accepted drafted tokens and the token behind them.

        What may follow each draft is found out while the device still works on the pass, and the likeliest tokens are
        read at once.
        """
        places, answers = [], []
        for at, row in enumerate(rows):
            for depth in range(0 if row.done else 1 + len(row.drafted)):
                places.append((at, depth))
                answers.append((row.number, [*row.tokens, *row.drafted[:depth]]))
        if not places:
            return
        at_N, depth_N = moved(places, logits_BWV.device).T
        raw_NV, allowed_NV = logits_BWV[at_N, depth_N], None
        if self._grammar is not None:
            allowed_NV = self._grammar.allowed(answers, raw_NV.shape[1], raw_NV.device)
        likeliest = dict(zip(places, _under(allowed_NV, raw_NV).argmax(dim=1).tolist(), strict=True))
        number_of, taken = {place: number for number, place in enumerate(places)}, []
        for at, row in enumerate(rows):
            for depth in range(0 if row.done else 1 + len(row.drafted)):
                token = likeliest[at, depth]
                taken.append((number_of[at, depth], token))
                self._extend(row, token)
                if row.done or depth == len(row.drafted) or row.drafted[depth] != token:
                    break
        number_N, token_N = moved(taken, logits_BWV.device).T
        raw_NV = raw_NV[number_N].float()
        if allowed_NV is not None:
            allowed_NV = allowed_NV[number_N]
        if self._unforced is not None:
            (without,), of_taken = self._unforced, [answers[number] for number, _ in taken]
            allowed_NV = None if without is None else without.allowed(of_taken, raw_NV.shape[1], raw_NV.device)
        scored_NV = _under(allowed_NV, raw_NV)
        self._recorded.append(
            token_statistics(raw_NV, scored_NV, token_N, self._rules.vocab, self._unforced is not None)
        )

    def _extend(self, row: _Row, token: int) -> None:
        self._owners.append(row.number)
        row.tokens.append(token)
        row.done = token == self._rules.end_id or len(row.tokens) >= self._rules.max_new_tokens

    def draft(self, rows: Sequence[_Row]) -> None:
        """Set the drafted tokens of the next pass."""
        for row in rows:
            if not row.done:
                row.drafted = self._forced.draft(row.tokens, row.number)

    def read(self) -> list[dict[str, list[Any]]]:
        """Return the statistics of each answer by token, read from the device at once."""
        joined = {name: torch.cat([part[name] for part in self._recorded]) for name in self._recorded[0]}
        found: list[dict[str, list[Any]]] = [{name: [] for name in joined} for _ in range(self._answers)]
        for name, values in read_statistics(joined).items():
            for owner, value in zip(self._owners, values, strict=True):
                found[owner][name].append(value)
        return found


def _under(allowed_NV: torch.Tensor | None, logits_NV: torch.Tensor) -> torch.Tensor:
    """Return the logits under a grammar."""
    return logits_NV if allowed_NV is None else logits_NV.masked_fill(~allowed_NV, -torch.inf)
