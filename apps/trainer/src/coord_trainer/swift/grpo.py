"""ms-swift's GRPO (Shao et al. 2024) with a run's data, reward, adapter, checkpoints and scores of answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from swift.pipelines.train.rlhf import SwiftRLHF
from swift.rlhf_trainers import GRPOTrainer
from torch.utils.data import Dataset
from transformers import LogitsProcessorList, SuppressTokensLogitsProcessor

from coord_codec import InputError
from coord_trainer.reward.judge import BoxReward
from coord_trainer.swift.trainer import RunParts, RunTrainer


@dataclass(frozen=True, kw_only=True)
class RewardParts(RunParts):
    """What a run passes to the trainer of rewards.

    Attributes:
        judge: the reward function
        grammar: makes the grammar of sampled answers for a prompt's length; None for none
    """

    judge: BoxReward
    grammar: Callable[[int], Any] | None = None


class CoordGrpo(RunTrainer, GRPOTrainer):
    """swift's trainer of rewards for sampled answers."""

    def __init__(self, *args, coord_parts: RewardParts, **kwargs) -> None:
        self._parts = coord_parts
        self.offset_config = coord_parts.offset
        super().__init__(*args, **kwargs)
        self.engine.template.generate = self._sample
        config = self.model.config
        names = ("image_token_id", "video_token_id", "vision_start_token_id")
        found = (getattr(config, name, None) for name in names)
        self._placeholders = [token for token in found if token is not None]
        self._join_run()

    def _sample(self, model, *args, **kwargs):
        """Sample answers without placeholders of images, of which there are none, and within the grammar.

        The loss is of the model without these limits, whatever they exclude.
        """
        ids_BT = kwargs["input_ids"]
        limits = [SuppressTokensLogitsProcessor(self._placeholders, device=ids_BT.device)]
        if self._parts.grammar is not None:
            limits.append(self._parts.grammar(ids_BT.shape[1]))
        processors = LogitsProcessorList([*limits, *kwargs.pop("logits_processor", ())])
        return self.template.generate(model, *args, logits_processor=processors, **kwargs)

    def _score_completions(self, samples):
        sources = torch.tensor([sample.extra["source"] for sample in samples], dtype=torch.long)
        self._seen_S += torch.bincount(sources, minlength=len(self._seen_S))
        return super()._score_completions(samples)

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        """Add the means of the rewarded answers since the last log line."""
        if self.model.training:
            logs.update(self._parts.judge.means())
        super().log(logs, *args, **kwargs)


class CoordRlhf(SwiftRLHF):
    """swift's pipeline with our data sets; `parts` has to be set before `main()`."""

    parts: RewardParts
    datasets: Sequence[Dataset | None] = (None, None)
    adapter: Path | None = None

    def _prepare_dataset(self):
        return list(self.datasets)

    def _get_trainer_kwargs(self):
        return super()._get_trainer_kwargs() | {"coord_parts": self.parts, "reward_funcs": [self.parts.judge]}

    def prepare_model(self, args, model, **kwargs):
        """Put the adapter on the model as for losses, with the weights of the one that training continues."""
        model = super().prepare_model(args, model, **kwargs)
        if self.adapter is not None:
            load_adapter_weights(model, self.adapter)
        return model


def load_adapter_weights(model: Any, adapter: Path) -> None:
    """Load the weights of an adapter on disk into the new one of a model.

    Raises:
        InputError: the two have other parts or sizes.
    """
    weights = load_file(adapter / "adapter_model.safetensors")
    settings = "training.target_modules, lora_rank and use_dora, and custom.coord_offset"
    expected = {name for name, _ in model.named_parameters() if ".default" in name}
    try:
        result = set_peft_model_state_dict(model, weights)
    except (RuntimeError, KeyError) as error:  # sizes of another adapter
        reason = " ".join(str(error).split())
        raise InputError(f"{adapter}: it does not fit {settings}: {reason:.300}") from None
    missing = sorted(expected & set(result.missing_keys))
    if missing or result.unexpected_keys:
        first = (missing or result.unexpected_keys)[0]
        kind = "lacks" if missing else "has also"
        raise InputError(f"{adapter}: it does not fit {settings}: it {kind} {first}; set them as it was trained")
