"""Which checkpoints can be trained: dense Qwen3-VL and its model of experts, from a folder or a hub; no others."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_run import read_lines, tiny_config

from coord_codec import InputError

pytest.importorskip("swift")
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": []}


def changed(base, folder, **values):
    """A copy of a checkpoint whose config.json says something else."""
    shutil.copytree(base, folder)
    stated = json.loads((base / "config.json").read_text()) | values
    (folder / "config.json").write_text(json.dumps(stated))
    return folder


def of_experts(base, folder):
    """The same model with four experts in each layer, two of which answer."""
    from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

    stated = json.loads((base / "config.json").read_text())
    del stated["model_type"], stated["architectures"]
    for part in ("text_config", "vision_config"):
        del stated[part]["model_type"]
    torch.manual_seed(0)
    model = Qwen3VLMoeForConditionalGeneration(
        Qwen3VLMoeConfig(**stated | {"text_config": stated["text_config"] | EXPERTS})
    )
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    model.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_model_of_experts_is_trained_and_saved_as_one(tmp_path, run, tiny_model, dtype):
    from safetensors.torch import load_file
    from transformers import AutoModelForImageTextToText

    base = of_experts(tiny_model, tmp_path / "experts")
    words = ["data.markers=obj", "data.shapes.train=8", "data.shapes.heldout=2", "custom.coord_soft_ce_w1.enabled=true"]
    words += [
        "training.max_steps=2",
        "training.report_to=[]",
        "training.learning_rate=0.01",
        "training.logging_steps=1",
    ]
    words += [f"model.path={base}", f"model.dtype={dtype}", "run.dir=run", "evaluation.images=none", "run.threads=1"]
    code, told, _ = run("train", *words)
    assert code == 0, told
    assert all(line["loss"] > 0 for line in read_lines(Path("run")) if "loss" in line)
    saved = Path("run/checkpoints/checkpoint-2")
    assert json.loads((saved / "config.json").read_text())["architectures"] == ["Qwen3VLMoeForConditionalGeneration"]
    before, after = load_file(base / "model.safetensors"), load_file(saved / "model.safetensors")
    experts = [name for name in before if ".experts." in name or ".mlp.gate." in name]
    assert len(experts) == 6 and not any(torch.equal(before[name].to(after[name]), after[name]) for name in experts)
    assert type(AutoModelForImageTextToText.from_pretrained(saved)).__name__ == "Qwen3VLMoeForConditionalGeneration"


@pytest.fixture
def opening(tmp_path):
    from coord_trainer.swift.open_run import open_run

    return lambda base: open_run(tiny_config(), tmp_path / "run", str(base), evaluates=False, without_weights=True)


def test_other_family_is_refused_by_name(tmp_path, opening, tiny_model):
    other = changed(tiny_model, tmp_path / "other", model_type="llava")
    with pytest.raises(InputError, match=r"other/config.json: model_type: expected qwen3_vl or .*, found 'llava'"):
        opening(other)


def test_fetched_checkpoint_is_looked_at_before_anything_of_it_is_used(tmp_path, opening, tiny_model, monkeypatch):
    from coord_trainer.swift import template

    asked = []
    fetched = changed(tiny_model, tmp_path / "fetched", auto_map={"AutoConfig": "own.Config"})
    monkeypatch.setattr(template, "safe_snapshot_download", lambda name, **how: asked.append((name, how)) or fetched)
    with pytest.raises(InputError, match="auto_map"):
        opening("someone/model")
    assert asked == [("someone/model", {"download_model": False, "use_hf": None})]


def test_checkpoint_that_cannot_be_fetched_is_told_with_the_hub(opening, monkeypatch):
    from coord_trainer.swift import template

    def fails(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(template, "safe_snapshot_download", fails)
    with pytest.raises(InputError, match=r"'someone/model' cannot be fetched \(no route to host\).*ModelScope"):
        opening("someone/model")
