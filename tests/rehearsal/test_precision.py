"""Steps of LoRA and offsets in half precision: losses beside float32, and float16 with the scaler of a GPU."""

import json
from contextlib import nullcontext

import pytest
import torch
from naive_varlen import naive_varlen_attn
from simulated_device import SimulatedDevice

pytest.importorskip("swift")

STEPS = 3
LORA = {"tuner_type": "lora", "target_modules": ["all-linear"], "lora_dropout": 0.0}
TRAINING = {"max_steps": STEPS, "save_steps": STEPS, "per_device_train_batch_size": 2, "learning_rate": 1e-3}
TRAINING |= {"gradient_accumulation_steps": 1, "logging_steps": 1, "report_to": [], "train_dataloader_shuffle": False}


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Train from one base in a number format; returns the log lines and the folder."""
    from coord_trainer.config.run_config import check_run_config
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import base_checkpoint
    from coord_trainer.training_stage import train_model

    tiny = {"hidden": 32, "heads": 4, "ffn": 48, "vision_hidden": 32, "layers": 1, "vision_layers": 1}
    base = None

    def run(dtype, tuner, device=None):
        nonlocal base
        folder = tmp_path_factory.mktemp(f"{dtype}-{tuner}")
        config = check_run_config(
            {
                "data": {"markers": "obj", "shapes": {"train": 6, "heldout": 1}},
                "custom": {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": tuner == "lora"}},
                "model": {"dtype": dtype, "tiny": tiny},
                "training": TRAINING | (LORA if tuner == "lora" else {"tuner_type": "full"}),
                "run": {"threads": 1},
            },
            "test",
        )
        train, _ = draw_sets(config, folder / "data")
        base = base or base_checkpoint(config, folder, train)
        with device or nullcontext():
            train_model(config, folder, base, train, None)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if "train_total_loss" in line], folder

    return run


BOUNDS = {"lora": 1e-3, "full": 1e-2}
"""Largest relative difference of a loss. LoRA and offsets are in float32; all weights are rounded at each step."""


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("tuner", BOUNDS)
def test_losses_in_bfloat16_are_those_of_float32_within_the_stated_bound(steps, tuner):
    (exact, _), (half, _) = steps("float32", tuner), steps("bfloat16", tuner)
    assert len(half) == len(exact) == STEPS
    for one, other in zip(half, exact, strict=True):
        for name in ("train_total_loss", "train_text_loss", "coord_diag/soft_ce", "coord_diag/w1"):
            assert one[name] == pytest.approx(other[name], rel=BOUNDS[tuner], abs=1e-2), name
    assert abs(exact[-1]["train_total_loss"] - exact[0]["train_total_loss"]) > 1e-2  # something was learnt


@pytest.mark.slow
def test_float16_is_scaled_on_a_gpu_and_a_step_with_an_infinite_gradient_is_dropped(steps, monkeypatch, capsys):
    from accelerate.optimizer import AcceleratedOptimizer

    from coord_losses.hf.head import RowHead

    total, step, seen, scales = RowHead.total, AcceleratedOptimizer.step, [], []

    def spoilt(rows, output):
        loss = total(rows, output)
        seen.append(float(loss))
        if len(seen) == 2:
            loss.register_hook(lambda gradient: gradient * float("inf"))
        return loss

    def noted(optimizer, closure=None):
        table = next(p for group in optimizer.param_groups for p in group["params"] if p.dim() == 2)
        before = table.detach().clone()
        step(optimizer, closure)
        scales.append((optimizer.scaler.get_scale(), bool(torch.equal(before, table))))

    exact, _ = steps("float32", "lora")
    monkeypatch.setattr(RowHead, "total", spoilt)
    monkeypatch.setattr(AcceleratedOptimizer, "step", noted)
    monkeypatch.setattr("coord_detect.model.attention.varlen_attn", naive_varlen_attn)
    # Autocast of the simulated device acts on no tensor of the CPU, so that PEFT's casts are needed.
    monkeypatch.setattr("coord_trainer.swift.trainer.without_input_casts", lambda *_: nullcontext())
    device = SimulatedDevice()
    half, folder = steps("float16", "lora", device)
    assert not device.mismatches
    assert [scale for scale, _ in scales] == [scales[0][0], scales[0][0] / 2, scales[0][0] / 2]
    assert [unchanged for _, unchanged in scales] == [False, True, False]
    assert "step 2: the gradient overflowed in float16; the step is dropped" in capsys.readouterr().out
    for one, other in zip(half[:2], exact[:2], strict=True):  # the third follows other weights
        assert one["train_total_loss"] == pytest.approx(other["train_total_loss"], rel=1e-3)
    assert (folder / "checkpoints" / f"checkpoint-{STEPS}" / "complete.json").is_file()
