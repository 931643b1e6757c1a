"""Probabilities taken from the logits as they pass by; the [T, V] logits of an answer are never kept.

Shapes: B answers, V vocabulary, K coordinate tokens.
"""

from __future__ import annotations

import torch
from transformers import LogitsProcessor

from coord_codec import CoordVocab


class StepRecorder(LogitsProcessor):
    """Reads every step of a greedy generation; put it last (a grammar goes inside, so that both sides are seen).

    Args:
        vocab: the coordinate tokens; None records `log_p` alone.
        grammar: applied first; `log_p` is then the probability among what it lets through.
        feed_expectation: where a coordinate would be said, say the bin nearest to the expectation instead.

    Attributes:
        log_p: per step [B], log-probability of the token that is said.
        expected: per step [B], expectation of the coordinate in [0, 1], softmax over the K tokens alone.
        spread: per step [B], standard deviation of that coordinate in [0, 1].
        mass: per step [B], probability of all coordinate tokens together before the grammar; where it is
            small the model would have said something else.
    """

    def __init__(
        self,
        vocab: CoordVocab | None,
        grammar: LogitsProcessor | None = None,
        feed_expectation: bool = False,
    ) -> None:
        self._vocab, self._grammar, self._feed = vocab, grammar, feed_expectation
        self.log_p: list[torch.Tensor] = []
        self.expected: list[torch.Tensor] = []
        self.spread: list[torch.Tensor] = []
        self.mass: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Record and return the logits [B, V] that the next token is the argmax of."""
        raw_BV = scores.float()
        logits_BV = raw_BV if self._grammar is None else self._grammar(input_ids, raw_BV)
        said_B = logits_BV.argmax(dim=1)
        if self._vocab is not None:
            mean_bin_B = self._read_coordinate(raw_BV, self._vocab)
            if self._feed:
                nearest_B = mean_bin_B.round().long() + self._vocab.first_id
                said_B = torch.where(self._vocab.mask(said_B), nearest_B, said_B)
        log_p_B = logits_BV.gather(1, said_B[:, None])[:, 0] - logits_BV.logsumexp(dim=1)
        self.log_p.append(log_p_B)
        if not self._feed:
            return scores if self._grammar is None else logits_BV
        return torch.full_like(logits_BV, -torch.inf).scatter(1, said_B[:, None], 0.0)

    def _read_coordinate(self, raw_BV: torch.Tensor, vocab: CoordVocab) -> torch.Tensor:
        """Note expectation, spread and mass; returns the expected bin [B]."""
        coord_BK = raw_BV[:, vocab.first_id : vocab.first_id + len(vocab.ids)]
        p_BK = coord_BK.softmax(dim=1)
        bins_K = torch.arange(p_BK.shape[1], device=p_BK.device, dtype=p_BK.dtype)
        mean_B = p_BK @ bins_K
        variance_B = (p_BK * (bins_K - mean_B[:, None]) ** 2).sum(dim=1)
        self.expected.append(mean_B / vocab.grid.scale)
        self.spread.append(variance_B.sqrt() / vocab.grid.scale)
        self.mass.append((coord_BK.logsumexp(dim=1) - raw_BV.logsumexp(dim=1)).exp())
        return mean_B
