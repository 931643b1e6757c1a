"""Measures AP during training: a fixed subset of the scored images goes in, answers and their scores come out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from coord_codec import CoordVocab
from coord_trainer.answers.generate import predict
from coord_trainer.answers.room import answer_room
from coord_trainer.answers.score import headline, score_predictions
from coord_trainer.config.decoding import STRATEGIES
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.image_set import ImageSet
from coord_trainer.model.card import system_text
from coord_trainer.model.checkpoint import LoadedCheckpoint
from coord_trainer.model.packed_attention import attend_by_sample


class SubsetScorer:
    """Generates answers with the run's first decoding strategy, and scores them as the finished run is scored.

    Args:
        config: of the run
        images: the images scored after training; the subset is spread evenly over them
        processor: of the model
        vocab: the tokenizer's coordinate tokens
    """

    def __init__(self, config: RunConfig, images: ImageSet, processor: Any, vocab: CoordVocab | None) -> None:
        section = config.evaluation
        total = min(len(images), section.limit or len(images))
        count = min(total, section.ap_images)
        self.images = images.select([images.instances[i * total // count] for i in range(count)])
        self._config, self._strategy = config, STRATEGIES[section.readings[0]]
        self._max_new_tokens = section.max_new_tokens or answer_room(config, processor.tokenizer, images.words)
        used = vocab if config.custom.coord_tokens.enabled else None
        self._without_model = LoadedCheckpoint(None, processor, used, system_text(config))

    def answer(self, model: Any, rank: int = 0, ranks: int = 1) -> list[dict[str, Any]]:
        """Return the answers to every `ranks`-th image, beginning with image `rank`."""
        checkpoint = replace(self._without_model, model=model)
        share = range(rank, len(self.images), ranks)
        with _unpacked_attention(model, self._config):
            return list(predict(checkpoint, self._config, self.images, self._strategy, self._max_new_tokens, share))

    def score(self, answers: list[dict[str, Any]]) -> dict[str, float]:
        """Return AP and AP50 of the answers; see `headline`."""
        return headline(score_predictions(self._config, answers, self.images, self._strategy))


@contextmanager
def _unpacked_attention(model: Any, config: RunConfig) -> Iterator[None]:
    """Restore the usual attention while answers are generated, since that of training takes packed rows only."""
    packed = config.data.packing and config.model.attention == "sdpa"
    if packed:
        model.set_attn_implementation({"text_config": "sdpa"})
    try:
        yield
    finally:
        if packed:
            attend_by_sample(model)
