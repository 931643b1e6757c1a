"""Opens a run that trains by rewards for sampled answers, as `open_run` opens one that trains by losses."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from coord_trainer.answers.generate import grammar_of
from coord_trainer.answers.token_limit import token_limit
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import is_first
from coord_trainer.data.samples import Samples
from coord_trainer.reward.judge import BoxReward
from coord_trainer.reward.samples import RewardSamples
from coord_trainer.swift.open_run import OpenRun

ANSWERS = "answers.jsonl"
"""The file of a run folder that lists sampled answers with their rewards."""


class OpenRewards(OpenRun):
    """A loaded model, ready to sample answers and to train by their rewards."""

    samples: ClassVar[type[Samples]] = RewardSamples
    has_losses: ClassVar[bool] = False
    command: ClassVar[str] = "reward"

    @classmethod
    def open_pipeline(cls, config: RunConfig, arguments: dict[str, Any], without_weights: bool) -> Any:
        """Return ms-swift's pipeline of GRPO with these arguments."""
        from swift.trainers import TrainerFactory

        from coord_trainer.swift.grpo import CoordGrpo, CoordRlhf
        from coord_trainer.swift.pipeline import open_pipeline

        settings = config.reward
        TrainerFactory.TRAINER_MAPPING["grpo"] = f"{CoordGrpo.__module__}.{CoordGrpo.__name__}"
        of_rewards = {
            "rlhf_type": "grpo",
            "reward_funcs": [],
            "num_generations": settings.answers,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "top_k": -1,
            "beta": settings.beta,
            "epsilon": settings.clip,
            "use_vllm": False,
        }
        pipeline = open_pipeline({**arguments, **of_rewards}, without_weights, CoordRlhf)
        pipeline.adapter = settings.adapter
        return pipeline

    def parts(self, samples: Samples, **shared: Any) -> Any:
        """Return what the run passes to the trainer of rewards; `shared` is what all trainers take."""
        from coord_trainer.swift.grpo import RewardParts

        config, tokenizer = self.config, self.processor.tokenizer
        words = {word for images in samples.mixture.image_sets for word in images.words}
        limit = config.reward.max_new_tokens or config.evaluation.max_new_tokens
        limit = limit or token_limit(config, tokenizer, words)
        self.pipeline.args.training_args.max_completion_length = limit
        grammar = None
        if config.reward.grammar != "none":
            grammar = partial(
                grammar_of, tokenizer, config.data, config.reward.grammar, max_new_tokens=limit, names=words
            )
        return RewardParts(judge=BoxReward(config, self._answers_file()), grammar=grammar, **shared)

    def _answers_file(self) -> Path | None:
        return self.folder / ANSWERS if is_first() and self.config.reward.logged else None
