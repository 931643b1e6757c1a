"""Drafts several tokens of each answer, and verifies them in one forward pass.

A pass is given the last token of an answer and the drafted ones behind it. Its logits at each of them are those that
plain decoding would have computed, as long as all tokens before are right. So drafted tokens are accepted up to the
first that is not the likeliest (under the grammar, if there is one), in whose place the likeliest is taken: the answer
is that of plain greedy decoding, token for token, up to ties within the rounding error of the logits.

Three things draft: the forced tokens of answers (markers, punctuation, names with one continuation), the draft
embeddings of the model, which answer with coordinates 2 to n of a shape while the first is not known yet, and behind a
rejected coordinate the coordinates that the verifying pass itself found likeliest.

Shapes: B rows, W tokens of a pass, N places of tokens, V vocabulary, S draft embeddings, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from coord_trainer.answers.grammar.boxes import moved
from coord_trainer.answers.speed.forced import LONGEST_DRAFT, ForcedTokens, Place
from coord_trainer.answers.speed.passes import Passes
from coord_trainer.model.token_statistics import read_statistics, token_statistics


class Grammar(Protocol):
    """Says which tokens may follow answers."""

    def allowed(self, answers: Sequence[tuple[int, list[int]]], size: int, device: torch.device) -> torch.Tensor:
        """Return the mask [N, V] of the tokens that may follow each of the numbered answers, made on the device."""


@dataclass(frozen=True)
class Rules:
    """When answers end and which drafted tokens are accepted.

    Attributes:
        end_id: the token that ends an answer
        max_new_tokens: the longest answer
        tolerance: a drafted coordinate is also accepted, as the likeliest one, if the likeliest is at most this many
            bins away from it, although the coordinates behind it were verified with the draft in its place; 0 accepts
            only equal ones
        drafted_rows: the most answers of a pass with draft embeddings; None for any number
    """

    end_id: int
    max_new_tokens: int
    tolerance: int = 0
    drafted_rows: int | None = None


@dataclass
class _Row:
    number: int
    tokens: list[int] = field(default_factory=list)
    place: Place = field(default_factory=Place)
    drafted: list[int] = field(default_factory=list)
    asks: bool = False
    """Whether the draft embeddings follow the drafted tokens in the pass."""
    accepted: int = 0
    done: bool = False


@dataclass(frozen=True)
class Decoded:
    """The answers to a batch.

    Attributes:
        answers: the tokens of each, with the end if it was reached
        statistics: of each token, by name; see `StepRecorder`
        passes: number of forward passes behind the prompt
        without_drafts: those in which the draft embeddings were left out for `Rules.drafted_rows`
    """

    answers: list[list[int]]
    statistics: list[dict[str, list[Any]]]
    passes: int
    without_drafts: int = 0


def decode(
    passes: Passes,
    inputs: Any,
    forced: ForcedTokens,
    rules: Rules,
    grammar: Grammar | None = None,
    drafts_SH: torch.Tensor | None = None,
) -> Decoded:
    """Return the greedy answers to a batch of prompts.

    Args:
        passes: of the model, those of an earlier batch or new ones
        inputs: of the prompts, padded on the left
        forced: the forced tokens of the answers
        rules: when answers end and which drafted tokens are accepted
        grammar: restricts the answers; None for none
        drafts_SH: the draft embeddings; None drafts no coordinates from them
    """
    first, _ = forced.draft(Place())
    widest = 2 * LONGEST_DRAFT + (0 if drafts_SH is None else len(drafts_SH))
    passes.begin(inputs, first, rules.max_new_tokens + widest)
    rows = [_Row(number, drafted=first) for number in range(len(inputs["input_ids"]))]
    verifier = _Verifier(forced, rules, grammar, len(rows))
    present, logits_BWV = rows, passes.logits_BWV
    without_drafts = 0
    while True:
        verifier.verify(present, logits_BWV)
        if all(row.done for row in present):
            break
        active = [place for place, row in enumerate(present) if not row.done]
        pays = rules.drafted_rows is None or len(active) <= rules.drafted_rows
        without_drafts += drafts_SH is not None and not pays
        verifier.draft(present, len(drafts_SH) if drafts_SH is not None and pays else 0)
        if 2 * len(active) <= len(present):  # a pass costs as much for answers that have ended
            if passes.fixed_shapes:  # halves, so that few numbers of rows are captured
                ended = [place for place, row in enumerate(present) if row.done]
                active = sorted([*active, *ended[: (len(present) + 1) // 2 - len(active)]])
            passes.keep(active)
            present = [present[place] for place in active]
        starts = [passes.prompt_length + len(row.tokens) - 1 for row in present]
        tokens = [[row.tokens[-1], *row.drafted] for row in present]
        asked = drafts_SH if any(row.asks for row in present) else None
        logits_BWV = passes(starts, tokens, asked, forced.stride)
    return Decoded([row.tokens for row in rows], verifier.read(), passes.count, without_drafts)


class _Verifier:
    def __init__(self, forced: ForcedTokens, rules: Rules, grammar: Grammar | None, answers: int) -> None:
        self._forced, self._rules, self._grammar = forced, rules, grammar
        self._owners: list[int] = []
        self._recorded: list[dict[str, torch.Tensor]] = []
        self._answers = answers
        self._coordinates: list[list[int]] = []
        """The likeliest coordinate at each place of the pass last verified [B, W]."""

    def verify(self, rows: Sequence[_Row], logits_BWV: torch.Tensor) -> None:
        """Extend each answer by its accepted drafted tokens and the token behind them.

        What may follow each draft is found out while the device still works on the pass, and the likeliest tokens are
        read at once; with a grammar again behind a draft that was accepted in place of another token.
        """
        ids = self._forced.vocab.ids
        coord_BW = logits_BWV[..., ids.start : ids.stop].argmax(dim=2)
        going = [(at, row, 0) for at, row in enumerate(rows) if not row.done]
        while going:
            places, answers = [], []
            for at, row, first in going:
                for depth in range(first, 1 + len(row.drafted)):
                    places.append((at, depth))
                    answers.append((row.number, [*row.tokens, *row.drafted[first:depth]]))
            at_N, depth_N = moved(places, logits_BWV.device).T
            raw_NV, allowed_NV = logits_BWV[at_N, depth_N], None
            if self._grammar is not None:
                allowed_NV = self._grammar.allowed(answers, raw_NV.shape[1], raw_NV.device)
            likeliest_N = _under(allowed_NV, raw_NV).argmax(dim=1)
            read = torch.cat([coord_BW.flatten(), likeliest_N]).cpu()
            self._coordinates = read[: coord_BW.numel()].view(coord_BW.shape).tolist()
            likeliest = read[coord_BW.numel() :].tolist()
            number_of, taken, still = {place: number for number, place in enumerate(places)}, [], []
            for at, row, first in going:
                for depth in range(first, 1 + len(row.drafted)):
                    token = likeliest[number_of[at, depth]]
                    taken.append((number_of[at, depth], token))
                    self._extend(row, token, depth)
                    if row.done or depth == len(row.drafted) or not self._accepts(row.drafted[depth], token):
                        break
                    if self._grammar is not None and token != row.drafted[depth]:
                        still.append((at, row, depth + 1))
                        break
            number_N, token_N = moved(taken, logits_BWV.device).T
            raw_NV = raw_NV[number_N].float()
            scored_NV = _under(None if allowed_NV is None else allowed_NV[number_N], raw_NV)
            self._recorded.append(token_statistics(raw_NV, scored_NV, token_N, self._forced.vocab))
            going = still

    def _extend(self, row: _Row, token: int, accepted: int) -> None:
        self._owners.append(row.number)
        row.tokens.append(token)
        row.place = self._forced.step(row.place, token)
        row.accepted = accepted
        row.done = token == self._rules.end_id or len(row.tokens) >= self._rules.max_new_tokens

    def _accepts(self, drafted: int, likeliest: int) -> bool:
        if drafted == likeliest:
            return True
        coordinates = self._forced.vocab.ids
        both = drafted in coordinates and likeliest in coordinates
        return both and abs(drafted - likeliest) <= self._rules.tolerance

    def draft(self, rows: Sequence[_Row], drafts: int) -> None:
        """Set the drafted tokens of the next pass.

        Args:
            rows: of the pass
            drafts: number of draft embeddings of the model
        """
        vocab = self._forced.vocab
        for row, likeliest in zip(rows, self._coordinates, strict=True):
            if row.done:
                continue
            where: Sequence[int] = ()
            if row.place.sides and row.place.part in ("side", "between"):
                if row.asks and row.accepted == len(row.drafted) and row.place.sides == 1:
                    where = [1 + len(row.drafted) + draft for draft in range(drafts)]
                else:
                    # A rejected draft is at `accepted`; the pass has also found what follows each one behind it.
                    behind = range(row.accepted + 1, len(row.drafted))
                    where = [depth for depth in behind if row.drafted[depth] in vocab.ids]
            row.drafted, begins = self._forced.draft(row.place, [vocab.first_id + likeliest[depth] for depth in where])
            row.asks = bool(drafts) and begins

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
