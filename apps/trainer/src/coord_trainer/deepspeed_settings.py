"""DeepSpeed's settings with nothing left to a default that would surprise.

DeepSpeed clips gradients at 1.0 when its configuration is silent, takes the number of ranks on the CPU as 1 when
it works out batch sizes, and insists on an optimizer of its own there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import InputError

PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")


def read_deepspeed(value: Any, presets: Path) -> dict[str, Any]:
    """The configuration that `training.deepspeed` names: a preset, a JSON file or a mapping.

    Args:
        value: as it stands in the config.
        presets: ms-swift's folder of presets.

    Raises:
        InputError: neither.
    """
    if isinstance(value, dict):
        return value
    path = presets / f"{value}.json" if value in PRESETS else Path(str(value))
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"training.deepspeed: expected one of {', '.join(PRESETS)}, a JSON file or a mapping, found {value!r} "
            f"({error})"
        ) from None


def explicit(settings: dict[str, Any], arguments: dict[str, Any], ranks: int) -> dict[str, Any]:
    """`settings` with batch sizes and clipping spelt out from swift's `arguments`.

    Raises:
        InputError: a value of its own that contradicts the run's.
    """
    size, steps = arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"]
    wanted = {
        "train_micro_batch_size_per_gpu": (size, "per_device_train_batch_size"),
        "gradient_accumulation_steps": (steps, "gradient_accumulation_steps"),
        "train_batch_size": (size * steps * ranks, "per_device_train_batch_size"),
        "gradient_clipping": (float(arguments["max_grad_norm"]), "max_grad_norm"),
    }
    for name, (value, source) in wanted.items():
        own = settings.get(name, "auto")
        if own not in ("auto", value):
            raise InputError(
                f"training.deepspeed sets {name} to {own}, but training.{source} makes it {value}: say auto there, or "
                "make them equal"
            )
    return {
        **settings,
        **{name: value for name, (value, _) in wanted.items()},
        "zero_force_ds_cpu_optimizer": False,
    }
