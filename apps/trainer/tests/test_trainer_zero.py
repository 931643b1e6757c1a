"""Two CPU ranks through the trainer, under DeepSpeed ZeRO and packed: the steps of one rank, offsets saved whole."""

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
        HERE / "trainer_zero.py", base, folder, *trainer_zero.WAYS, DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    whole = trainer_zero.run(config, base, folder / "whole")
    sys.path.remove(str(HERE))
    return folder, config, whole


@pytest.mark.slow
@pytest.mark.parametrize("way", ["packed", "zero2", "zero3", "packed-zero2", "packed-zero3"])
def test_two_ranks_take_the_steps_of_one(zero, way):
    from safetensors.torch import load_file

    folder, config, (checkpoint, expected) = zero
    lines = [json.loads(line) for line in (folder / way / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if "train_total_loss" in line]
    assert [line["step"] for line in found] == [line["step"] for line in expected] == [1, 2, 3, 4]
    compared = [
        name for name in expected[0] if name.startswith(("loss", "grad_norm", "train_", "coord_diag"))
    ]
    assert {"loss", "grad_norm", "train_total_loss", "train_text_loss", "coord_diag/w1"} <= set(compared)
    for one, other in zip(found, expected, strict=True):
        assert other["grad_norm"] > config.training["max_grad_norm"]  # so that clipping is part of it
        for name in compared:
            assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-6), (other["step"], name)
    saved = load_file(folder / way / "checkpoints" / "checkpoint-4" / "adapter_model.safetensors")
    plain = load_file(checkpoint / "adapter_model.safetensors")
    assert saved.keys() == plain.keys()
    for name, value in plain.items():
        torch.testing.assert_close(saved[name], value, rtol=0, atol=1e-4, msg=f"{way} {name}")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_zero_shards_the_optimizer_and_saves_the_offsets_whole(zero, stage):
    from safetensors.torch import load_file

    from coord_trainer.predict import open_checkpoint

    folder, config, _ = zero
    run = folder / stage
    saved = load_file(run / "checkpoints" / "checkpoint-4" / "adapter_model.safetensors")
    tables = [name for name in saved if name.endswith("_offset")]
    assert len(tables) == 2 and all(saved[name].shape == (1002, 32) for name in tables)
    assert all(saved[name].abs().max() > 1e-2 for name in tables)
    held = {
        way: [int((folder / way / f"state.{rank}").read_text()) for rank in (0, 1)]
        for way in (stage, "packed")
    }
    trained = sum(value.numel() for value in saved.values() if value.is_floating_point())
    assert held["packed"] == [2 * trained] * 2  # without DeepSpeed, each rank has both moments of all
    assert max(held[stage]) < 0.6 * 2 * trained and sum(held[stage]) >= 2 * trained
    reloaded = open_checkpoint(run / "checkpoints" / "checkpoint-4", config)
    names = dict(reloaded.model.named_parameters())
    for name in tables:
        key = next(k for k in names if k.endswith(name.rsplit(".", 1)[-1]) and "modules_to_save" in k)
        assert torch.equal(names[key], saved[name])
