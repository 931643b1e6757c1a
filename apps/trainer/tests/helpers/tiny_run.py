"""The one tiny Qwen3-VL of the trainer's tests, a run of it on generated shapes, and what a run leaves."""

import json
from pathlib import Path

from coord_trainer.config.run_config import check_run_config

HELPERS = Path(__file__).parent
TINY = {"hidden": 32, "heads": 4, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2}
BASE = {
    "data": {"markers": "obj", "shapes": {"train": 8, "heldout": 2}},
    "custom": {"coord_soft_ce_w1": {"enabled": True}},
    "run": {"threads": 1},
    "training": {"max_steps": 1, "logging_steps": 1, "save_steps": 1, "train_dataloader_shuffle": False}
    | {"per_device_train_batch_size": 8},
    "model": {"tiny": TINY},
}


def tiny_config(**sections):
    """Return the config of a tiny run; each section's keys are laid over those above, `custom` replaces them."""
    values = BASE | {name: BASE.get(name, {}) | given for name, given in sections.items()}
    if "custom" in sections:
        values["custom"] = sections["custom"]
    return check_run_config(values, "test")


def read_lines(folder):
    """Return the lines of a run's metrics.jsonl, without the time of a step, which no two runs have in common."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds_per_step"} for line in lines]
