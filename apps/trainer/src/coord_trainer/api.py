"""`train`: a training in Python, by the settings of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_codec import InputError
from coord_detect.answers.guesses import refuse_arguments
from coord_detect.environment import set_environment
from coord_detect.settings.load import flat_settings
from coord_trainer.config.run_config import RunConfig, load_run_config

if TYPE_CHECKING:
    from coord_trainer.run import Result


def train(config: str | Path | RunConfig | None = None, **sections: Any) -> Result:
    """Train from a configuration, score the answers and write a report: `uv run apps/trainer train` in Python.

    Args:
        config: a YAML file, such as `configs/memorise.yaml`, or a `RunConfig`; None for the defaults
        sections: settings that override it, a mapping for each section: `data={"annotations": "a.json", "images":
            "photos"}`, `training={"max_steps": 100}`, `run={"dir": "runs/a"}`

    Returns:
        The result with `folder`, `checkpoint`, `evaluation` (None if nothing was scored) and `detector`.

    Raises:
        InputError: if settings or data are invalid
        RunError: if the run cannot finish
        TypeError: if there is no such section

    Example:
        >>> train("configs/memorise.yaml", data={"annotations": "a.json"}, traning={})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        TypeError: train() has no argument 'traning'; its sections are model, data, custom, ...
    """
    known = RunConfig.model_fields
    refuse_arguments("train()", [name for name in sections if name not in known], ", ".join(known))
    for name, value in sections.items():
        if name != "plugins" and not isinstance(value, Mapping):
            refuse_arguments(f"train({name}={value!r})", [name])
            raise InputError(f"{name}: expected a mapping of settings, found {value!r}")
    if isinstance(config, RunConfig):
        if sections:
            raise InputError("train: a RunConfig is complete; give sections to a YAML file, or put them into it")
        resolved = config
    else:
        flat = flat_settings({name: _plain(value) for name, value in sections.items()})
        words = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in flat.items()]
        resolved = load_run_config(None if config is None else Path(config), words, needs_data=True)
    set_environment(resolved.model.download)
    from coord_trainer.run import train_and_score

    name = "train" if config is None or isinstance(config, RunConfig) else Path(config).stem
    return train_and_score(resolved, resolved.run.dir or Path("runs") / name)


def _plain(value: Any) -> Any:
    """Return a value of a setting in the types of YAML, which has no paths."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
