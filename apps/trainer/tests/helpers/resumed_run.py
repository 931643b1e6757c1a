"""A run that is killed while it saves and goes on: its settings, and what must be equal afterwards."""

import json

import torch
from tiny_run import TINY, read_lines

SETTINGS = {
    "data": {"markers": "obj", "shapes": {"train": 10, "heldout": 2}},
    "custom": {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
    "run": {"threads": 1},
    "model": {"tiny": TINY},
    "evaluation": {"images": "none"},
    "training": {
        "tuner_type": "lora",
        "target_modules": ["all-linear"],
        "lora_dropout": 0.2,
        "max_steps": 6,
        "logging_steps": 3,
        "save_steps": 2,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "report_to": [],
    },
}


def write_settings(path, data=SETTINGS["data"], **training):
    """Write the settings as JSON for a script; returns the path."""
    path.write_text(json.dumps(SETTINGS | {"data": data, "training": SETTINGS["training"] | training}))
    return path


def assert_same_run(resumed, whole):
    """Compare every logged number and every weight of two run folders to the last bit."""
    from safetensors.torch import load_file

    expected, found = read_lines(whole), read_lines(resumed)
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    timed = ("runtime", "per_second", "speed", "elapsed", "remaining", "memory")
    for one, other in zip(found, expected, strict=True):
        for name, value in other.items():
            # swift's own `loss` and `train_loss` forget what came before the checkpoint.
            if not any(word in name for word in timed) and name not in {"loss", "train_loss", "total_flos"}:
                assert one[name] == value, (other["step"], name)
    weights = [load_file(f / "checkpoints" / "checkpoint-6" / "adapter_model.safetensors") for f in (resumed, whole)]
    assert weights[0].keys() == weights[1].keys() and any("offset" in name for name in weights[0])
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
