"""The first run with `--adapter offset`, cut short: a frozen model, LoRA and offsets, from images to report."""

import json
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
SHORT = (
    "data.shapes.train=24",
    "data.shapes.heldout=6",
    "model.tiny={hidden: 32, heads: 4, ffn: 48, vision_hidden: 32, layers: 2, vision_layers: 2}",
    "training.max_steps=4",
    "training.per_device_train_batch_size=4",
    "training.logging_steps=1",
    "training.eval_steps=4",
    "training.save_steps=4",
    "run.threads=1",
)


@pytest.mark.slow
def test_adapter_of_the_run_holds_the_offsets_and_they_have_moved(tmp_path, forked):
    run = tmp_path / "run"
    with as_file(files("coord_trainer") / "first-run-offset.yaml") as config:
        done = forked(ROOT / "apps" / "trainer", "train", "-c", config, *SHORT, f"run.dir={run}")
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((run / "manifest.json").read_text())
    tensors = load_file(run / manifest["checkpoint"] / "adapter_model.safetensors")
    # Not the ids, nor the table that a tied head does not have.
    tensors = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and len(tensor)}
    offsets = {name: tensor for name, tensor in tensors.items() if "coord_offset_adapter" in name}
    assert sum(tensor.numel() for tensor in offsets.values()) == manifest["parameters"]["offsets"] > 0
    assert all(tensor.any() for tensor in offsets.values())
    assert not [name for name in tensors if name.endswith(("embed_tokens.weight", "lm_head.weight"))]
    assert sum(tensor.numel() for tensor in tensors.values()) == manifest["parameters"]["trained"]
    assert json.loads((run / "evaluation.json").read_text())["format"]["answers"] == 6
