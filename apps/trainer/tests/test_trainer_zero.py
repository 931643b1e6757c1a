"""DeepSpeed ZeRO on two CPU ranks through the trainer: the losses of one rank, offsets saved whole."""

import json
import sys
from pathlib import Path

import pytest
import torch

from coord_trainer.deepspeed_settings import explicit, read_deepspeed
from coord_trainer.errors import InputError

HERE = Path(__file__).parent
ARGUMENTS = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "max_grad_norm": 0.5}


def test_batch_sizes_and_clipping_are_spelt_out():
    found = explicit({"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}, ARGUMENTS, ranks=4)
    assert found["train_batch_size"] == 24 and found["train_micro_batch_size_per_gpu"] == 2
    assert found["gradient_clipping"] == 0.5  # a silent configuration would clip at 1.0
    assert found["zero_optimization"] == {"stage": 2} and found["zero_force_ds_cpu_optimizer"] is False
    with pytest.raises(InputError, match=r"gradient_clipping to 1.0.*max_grad_norm"):
        explicit({"gradient_clipping": 1.0}, ARGUMENTS, ranks=1)


def test_a_preset_a_file_or_a_mapping(tmp_path):
    (tmp_path / "zero2.json").write_text('{"a": 1}')
    assert read_deepspeed("zero2", tmp_path) == {"a": 1}
    assert read_deepspeed(str(tmp_path / "zero2.json"), tmp_path / "nowhere") == {"a": 1}
    assert read_deepspeed({"a": 2}, tmp_path) == {"a": 2}
    with pytest.raises(InputError, match="zero2, "):
        read_deepspeed("zero4", tmp_path)


@pytest.fixture(scope="module")
def zero(tmp_path_factory):
    pytest.importorskip("swift")
    pytest.importorskip("deepspeed")
    sys.path.insert(0, str(HERE))
    import trainer_zero
    from test_trainer_ranks import torchrun

    from coord_trainer.tiny_model import base_checkpoint

    folder = tmp_path_factory.mktemp("zero")
    config = trainer_zero.settings(4)
    base = base_checkpoint(config, folder, trainer_zero.draw_sets(config, folder / "data")[0])
    done = torchrun(
        HERE / "trainer_zero.py", base, folder, "zero2", "zero3", DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    whole = trainer_zero.run(config, base, folder / "whole")
    sys.path.remove(str(HERE))
    return folder, config, whole


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_zero_begins_as_one_rank_does_shards_the_optimizer_and_saves_the_offsets_whole(zero, stage):
    from safetensors.torch import load_file

    from coord_trainer.predict import open_checkpoint

    folder, config, (checkpoint, expected) = zero
    run = folder / stage
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if "train_total_loss" in line]
    assert [line["step"] for line in found] == [1, 2, 3]
    # Only the first step's: gradient norms differ by .4 % from a run without DeepSpeed, so later losses do too. swift
    # replaces the forward pass under DeepSpeed; whether that is the reason has not been established.
    for name, value in expected[0].items():
        if name.startswith(("train_", "coord_diag")) and "speed" not in name:
            assert found[0][name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
    saved = load_file(run / "checkpoints" / "checkpoint-3" / "adapter_model.safetensors")
    plain = load_file(checkpoint / "adapter_model.safetensors")
    assert {k: v.shape for k, v in saved.items()} == {k: v.shape for k, v in plain.items()}
    tables = [name for name in saved if name.endswith("_offset")]
    assert len(tables) == 2 and all(saved[name].shape == (1002, 32) for name in tables)
    for name in tables:
        assert saved[name].abs().max() > 1e-2
    held = [int((run / f"state.{rank}").read_text()) for rank in (0, 1)]
    trained = sum(value.numel() for name, value in plain.items() if "token_ids" not in name)
    assert max(held) < 0.6 * 2 * trained  # each rank holds half of both moments
    reloaded = open_checkpoint(run / "checkpoints" / "checkpoint-3", config)
    names = dict(reloaded.model.named_parameters())
    for name in tables:
        key = next(k for k in names if k.endswith(name.rsplit(".", 1)[-1]) and "modules_to_save" in k)
        assert torch.equal(names[key], saved[name])
