"""Probabilities taken from the logits as they pass by; the [T, V] logits of an answer are never kept."""

from __future__ import annotations

import torch
from transformers import LogitsProcessor

from coord_codec import CoordVocab


class StepRecorder(LogitsProcessor):
    """Per step and answer: log p of the greedy token and, where it is a coordinate, the expected bin."""

    def __init__(self, vocab: CoordVocab | None) -> None:
        self._vocab = vocab
        self.log_p: list[torch.Tensor] = []
        self.expected: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Record and return the logits [B, V] as they are."""
        logits_BV = scores.float()
        self.log_p.append(logits_BV.amax(dim=1) - logits_BV.logsumexp(dim=1))
        if self._vocab is not None:
            first, count = self._vocab.first_id, len(self._vocab.ids)
            p_BK = logits_BV[:, first : first + count].softmax(dim=1)
            bins_K = torch.arange(count, device=p_BK.device, dtype=p_BK.dtype)
            self.expected.append((p_BK @ bins_K) / self._vocab.grid.scale)
        return scores
