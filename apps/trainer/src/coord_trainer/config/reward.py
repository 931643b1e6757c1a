"""The section `reward`: how answers are sampled and rewarded by the command `reward`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from coord_trainer.config.base import Fraction, Section
from coord_trainer.config.rules import Rule
from coord_trainer.config.swift_arguments import shards_weights
from coord_trainer.console import world_size


class RewardSection(Section):
    """How answers are sampled and rewarded; used by the command `reward` alone."""

    kind: str | dict[str, float] = Field(
        "f1", description="what is rewarded: a kind of coord_eval.rewards, or weights of several such as {f1: 0.9, "
        "format: 0.1}"
    )  # fmt: skip
    answers: int = Field(8, ge=2, description="sampled answers to an image, which are compared with each other")
    temperature: PositiveFloat = Field(1.0, description="temperature at which answers are sampled")
    top_p: Fraction = Field(1.0, description="answers are sampled from the most probable tokens with this total")
    beta: float = Field(
        0.0, ge=0, description="weight of the divergence from the model that training starts from (KL); 0 for none"
    )
    clip: Fraction = Field(0.2, description="largest rewarded change of a token's probability in a step, relative")
    grammar: Literal["none", "markers", "names"] = Field(
        "none", description="grammar that sampled answers keep to, as in evaluation.decoding"
    )
    max_new_tokens: PositiveInt | None = Field(
        None, description="longest sampled answer in tokens; that of evaluation if not given"
    )
    logged: int = Field(8, ge=0, description="sampled answers of a step that answers.jsonl lists, with their rewards")
    adapter: Path | None = Field(
        None, description="adapter that training continues; set by the command if model.path names one"
    )


def _batch(config: Any) -> int:
    steps = config.training.get("gradient_accumulation_steps", 1)
    return config.training.get("per_device_train_batch_size", config.reward.answers) * steps * world_size()


REWARD_RULES = (
    Rule(
        lambda c: _batch(c) % c.reward.answers != 0,
        ("training.per_device_train_batch_size", "reward.answers"),
        "all answers to an image are of one step: the batch size times gradient_accumulation_steps times the number of "
        "ranks has to be a multiple of reward.answers",
    ),
    Rule(
        lambda c: shards_weights(c.training.get("deepspeed")),
        ("training.deepspeed",),
        "it shards the weights (stage 3), and sampling needs a complete model on each rank; use zero2",
    ),
    Rule(lambda c: not c.data.shape.is_box, ("data.geometry",), "rewards are of boxes; set data.geometry: box"),
    Rule(
        lambda c: bool(c.data.noise_objects),
        ("data.noise_objects",),
        "noise objects are no boxes to be rewarded; leave it out",
    ),
    Rule(lambda c: c.data.packing, ("data.packing",), "sampled answers are not packed; leave it out"),
    Rule(
        lambda c: any(not source.annotations for source in c.data.sources),
        ("data.sources",),
        "a conversation has no boxes to be rewarded for; name sources with annotations alone",
    ),
    Rule(
        lambda c: c.training.get("eval_strategy", "no") != "no",
        ("training.eval_strategy",),
        "there is no evaluation loss; leave it out, and set evaluation.ap_steps for AP during training",
    ),
    Rule(
        lambda c: c.training.get("truncation_strategy", "left") != "left",
        ("training.truncation_strategy",),
        "ms-swift samples answers to whole prompts only; leave it out",
    ),
    Rule(lambda c: c.run.gradient_norms, ("run.gradient_norms",), "rewards are no loss terms; leave it out"),
    Rule(
        lambda c: c.run.on_nan == "skip",
        ("run.on_nan",),
        "a loss that is not finite ends training by rewards; set run.on_nan: stop",
    ),
    Rule(lambda c: c.run.profile, ("run.profile",), "sampling is not profiled by part; leave it out"),
    Rule(
        lambda c: c.reward.adapter is not None and c.reward.beta > 0,
        ("reward.adapter", "reward.beta"),
        "the model without the adapter is not the one that training starts from; merge the adapter first (uv run "
        "apps/exporter merge), or set reward.beta: 0",
    ),
    Rule(
        lambda c: c.reward.adapter is not None and c.training.get("tuner_type") == "full",
        ("reward.adapter", "training.tuner_type"),
        "an adapter is continued as one; leave training.tuner_type out, or merge the adapter first (uv run "
        "apps/exporter merge)",
    ),
    Rule(
        lambda c: not c.custom.coord_tokens.enabled and c.reward.grammar != "none",
        ("reward.grammar", "custom.coord_tokens.enabled"),
        "the grammar is of coordinate tokens; set reward.grammar: none",
    ),
)
"""What the command `reward` cannot have."""
