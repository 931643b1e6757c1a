"""What is recorded of every generated token: its log-probability, and the distribution of a coordinate.

The [T, V] logits of an answer are never kept: a few statistics are computed from them at each step.

Shapes: B tokens that are generated at once, V vocabulary, Q quantiles.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessor

from coord_codec import CoordVocab
from coord_trainer.model.coordinates import coordinate_statistics

STATISTICS = ("log_p", "expected", "spread", "mass", "quantiles")
"""The statistics of a token; all but the first are those of a coordinate."""


class StepRecorder(LogitsProcessor):
    """Records statistics of every step of a greedy generation; has to be the last logits processor.

    It applies the grammar itself, so that it sees the logits both before and after the grammar.

    Args:
        vocab: the coordinate tokens; None records `log_p` alone
        grammar: applied first; `log_p` is then normalised over the tokens that it allows

    Attributes:
        log_p: per step [B], log-probability of the generated token.
        expected: per step [B], expectation of the coordinate in [0, 1], softmax over the K tokens alone.
        spread: per step [B], standard deviation of that coordinate in [0, 1].
        quantiles: per step [B, 7], seven quantiles of the coordinate in [0, 1] (`QUANTILE_LEVELS`).
        mass: per step [B], total probability of all coordinate tokens before the grammar; where it is small,
            the model would have generated another kind of token.
    """

    def __init__(self, vocab: CoordVocab | None, grammar: LogitsProcessor | None = None) -> None:
        self._vocab = vocab
        self._grammar = grammar
        self.log_p, self.expected, self.spread, self.mass, self.quantiles = ([] for _ in STATISTICS)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Record the step and return the logits [B, V] whose argmax is the next token."""
        raw_BV = scores.float()
        logits_BV = raw_BV if self._grammar is None else self._grammar(input_ids, raw_BV)
        next_B = logits_BV.argmax(dim=1)
        found = token_statistics(raw_BV, logits_BV, next_B, self._vocab)
        for name, values in found.items():
            getattr(self, name).append(values)
        return scores if self._grammar is None else logits_BV

    def read(self) -> list[dict[str, list[Any]]]:
        """Return the statistics of each answer by token, read from the device at once.

        Example:
            >>> recorder = StepRecorder(None)
            >>> _ = recorder(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 4))
            >>> recorder.read()  # log 1/4
            [{'log_p': [-1.3862943649291992]}]
        """
        recorded = {name: torch.stack(steps) for name in STATISTICS if (steps := getattr(self, name))}
        read = read_statistics(recorded)
        answers = len(self.log_p[0]) if self.log_p else 0
        return [{name: [step[row] for step in steps] for name, steps in read.items()} for row in range(answers)]


def token_statistics(
    raw_BV: torch.Tensor, scored_BV: torch.Tensor, token_B: torch.Tensor, vocab: CoordVocab | None
) -> dict[str, torch.Tensor]:
    """Return the statistics of generated tokens by name, see `StepRecorder`: [B], quantiles [B, Q].

    Args:
        raw_BV: the logits before any grammar
        scored_BV: the logits over which the probability of the token is normalised
        token_B: the generated tokens
        vocab: the coordinate tokens; None for `log_p` alone
    """
    found = {"log_p": scored_BV.gather(1, token_B[:, None])[:, 0] - scored_BV.logsumexp(dim=1)}
    if vocab is None:
        return found
    return found | coordinate_statistics(raw_BV, vocab)


def read_statistics(recorded: dict[str, torch.Tensor]) -> dict[str, list[Any]]:
    """Return statistics as lists, read from the device at once; all have the same shape, quantiles one more axis."""
    if not recorded:
        return {}
    columns = [values if name == "quantiles" else values[..., None] for name, values in recorded.items()]
    parts = torch.cat(columns, dim=-1).cpu().split([column.shape[-1] for column in columns], dim=-1)
    pairs = zip(recorded, parts, strict=True)
    return {name: (part if name == "quantiles" else part[..., 0]).tolist() for name, part in pairs}
