"""The command `reward`: what it refuses, and a run from an adapter with offsets that is resumed."""

import json
from pathlib import Path

import pytest
from tiny_run import TINY, read_lines, tiny_config

from coord_codec import InputError
from coord_trainer.reward.start import with_start

LORA = {"tuner_type": "lora", "lora_rank": 4}


def start_of(tmp_path, adapter=False):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    if not adapter:
        return tmp_path / "base"
    (tmp_path / "adapter").mkdir()
    facts = {"base_model_name_or_path": str(tmp_path / "base")}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(facts))
    return tmp_path / "adapter"


def test_adapter_is_continued_on_its_base(tmp_path):
    config = with_start(tiny_config(), start_of(tmp_path, adapter=True))
    assert config.model.path == str(tmp_path / "base") and config.reward.adapter == tmp_path / "adapter"
    assert config.training["tuner_type"] == "lora" and config.training["per_device_train_batch_size"] == 8
    plain = with_start(tiny_config(), tmp_path / "base")
    assert plain.reward.adapter is None and "tuner_type" not in plain.training


@pytest.mark.parametrize(
    ("sections", "adapter", "message"),
    [
        (
            {"reward": {"answers": 8}, "training": {"per_device_train_batch_size": 4}},
            False,
            "multiple of reward.answers",
        ),
        ({"reward": {"kind": "f2"}}, False, "reward.kind: .*expected one of f1, .*found 'f2'"),
        ({"reward": {"kind": {"format": 1, "count": 1}}}, False, "boxes anywhere; add one that looks at them: f1"),
        ({"data": {"geometry": "point"}}, False, "data.geometry is point: rewards are of boxes"),
        ({"data": {"noise_objects": 4}}, False, "data.noise_objects"),
        ({"data": {"packing": True}}, False, "data.packing"),
        ({"training": {"eval_strategy": "steps"}}, False, "set evaluation.ap_steps"),
        ({"training": {"truncation_strategy": "right"}}, False, "training.truncation_strategy"),
        ({"run": {"gradient_norms": True}}, False, "run.gradient_norms"),
        ({"run": {"profile": True}}, False, "run.profile"),
        ({"reward": {"beta": 0.04}}, True, "reward.beta is 0.04: .* merge the adapter first"),
        ({"training": {"tuner_type": "full"}}, True, "training.tuner_type is full: an adapter is continued"),
    ],
)
def test_what_rewards_cannot_have_is_refused_by_name(sections, adapter, message, tmp_path):
    with pytest.raises(InputError, match=message):
        with_start(tiny_config(**sections), start_of(tmp_path, adapter))


def test_command_needs_a_model_and_train_takes_no_rewards(run, tmp_path):
    code, err, _ = run("reward")
    assert code == 2 and "model.path: rewards need a model that answers already" in err
    settings = ["custom.coord_soft_ce_w1.enabled=true", "reward.kind=ap"]
    code, err, _ = run("train", *settings)
    assert code == 2 and "use `reward` to train by rewards" in err


PLUGIN = """
import numpy as np
from coord_eval.rewards import Reward, register_reward

def length(judged):
    return np.array([len(text) % 7 / 7 for text in judged.texts])

register_reward(Reward(name="length", documentation="length", partial="each", measure=length))
"""


@pytest.mark.slow
def test_adapter_with_offsets_is_trained_by_rewards_and_resumed(tmp_path, monkeypatch):
    """From LoRA and offsets; the reward, which a model with random weights can have, is a plug-in's."""
    pytest.importorskip("swift")
    import torch
    from safetensors.torch import load_file

    from coord_codec.plugins import import_plugins
    from coord_eval.rewards import unregister_reward
    from coord_trainer.run import train_and_score
    from coord_trainer.swift.open_rewards import OpenRewards

    monkeypatch.chdir(tmp_path)
    Path("length.py").write_text(PLUGIN)
    offsets = {"coord_soft_ce_w1": {"enabled": True}, "coord_offset": {"enabled": True, "embed_lr": 0.01}}
    shared = {"model": {"tiny": TINY}, "data": {"shapes": {"train": 8, "heldout": 2}}}
    scored = {"limit": 2, "ap_steps": 2, "ap_images": 2, "decoding": {"grammar": "markers"}}
    steps = {"max_steps": 2, "save_steps": 1, "per_device_train_batch_size": 4, **LORA}
    first = train_and_score(tiny_config(custom=offsets, training={**steps, "max_steps": 1}, **shared), Path("first"))

    offsets["coord_objective"] = {"plugins": ["length.py"]}
    import_plugins(["length.py"], "custom.coord_objective.plugins")
    try:
        config = tiny_config(
            custom=offsets,
            training=steps,
            evaluation=scored,
            reward={"kind": "length", "answers": 4, "logged": 2},
            **shared,
        )
        config = with_start(config, first.checkpoint)
        result = train_and_score(config, Path("rewarded"), kind=OpenRewards)
        resumed = with_start(config.model_copy(update={
            "run": config.run.model_copy(update={"resume": True}),
            "training": {**config.training, "max_steps": 3},
        }), first.checkpoint)  # fmt: skip
        train_and_score(resumed, Path("rewarded"), kind=OpenRewards)
    finally:
        unregister_reward("length")

    weights = [
        load_file(path / "adapter_model.safetensors")
        for path in (first.checkpoint, Path("rewarded/checkpoints/checkpoint-1"), result.checkpoint)
    ]
    assert weights[0].keys() == weights[1].keys()
    start, one, _ = weights
    for name, rate in (("embed_offset", 0.01), ("lora_B", 1e-3)):
        moved = [(start[key] - one[key]).abs().max().item() for key in start if name in key and start[key].numel()]
        assert 0 < max(moved) < 10 * rate, f"{name}: one step from the adapter, not from a new one"
    lines = read_lines(Path("rewarded"))
    assert [line["step"] for line in lines if "reward" in line] == [1, 2, 3]
    assert all(0 <= line["answers/reward_length"] <= 1 for line in lines if "reward" in line)
    assert {line["step"] for line in lines if "eval_AP" in line} >= {2, 3}
    answers = [json.loads(line) for line in Path("rewarded/answers.jsonl").read_text().splitlines()]
    assert [answer["step"] for answer in answers] == [1, 1, 2, 2, 3, 3]
    assert torch.isfinite(torch.tensor([answer["reward"] for answer in answers])).all()
    manifest = json.loads(Path("rewarded/manifest.json").read_text())
    assert manifest["steps"] == 3 and manifest["parameters"]["offsets"] > 0
    assert sum(manifest["samples_seen"].values()) == 12, "answers, with those before the resume"
    assert "Reward of sampled answers" in Path("rewarded/report.html").read_text()
