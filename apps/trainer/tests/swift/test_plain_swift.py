"""With the offsets switched off a run is plain swift's: groups, weights, losses, in a process without the adapter."""

import json
import os
import subprocess
import sys

import pytest
import torch
from plain_swift import groups_of
from tiny_run import HELPERS, read_lines, tiny_config
from transformers import TrainerCallback

from coord_adapter import weights_digest

pytest.importorskip("swift")
CONFIG = tiny_config(
    data={"shapes": {"train": 12, "heldout": 2}},
    custom={"coord_objective": {"use_coord_ce": True}},  # group A, which is Hugging Face's loss
    model={"fused_head": False},
    training={
        "tuner_type": "lora",
        "target_modules": ["all-linear"],
        "lora_dropout": 0.1,
        "optimizer": "multimodal",
        "learning_rate": 1e-2,
        "vit_lr": 3e-3,
        "aligner_lr": 5e-3,
        "max_steps": 3,
        "save_steps": 3,
        "train_dataloader_shuffle": True,
        "per_device_train_batch_size": 4,
        # With more, swift takes the mean of a micro-batch and multiplies by its share: another last bit.
        "gradient_accumulation_steps": 1,
        "report_to": [],
    },
)


@pytest.mark.slow
def test_run_without_offsets_is_plain_swift_bit_for_bit(tmp_path, monkeypatch):
    from safetensors.torch import load_file

    from coord_detect.model.card import read_card
    from coord_trainer import training_stage as stage
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import base_checkpoint
    from coord_trainer.swift.pipeline import swift_arguments

    ours, plain = tmp_path / "ours", tmp_path / "plain"
    plain.mkdir()
    train, _ = draw_sets(CONFIG, ours / "data")
    base = base_checkpoint(CONFIG, ours, train)
    groups = []

    class Record(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
            groups.extend(groups_of(model, optimizer))

    def keep_samples(*words, make=stage.sample_set, **more):
        samples = make(*words, **more)
        encoded = [{k: v for k, v in s.items() if not k.startswith("coord_")} for s in samples]
        torch.save(encoded, plain / "samples.pt")
        return samples

    monkeypatch.setattr(stage, "sample_set", keep_samples)
    monkeypatch.setattr(stage, "TrainingProgress", Record)
    result = stage.train_model(CONFIG, ours, base, train, None)
    assert result.facts["parameters"]["offsets"] == 0
    assert read_card(result.checkpoint).base == weights_digest(base)

    arguments = swift_arguments(CONFIG, plain, base, "qwen3_vl_coord", evaluates=False)
    (plain / "arguments.json").write_text(json.dumps(arguments))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, HELPERS / "plain_swift.py", plain]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    assert [list(group) for group in groups] == json.loads((plain / "groups.json").read_text())
    assert {group[0] for group in groups} == {1e-2, 3e-3, 5e-3}
    expected = load_file(plain / "checkpoints" / "checkpoint-3" / "adapter_model.safetensors")
    found = load_file(result.checkpoint / "adapter_model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    losses = [line["loss"] for line in read_lines(ours) if "loss" in line]
    # The logged value alone may differ in its last bits: ours sums the rows pairwise, torch's mean one by one.
    assert losses == pytest.approx(json.loads((plain / "losses.json").read_text()), rel=2**-21, abs=0)
