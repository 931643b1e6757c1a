"""Code that asks whether there is a GPU takes the other branch on the simulated device; the table lists every place."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from simulated_device import SimulatedDevice, on_device

ROOT = Path(__file__).parents[2]
ASKS = re.compile(r"cuda\.(is_available|device_count|get_device_name)|\.is_cuda|\.type == \"cuda\"")
PLACES = {
    "coord_losses/fused/autograd.py": "not rehearsed: 16-bit products added to a float32 total are a kernel of a GPU",
    "coord_detect/speed/of_checkpoint.py": "test_model answers by passes of fixed shapes",
    "coord_detect/speed/passes.py": "test_model runs what a CUDA graph would record; none is here",
    "coord_trainer/cli/options.py": "test_deepspeed_is_told_of_the_gpu",
    "coord_detect/model/attention.py": "test_rows_in_half_precision_reach_the_kernel_of_a_gpu",
    "coord_detect/model/checkpoint.py": "test_run loads a checkpoint to the device; flash-attention is not here",
    "coord_trainer/preview.py": "test_dry_run_leaves_samples_out_of_the_memory_of_a_gpu",
    "coord_trainer/swift/doctor.py": "test_doctor_names_the_gpu",
    "coord_trainer/swift/pipeline.py": "test_run trains on the device; NCCL is not here",
    "coord_trainer/swift/trainer.py": "test_run evaluates; test_failed_evaluation_frees_memory",
    "coord_trainer/training/profile.py": "not rehearsed: the profiler's device times come from CUPTI",
    "coord_trainer/training/muon.py": "test_muon_iterates_in_bfloat16",
}
"""Each file of ours that asks, and the test that takes its branch, or why none can."""


@pytest.mark.slow
def test_every_place_that_asks_is_listed_here():
    files = [path for folder in ("packages", "apps") for path in (ROOT / folder).glob("*/src/**/*.py")]
    found = {str(path).partition("/src/")[2] for path in files if ASKS.search(path.read_text(encoding="utf-8"))}
    assert found == PLACES.keys()
    named = {word for reason in PLACES.values() for word in re.findall(r"test_\w{9,}", reason)}
    assert named <= globals().keys()


def test_muon_iterates_in_bfloat16():
    from coord_trainer.training.muon import orthogonal

    torch.manual_seed(0)
    matrices = torch.randn(2, 6, 10)
    with SimulatedDevice() as device:
        found = orthogonal(on_device(matrices))
    assert not device.mismatches and not device.waits and found.dtype == torch.float32
    found = found.as_subclass(torch.Tensor)
    assert torch.equal(found, found.bfloat16().float())
    torch.testing.assert_close(found, orthogonal(matrices), rtol=0, atol=0.03)


@pytest.mark.parametrize(("dtype", "calls"), [(torch.bfloat16, 2), (torch.float32, 0)])
def test_rows_in_half_precision_reach_the_kernel_of_a_gpu(monkeypatch, dtype, calls):
    pytest.importorskip("transformers")
    from coord_detect.model import attention

    module = SimpleNamespace(is_causal=True, num_key_value_groups=1, training=False)
    row, bounds = torch.randn(1, 2, 5, 8, dtype=dtype), torch.tensor([0, 2, 5], dtype=torch.int32)
    seen = []
    monkeypatch.setattr(attention, "varlen_attn", lambda q, *_, **__: seen.append(q.shape) or q)
    with SimulatedDevice() as device:
        for bounds_given in (on_device(bounds), on_device(bounds.clone())):
            given = {"cu_seq_lens_q": bounds_given, "max_length_q": 3, "scaling": 1.0}
            found, _ = attention._attend(module, *[on_device(row)] * 3, None, **given)
    assert found.shape == (1, 5, 2, 8) and not device.mismatches
    assert seen == [(5, 2, 8)] * calls and sum(device.waits.values()) == 2 - calls


def test_deepspeed_is_told_of_the_gpu(capsys):
    pytest.importorskip("transformers")
    from coord_trainer.cli.options import load_libraries

    with mock.patch.dict(os.environ), SimulatedDevice():
        os.environ.pop("DS_ACCELERATOR", None)
        load_libraries()
        assert os.environ["DS_ACCELERATOR"] == "cuda"


@pytest.mark.slow
def test_doctor_names_the_gpu(capsys):
    pytest.importorskip("swift")
    from coord_trainer.swift.doctor import examine

    with SimulatedDevice():
        examine()
    assert "GPUs: simulated" in capsys.readouterr().out


def test_failed_evaluation_frees_memory(capsys):
    pytest.importorskip("swift")
    from coord_trainer.swift.trainer import CoordTrainer

    logged = []
    metrics = {"eval": SimpleNamespace(clear=lambda: None)}
    trainer = SimpleNamespace(state=SimpleNamespace(global_step=3), _step_metrics=metrics, log=logged.append)

    def fails():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with SimulatedDevice():
        assert CoordTrainer._attempt(trainer, "evaluation losses", fails) == {}
        torch.cuda.empty_cache.assert_called_once()
    assert logged == [{"eval_failed": "evaluation losses: OutOfMemoryError: CUDA out of memory"}]


@pytest.mark.slow
def test_dry_run_leaves_samples_out_of_the_memory_of_a_gpu(capsys):
    pytest.importorskip("swift")
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.preview import dry_run

    words = ["custom.coord_soft_ce_w1.enabled=true", "data.shapes.train=4", "training.max_steps=1"]
    words += ["model.tiny.hidden=32", "model.tiny.heads=2", "model.tiny.layers=1", "model.tiny.vision_layers=1"]
    expected = dry_run(load_run_config(None, words))
    with SimulatedDevice() as device:
        found = dry_run(load_run_config(None, words))
    assert not device.mismatches
    kept = "samples kept encoded"
    assert expected[kept] > 0 and found[kept] == 0
    changed = {kept, "peak"}
    assert {k: v for k, v in found.items() if k not in changed} == {
        k: v for k, v in expected.items() if k not in changed
    }
    assert found["peak"] == expected["peak"] - expected[kept]
