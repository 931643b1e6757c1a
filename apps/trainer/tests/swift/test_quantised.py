"""LoRA and offsets on a base in 4 bits, where bitsandbytes is installed: `uv run --with bitsandbytes pytest ...`."""

import re
from pathlib import Path

import pytest
import torch
from tiny_run import read_lines, tiny_config

from coord_codec import InputError

pytest.importorskip("swift")

QUANTISED = {"quant_method": "bnb", "quant_bits": 4}


APPS = Path(__file__).parents[3]


def config(resume=False, images="heldout", **training):
    lora = {"tuner_type": "lora", "target_modules": ["all-linear"], "lora_dropout": 0.0, "learning_rate": 0.01}
    steps = {"max_steps": 3, "save_steps": 1, "logging_steps": 1, "per_device_train_batch_size": 2}
    return tiny_config(
        run={"resume": resume},
        model={"tiny": {"hidden": 128, "heads": 4, "ffn": 128, "vision_hidden": 128}},
        data={"shapes": {"train": 4, "heldout": 2}},
        custom={"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True}},
        training=lora | steps | training,
        evaluation={"images": images, "max_new_tokens": 24, "decoding": {"grammar": "markers"}},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: add --with bitsandbytes")
    from coord_trainer.run import train_and_score
    from coord_trainer.swift.open_run import OpenRun

    seen = {}
    original = OpenRun.train

    def watched(run, *words, **more):
        seen.setdefault("kinds", {name: type(module).__name__ for name, module in run.model.named_modules()})
        return original(run, *words, **more)

    folder = tmp_path_factory.mktemp("quantised")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenRun, "train", watched)
        result = train_and_score(config(**QUANTISED), folder / "run")
        plain = train_and_score(config(), folder / "plain")
    return result, plain, seen["kinds"]


def losses(result):
    return [line["train_total_loss"] for line in read_lines(result.folder) if "train_total_loss" in line]


@pytest.mark.slow
def test_linear_layers_of_the_language_model_alone_are_in_4_bits(trained):
    kinds = trained[2]
    quantised = {name for name, kind in kinds.items() if kind == "Linear4bit"}
    linear = {name for name, kind in kinds.items() if kind == "Linear"}
    assert quantised and all(name.startswith("model.language_model.layers.") for name in quantised)
    assert {"lm_head", "model.visual.merger.linear_fc1"} <= linear
    assert not {name for name in linear if name.startswith("model.language_model.layers.")}


@pytest.mark.slow
def test_losses_are_near_those_of_the_whole_base_and_not_the_same(trained):
    quantised, plain = losses(trained[0]), losses(trained[1])
    assert len(quantised) == len(plain) == 3 and quantised != plain
    assert quantised == pytest.approx(plain, rel=0.05)
    assert quantised[-1] < quantised[0]


@pytest.mark.slow
def test_adapter_names_the_whole_base_and_answers_on_it(trained):
    from safetensors.torch import load_file

    result = trained[0]
    tensors = load_file(result.checkpoint / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} == {torch.float32}
    assert any("coord_offset_adapter" in name and bool(tensor.any()) for name, tensor in tensors.items())
    assert result.evaluation.counts["images"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("dora", [False, True])
def test_resumed_training_is_a_straight_one_and_merges_into_the_whole_base(dora, tmp_path, forked):
    """Without evaluation: at a CPU's first pass of it bitsandbytes rounds the scales of the base to 16 bits."""
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: add --with bitsandbytes")
    from safetensors.torch import load_file

    from coord_trainer.run import train_and_score

    shared = QUANTISED | {"use_dora": dora, "lr_scheduler_type": "constant"}
    straight = train_and_score(config(images="none", **shared), tmp_path / "straight")
    train_and_score(config(images="none", **shared, max_steps=2), tmp_path / "resumed")
    resumed = train_and_score(config(resume=True, images="none", **shared), tmp_path / "resumed")
    assert losses(resumed) == losses(straight) and len(losses(straight)) == 3
    one, other = (load_file(run.checkpoint / "adapter_model.safetensors") for run in (straight, resumed))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert any("magnitude" in name for name in one) == dora
    words = ("merge", tmp_path / "straight" / "base", straight.checkpoint, tmp_path / "merged", "--verify")
    merged = forked(APPS / "exporter", *words)
    assert re.search(r"(\d+) of \1 greedy tokens equal", merged.stdout + merged.stderr), merged.stderr


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"quant_method": "bnb"}, "training.quant_method has no effect without training.quant_bits: 4"),
        ({"quant_bits": 4}, "training.quant_bits has no effect without training.quant_method"),
        (QUANTISED | {"quant_bits": 8}, "training.quant_bits: expected one of 4, found 8"),
        (QUANTISED | {"tuner_type": "full"}, "training.quant_method has no effect without training.tuner_type: lora"),
        (QUANTISED | {"deepspeed": "zero3"}, "ZeRO stage 3 would shard weights in 4 bits"),
    ],
)
def test_settings_of_4_bits_that_do_not_fit_are_refused(settings, told):
    with pytest.raises(InputError, match=told):
        config(**settings)


def test_missing_package_is_named(monkeypatch):
    from coord_trainer.config import swift_arguments

    monkeypatch.setattr(swift_arguments, "find_spec", lambda name: None if name == "bitsandbytes" else object())
    with pytest.raises(InputError, match="needs the package bitsandbytes, which is not installed here"):
        config(**QUANTISED)
