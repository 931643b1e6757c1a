"""Drafts several tokens of each answer, and verifies them in one forward pass.

A pass is given the last token of an answer and the drafted ones behind it. Its logits at each of them are those that
plain decoding would have computed, as long as all tokens before are right. So drafted tokens are accepted up to the
first that is not the likeliest (under the grammar, if there is one), in whose place the likeliest is taken: the answer
is that of plain greedy decoding, token for token, up to ties within the rounding error of the logits.

Three things draft: the forced tokens of answers (markers, punctuation, names with one continuation), the draft
embeddings of the model, which answer with coordinates 2 to n of a shape while the first is not known yet, and behind a
rejected coordinate the coordinates that the verifying pass itself found likeliest.

Shapes: B rows, R of them, W tokens of a pass, N accepted tokens, V vocabulary, S draft embeddings, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from coord_trainer.answers.speed.forced import LONGEST_DRAFT, ForcedTokens, Place
from coord_trainer.answers.speed.passes import Passes
from coord_trainer.model.token_statistics import read_statistics, token_statistics


class Grammar(Protocol):
    """Says which tokens may follow answers."""

    def allowed(self, answers: Mapping[int, list[int]], size: int) -> torch.Tensor:
        """Return the mask [R, V] of the tokens that may follow each of the answers."""


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
        verifier.draft(present, logits_BWV, len(drafts_SH) if drafts_SH is not None and pays else 0)
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

    def verify(self, rows: Sequence[_Row], logits_BWV: torch.Tensor) -> None:
        """Extend each answer by its accepted drafted tokens and the token behind them."""
        free = None if self._grammar is not None else logits_BWV.argmax(dim=2).tolist()
        going = [(at, row) for at, row in enumerate(rows) if not row.done]
        taken: list[tuple[int, int, int]] = []  # row, depth and token of each accepted one
        masks: list[torch.Tensor] = []
        depth = 0
        while going:
            if free is not None:
                chosen = [free[at][depth] for at, _ in going]
            else:
                chosen = self._choose(going, logits_BWV[:, depth], masks)
            still = []
            for (at, row), token in zip(going, chosen, strict=True):
                self._owners.append(row.number)
                taken.append((at, depth, token))
                row.tokens.append(token)
                row.place = self._forced.step(row.place, token)
                row.accepted = depth
                row.done = token == self._rules.end_id or len(row.tokens) >= self._rules.max_new_tokens
                if not row.done and depth < len(row.drafted) and self._accepts(row.drafted[depth], token):
                    still.append((at, row))
            going, depth = still, depth + 1
        row_N, depth_N, token_N = torch.tensor(taken, device=logits_BWV.device).T
        self._record(logits_BWV[row_N, depth_N].float(), token_N, masks)

    def _choose(
        self, going: Sequence[tuple[int, _Row]], logits_BV: torch.Tensor, masks: list[torch.Tensor]
    ) -> list[int]:
        assert self._grammar is not None
        mask_RV = self._grammar.allowed({row.number: row.tokens for _, row in going}, logits_BV.shape[1])
        mask_RV = mask_RV.to(logits_BV.device, non_blocking=True)
        masks.append(mask_RV)
        if len(going) < len(logits_BV):
            logits_BV = logits_BV[[at for at, _ in going]]
        return logits_BV.float().masked_fill(~mask_RV, -torch.inf).argmax(dim=1).tolist()

    def _accepts(self, drafted: int, likeliest: int) -> bool:
        if drafted == likeliest:
            return True
        coordinates = self._forced.vocab.ids
        both = drafted in coordinates and likeliest in coordinates
        return both and abs(drafted - likeliest) <= self._rules.tolerance

    def _record(self, raw_NV: torch.Tensor, token_N: torch.Tensor, masks: list[torch.Tensor]) -> None:
        scored_NV = raw_NV
        if masks:
            scored_NV = raw_NV.masked_fill(~torch.cat(masks), -torch.inf)
        self._recorded.append(token_statistics(raw_NV, scored_NV, token_N, self._forced.vocab))

    def draft(self, rows: Sequence[_Row], logits_BWV: torch.Tensor, drafts: int) -> None:
        """Set the drafted tokens of the next pass.

        Args:
            rows: of the pass
            logits_BWV: what it returned
            drafts: number of draft embeddings of the model
        """
        vocab = self._forced.vocab
        likeliest: list[list[int]] | None = None
        for at, row in enumerate(rows):
            if row.done:
                continue
            coordinates: list[int] = []
            if row.place.sides and row.place.part in ("side", "between"):
                if row.asks and row.accepted == len(row.drafted) and row.place.sides == 1:
                    where = [1 + len(row.drafted) + draft for draft in range(drafts)]
                else:
                    # A rejected draft is at `accepted`; the pass has also found what follows each one behind it.
                    behind = range(row.accepted + 1, len(row.drafted))
                    where = [depth for depth in behind if row.drafted[depth] in vocab.ids]
                if where and likeliest is None:
                    coord_BWK = logits_BWV[..., vocab.first_id : vocab.first_id + len(vocab.ids)]
                    likeliest = coord_BWK.argmax(dim=2).tolist()
                if likeliest is not None:
                    coordinates = [vocab.first_id + likeliest[at][depth] for depth in where]
            row.drafted, begins = self._forced.draft(row.place, coordinates)
            row.asks = bool(drafts) and begins

    def read(self) -> list[dict[str, list[Any]]]:
        """Return the statistics of each answer by token, read from the device at once."""
        joined = {name: torch.cat([part[name] for part in self._recorded]) for name in self._recorded[0]}
        found: list[dict[str, list[Any]]] = [{name: [] for name in joined} for _ in range(self._answers)]
        for name, values in read_statistics(joined).items():
            for owner, value in zip(self._owners, values, strict=True):
                found[owner][name].append(value)
        return found
