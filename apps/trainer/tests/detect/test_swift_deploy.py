"""`swift deploy` of the tiny model on the loopback says what the same weights say in this process, token by token."""

import json
from pathlib import Path

import numpy as np
import pytest
from deployed import deployed
from PIL import Image

pytest.importorskip("swift")


@pytest.mark.slow
def test_answers_of_swift_deploy_are_those_of_this_process(tmp_path, run):
    pytest.importorskip("openai")
    from tiny_run import tiny_config

    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import base_checkpoint

    config = tiny_config()
    train, _ = draw_sets(config, tmp_path / "data")
    model = Path(base_checkpoint(config, tmp_path, train))
    images = tmp_path / "images"
    images.mkdir()
    for name, size in (("a.png", (96, 96)), ("b.png", (96, 64)), ("c.png", (64, 96))):
        pixels = np.random.default_rng(len(name) + size[0]).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / name)
    words = ("predict", model, images, "--no-draw", "evaluation.max_new_tokens=24", "data.markers=obj")
    (tmp_path / "system.txt").write_text("You name what you see.")
    words += (f"training.system={tmp_path / 'system.txt'}",)
    assert run(*words, "--out", tmp_path / "here")[0] == 0
    with deployed(model, tmp_path / "server.log") as url:
        code, _, told = run(*words, "--out", tmp_path / "there", "--endpoint", url, "--model", "tiny")
        assert code == 0, told
    here, there = (
        [json.loads(line) for line in (tmp_path / name / "predictions.jsonl").read_text().splitlines()]
        for name in ("here", "there")
    )
    assert len(here) == 3
    for mine, served in zip(here, there, strict=True):
        assert mine["text"] and mine["text"] == served["text"]
        assert mine["finish_reason"] == served["finish_reason"]
        assert served["coord_logprobs"] == pytest.approx(mine["coord_logprobs"], abs=1e-4)
        assert all(low <= high + 1e-6 for low, high in zip(served["coord_mass"], mine["coord_mass"], strict=True))
        assert np.all(np.array(served["coord_mass"]) > np.exp(served["coord_logprobs"]) + 1e-6)
