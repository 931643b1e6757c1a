"""The plug-ins of the guide, as it shows them, in ms-swift and in TRL: a few steps of a tiny model each."""

import json
import re
from pathlib import Path

import pytest
from tiny_run import HELPERS

GUIDE = (Path(__file__).parents[3] / "docs/guides/rewards.md").read_text()
pytestmark = pytest.mark.slow


def written(name, folder):
    """Write the file that the guide shows under a name."""
    (text,) = re.findall(rf'^```python title="{re.escape(name)}"\n(.*?)^```$', GUIDE, re.DOTALL | re.MULTILINE)
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture(scope="module")
def rows(tiny_model, tmp_path_factory):
    """Images, prompts and target texts for the tiny model."""
    from tiny_run import tiny_config

    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.data.targets import TargetWriter

    folder, config = tmp_path_factory.mktemp("rows"), tiny_config()
    images, _ = draw_sets(config, folder / "data")
    writer = TargetWriter(config.data, True, 0, None)
    rows = []
    for number, instance in enumerate(images.instances):
        images.image(number).save(folder / f"{number}.png")
        rows.append((str(folder / f"{number}.png"), config.data.prompt, writer.text(instance)))
    return rows


def test_plug_in_of_trl(tiny_model, rows, tmp_path, forked):
    """Before the other one: ms-swift's rlhf takes parts of TRL's trainer away where it is imported."""
    written("coord_trl.py", tmp_path)
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    done = forked(HELPERS / "trl_reward.py", tiny_model, tmp_path, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "rewards.json").read_text())
    assert len(found["steps"]) == 3 and all(0 <= value <= 1 for values in found["steps"] for value in values)
    assert found["right"] == [1.0], "the markers of the target text were lost"


def test_plug_in_of_ms_swift(tiny_model, rows, tmp_path):
    pytest.importorskip("swift")
    from swift.pipelines import rlhf_main

    from coord_trainer.swift.template import apply_coord_template_adapter

    apply_coord_template_adapter()  # the tiny model's image token has another id than Qwen's
    lines = [
        {"messages": [{"role": "user", "content": f"<image>{prompt}"}], "images": [image], "solution": target}
        for image, prompt, target in rows
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = {
        "rlhf_type": "grpo",
        "model": tiny_model,
        "model_type": "qwen3_vl_coord",
        "template": "qwen3_vl_coord",
        "external_plugins": written("coord_reward.py", tmp_path),
        "reward_funcs": "coord_f1",
        "dataset": tmp_path / "train.jsonl",
        "output_dir": tmp_path / "out",
        "tuner_type": "full",
        "torch_dtype": "float32",
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_steps": 3,
        "max_completion_length": 16,
        "temperature": 1.0,
        "beta": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
        "split_dataset_ratio": 0,
        "use_vllm": "false",
        "use_hf": "true",
        "check_model": "false",
        "report_to": "none",
        "use_cpu": "true",
        "load_from_cache_file": "false",
        "dataset_num_proc": 1,
        "dataloader_num_workers": 0,
    }
    result = rlhf_main([word for name, value in given.items() for word in (f"--{name}", str(value))])
    logged = [line["rewards/CoordF1/mean"] for line in result["log_history"] if "rewards/CoordF1/mean" in line]
    assert len(logged) == 3 and all(0 <= value <= 1 for value in logged)
