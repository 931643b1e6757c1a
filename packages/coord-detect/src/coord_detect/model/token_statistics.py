"""What is recorded of every generated token: its log-probability, and the distribution of a coordinate.

The [T, V] logits of an answer are never kept: a few statistics are computed from them at each step.

Shapes: B tokens that are generated at once, V vocabulary, Q quantiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers import LogitsProcessor

from coord_codec import CoordVocab
from coord_detect.model.coordinates import coordinate_statistics


class Unforced(NamedTuple):
    """The grammar, None for none, by which tokens are scored if another one forces them."""

    grammar: Any = None


class StepRecorder(LogitsProcessor):
    """Records statistics of every step of a greedy generation; has to be the last logits processor.

    It applies the grammar itself, so that it sees the logits both before and after the grammar.

    Args:
        vocab: the coordinate tokens; None records `log_p` alone
        grammar: applied first; `log_p` is then normalised over the tokens that it allows
        unforced: `log_p` is normalised over the tokens that this one allows, in place of `grammar`

    Attributes:
        steps: of each step the statistics by name, see `token_statistics`
    """

    def __init__(self, vocab: CoordVocab | None, grammar: Any = None, unforced: Unforced | None = None) -> None:
        self._vocab = vocab
        self._grammar, self._unforced = grammar, unforced
        self.steps: list[dict[str, torch.Tensor]] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        """Record the step and return the logits [B, V] whose argmax is the next token."""
        raw_BV = scores.float()
        logits_BV = scored_BV = raw_BV if self._grammar is None else self._grammar(input_ids, raw_BV)
        next_B = logits_BV.argmax(dim=1)
        if self._unforced is not None:
            (without,) = self._unforced
            scored_BV = raw_BV if without is None else without(input_ids, raw_BV)
        self.steps.append(token_statistics(raw_BV, scored_BV, next_B, self._vocab, self._unforced is not None))
        return scores if self._grammar is None else logits_BV

    def read(self) -> list[dict[str, list[Any]]]:
        """Return the statistics of each answer by token, read from the device at once.

        Example:
            >>> recorder = StepRecorder(None)
            >>> _ = recorder(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 4))
            >>> recorder.read()  # log 1/4
            [{'log_p': [-1.3862943649291992]}]
        """
        if not self.steps:
            return []
        read = read_statistics({name: torch.stack([step[name] for step in self.steps]) for name in self.steps[0]})
        return [
            {name: [step[row] for step in steps] for name, steps in read.items()}
            for row in range(len(self.steps[0]["log_p"]))
        ]


def token_statistics(
    raw_BV: torch.Tensor, scored_BV: torch.Tensor, token_B: torch.Tensor, vocab: CoordVocab | None, ends: bool = False
) -> dict[str, torch.Tensor]:
    """Return the statistics of generated tokens by name: [B], quantiles [B, Q].

    `log_p` is the log-probability of the token by `scored_BV`; with `ends` `log_coord` is that of any coordinate token,
    which ends a name where no marker does. The others of a coordinate are in [0, 1] and of the
    softmax over the coordinate tokens alone: `expected`, `spread` and `quantiles`; `mass` is the probability
    of all of these by `raw_BV`, before the grammar. Where it is small, the model would have generated another
    kind of token.
    """
    found = {"log_p": scored_BV.gather(1, token_B[:, None])[:, 0] - scored_BV.logsumexp(dim=1)}
    if vocab is None:
        return found
    if ends:
        coord_BK = scored_BV[:, vocab.first_id : vocab.first_id + len(vocab.ids)]
        found["log_coord"] = coord_BK.logsumexp(dim=1) - scored_BV.logsumexp(dim=1)
    return found | coordinate_statistics(raw_BV, vocab)


def read_statistics(recorded: dict[str, torch.Tensor]) -> dict[str, list[Any]]:
    """Return statistics as lists, read from the device at once; all have the same shape, quantiles one more axis."""
    columns = [values if name == "quantiles" else values[..., None] for name, values in recorded.items()]
    parts = torch.cat(columns, dim=-1).cpu().split([column.shape[-1] for column in columns], dim=-1)
    pairs = zip(recorded, parts, strict=True)
    return {name: (part if name == "quantiles" else part[..., 0]).tolist() for name, part in pairs}
