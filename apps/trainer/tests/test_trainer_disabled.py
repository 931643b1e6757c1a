"""With the offsets switched off a run is plain swift's: groups, weights, losses, in a process without the adapter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

pytest.importorskip("swift")
SETTINGS = {
    "data": {"markers": "obj", "shapes": {"train": 12, "heldout": 2}},
    "custom": {"coord_objective": {"use_coord_ce": True}},  # group A, which is Hugging Face's loss
    "run": {"threads": 1},
    "model": {
        "fused_head": False,
        "tiny": {"hidden": 32, "ffn": 48, "vision_hidden": 32, "layers": 2, "vision_layers": 2},
    },
    "training": {
        "tuner_type": "lora",
        "target_modules": ["all-linear"],
        "lora_dropout": 0.1,
        "optimizer": "multimodal",
        "learning_rate": 1e-2,
        "vit_lr": 3e-3,
        "aligner_lr": 5e-3,
        "max_steps": 5,
        "logging_steps": 1,
        "save_steps": 5,
        "per_device_train_batch_size": 4,
        # With more, swift takes the mean of a micro-batch and multiplies by its share: another last bit.
        "gradient_accumulation_steps": 1,
        "use_logits_to_keep": False,
        "report_to": [],
    },
}


def test_a_run_without_offsets_is_plain_swift_bit_for_bit(tmp_path, monkeypatch):
    from safetensors.torch import load_file

    from coord_trainer import training
    from coord_trainer.config_files import check_run_config
    from coord_trainer.picture_set import draw_sets
    from coord_trainer.pipeline import _swift_arguments
    from coord_trainer.tiny_model import base_checkpoint

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from trainer_plain import groups_of

    config = check_run_config(SETTINGS, "test")
    ours, plain = tmp_path / "ours", tmp_path / "plain"
    plain.mkdir()
    train, _ = draw_sets(config, ours / "data")
    base = base_checkpoint(config, ours, train)
    groups = []

    class Record(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
            groups.extend(groups_of(model, optimizer))

    def keep_samples(*words, make=training.sample_set):
        samples = make(*words)
        encoded = [{k: v for k, v in s.items() if not k.startswith("coord_")} for s in samples]
        torch.save(encoded, plain / "samples.pt")
        return samples

    monkeypatch.setattr(training, "sample_set", keep_samples)
    monkeypatch.setattr(training, "TrainingProgress", Record)
    checkpoint, facts = training._train(config, ours, base, train, None)
    assert facts["parameters"]["offsets"] == 0

    arguments = _swift_arguments(config, plain, base, "qwen3_vl_coord", evaluates=False)
    (plain / "arguments.json").write_text(json.dumps(arguments))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    script = Path(__file__).with_name("trainer_plain.py")
    done = subprocess.run(
        [sys.executable, script, plain], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    assert [list(group) for group in groups] == json.loads((plain / "groups.json").read_text())
    assert {group[0] for group in groups} == {1e-2, 3e-3, 5e-3}
    expected = load_file(plain / "checkpoints" / "checkpoint-5" / "adapter_model.safetensors")
    found = load_file(checkpoint / "adapter_model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    lines = [json.loads(line) for line in (ours / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses == json.loads((plain / "losses.json").read_text())
