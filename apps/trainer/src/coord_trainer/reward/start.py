"""Where reinforcement learning starts: a checkpoint, or an adapter on its base, with its own prompt and markers."""

from __future__ import annotations

from pathlib import Path

from coord_codec import InputError
from coord_codec.files import read_json
from coord_eval.rewards import REWARDS, reward_weights
from coord_trainer.checkpoints import locate_model
from coord_trainer.config.reward import REWARD_RULES
from coord_trainer.config.rules import first_contradiction
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import say


def find_start(config: RunConfig) -> Path:
    """Return the checkpoint or adapter that training starts from.

    Raises:
        InputError: `model.path` is not given, or is no checkpoint on disk.
    """
    if config.model.path is None:
        raise InputError(
            "model.path: rewards need a model that answers already: name a checkpoint or a run folder, for example "
            "model.path=runs/first-run"
        )
    return config.reward.adapter or locate_model(Path(config.model.path))


def base_of(adapter: Path) -> Path:
    """Return the folder of an adapter's base.

    Raises:
        InputError: there is no such folder.
    """
    if adapter.parent.name == "checkpoints" and (own := adapter.parent.parent / "base").is_dir():
        return own  # of a run that built its base; the folder that the adapter names may be another run's by now
    named = read_json(adapter / "adapter_config.json").get("base_model_name_or_path")
    if not named or not Path(named).is_dir():
        raise InputError(
            f"{adapter}: its adapter_config.json names the base {named!r}, and there is no such folder here; move the "
            "base back, or state its folder there as base_model_name_or_path"
        )
    return Path(named)


def with_start(config: RunConfig, start: Path) -> RunConfig:
    """Return the configuration of a run that starts from `start`, checked for what rewards cannot have.

    Raises:
        InputError: settings contradict each other, a kind is unknown, or nothing in it sees boxes.
    """
    path, adapter, training = start, None, dict(config.training)
    if (start / "adapter_config.json").is_file():
        path, adapter = base_of(start), start
        training.setdefault("tuner_type", "lora")
    training.setdefault("per_device_train_batch_size", config.reward.answers)
    training.setdefault("gradient_accumulation_steps", 1)
    config = config.model_copy(
        update={
            "model": config.model.model_copy(update={"path": str(path)}),
            "reward": config.reward.model_copy(update={"adapter": adapter}),
            "training": training,
        }
    )
    if problem := first_contradiction(config, REWARD_RULES):
        raise InputError(problem)
    try:
        weights = reward_weights(config.reward.kind)
    except InputError as error:
        raise InputError(f"reward.kind: {error}") from None
    if not any(REWARDS[name].sees_boxes for name in weights):
        seeing = ", ".join(row.name for row in REWARDS.values() if row.sees_boxes)
        raise InputError(
            f"reward.kind: {', '.join(weights)} can be had with boxes anywhere; add one that looks at them: {seeing}"
        )
    if config.custom.trains_coordinates:
        say("note: the loss terms of custom are not trained, as rewards take their place")
    return config
