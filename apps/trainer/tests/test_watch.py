"""`watch`: the page of a run folder, and what it says about the steps left."""

import json
import os

import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from coord_codec import InputError
from coord_trainer.cli import app
from coord_trainer.watch import run_page, seconds_left, total_steps, watch

STARTED = 1_700_000_000


@pytest.fixture
def run(tmp_path):
    """A running run after 40 of 100 steps and 80 seconds, with answers to one image at two steps."""
    folder = tmp_path / "run"
    folder.mkdir()
    Image.new("RGB", (40, 30), "white").save(tmp_path / "a.png")
    manifest = {"status": "running", "started": "2023-11-14T22:13:20Z", "seed": 0, "git": None, "versions": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "config.yaml").write_text(yaml.safe_dump({"training": {"num_train_epochs": 2}}))
    lines = [{"step": step, "epoch": step / 50, "train_total_loss": 4.0 / step, "eval_AP": 0.25} for step in (20, 40)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(folder / "metrics.jsonl", (STARTED + 80, STARTED + 80))
    image = {"image": "a.png", "file": str(tmp_path / "a.png"), "truth": [["cat", 0.1, 0.1, 0.5, 0.5]]}
    rows = [
        {"step": 20, "images": [image | {"boxes": []}]},
        {"step": 40, "images": [image | {"boxes": [["<b>", 0.1, 0.1, 0.5, 0.6]]}]},
    ]
    (folder / "watched.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_page_of_a_run_states_progress_and_shows_boxes_over_time(run):
    text = run_page(run, 10)
    assert "<b>40</b><small>of about 100</small>" in text and "<b>2 min</b>" in text
    assert text.count("<image ") == 2 and "&lt;b&gt;" in text and "<title><b>" not in text
    assert '<meta http-equiv="refresh" content="10">' in text


def test_steps_and_seconds_left_follow_the_log(run):
    lines = [{"step": 40, "epoch": 0.8}]
    assert total_steps(lines, {"num_train_epochs": 2}) == 100
    assert total_steps(lines, {"max_steps": 70, "num_train_epochs": 2}) == 70
    assert total_steps([], {}) is None
    manifest = json.loads((run / "manifest.json").read_text())
    assert seconds_left(lines, 100, manifest, run / "metrics.jsonl") == pytest.approx(120)
    assert seconds_left([], 100, manifest, run / "metrics.jsonl") is None


def test_watch_writes_the_page_once_and_refuses_a_folder_without_a_run(run, tmp_path):
    assert CliRunner().invoke(app, ["watch", str(run), "--once"]).exit_code == 0
    assert (run / "watch.html").read_text().endswith("</html>\n") and "refresh" not in (run / "watch.html").read_text()
    with pytest.raises(InputError, match=r"expected a run folder with manifest\.json"):
        watch(tmp_path, 0, 1, True)
