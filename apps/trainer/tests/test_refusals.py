"""Wrong invocations and files through the command line itself: exit code 2, one line that names key or file."""

import json
import re
from types import SimpleNamespace

import pytest
from coco_document import coco_document
from PIL import Image

SOFT = "custom.coord_soft_ce_w1.enabled=true"
DATA = ("data.annotations=a.json", "data.images=.", "evaluation.images=train")
COCO = coco_document([{"bbox": [1, 2, 30, 40], "area": 1200.0, "iscrowd": 0}])


@pytest.fixture
def call(run, tmp_path):
    """Run the command line in a folder of right and wrong things; returns exit code and the lines of stderr."""
    Image.new("RGB", (64, 64)).save("a.png")
    for name in ("empty", "whole", "run/checkpoints"):
        (tmp_path / name).mkdir(parents=True)
    files = {
        "a.json": json.dumps(COCO),
        "broken.json": '{"images": [',
        "list.json": "[1, 2]",
        "broken.yaml": "run: [",
        "text.jsonl": "no json\n",
        "whole/config.json": "{}",
        "zero3.json": '{"zero_optimization": {"stage": 3}}',
        "bad.json": "{",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def lines_of(*words):
        code, error, _ = run(*words)
        assert "Traceback" not in error
        # Progress bars write over themselves.
        lines = [line.rsplit("\r", 1)[-1].strip() for line in error.splitlines()]
        return code or 0, [line for line in lines if line and "img/s" not in line]

    return lines_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        # settings
        ("train training.learning_rate=fast", "training.learning_rate"),
        ("train training.loss_type=mse", "training.loss_type"),
        ("train training.deepspeed=bad.json evaluation.ap_steps=1", "bad.json"),
        ("train training.deepspeed=zero3.json evaluation.ap_steps=1", "evaluation.ap_steps"),
        ("train run.dir=", "run.dir=: expected a value"),
        ("train -c .", "expected a config file, found a folder"),
        ("train run.dir=[", "run.dir"),
        # files
        ("train -c a.png", "a.png"),
        ("train data.annotations=nowhere.json", "nowhere.json"),
        ("train data.annotations=empty", "empty"),
        ("train data.annotations=broken.json", "broken.json"),
        ("train data.annotations=list.json", "list.json"),
        ("train data.annotations=text.jsonl", "text.jsonl"),
        ("train data.annotations=a.png", "a.png"),
        ("train data.images=a.json", "images: expected"),
        ("train data.images=empty", "a.json"),
        ("train run.dir=run run.resume=true", "run"),
        ("train run.dir=a.png run.resume=true", "run.dir=a.png is a file"),
        # checkpoints
        ("train model.path=nowhere", "model.path"),
        ("train model.path=empty", "config.json"),
        ("train model.path=a.png", "model.path"),
        ("predict nowhere a.png --out out", "nowhere"),
        ("predict empty a.png --out out", "empty"),
        ("predict run a.png --out out", "run: a run folder without a complete checkpoint"),
        ("evaluate whole --out out", "whole"),
        # other commands
        ("prepare nowhere.json . --out out.jsonl", "nowhere.json"),
        ("prepare a.json nowhere --out out.jsonl", "nowhere"),
        ("prepare a.json a.png --out out.jsonl", "a.png"),
        ("prepare empty . --out out.jsonl", "empty"),
    ],
)
def test_wrong_invocation_is_one_line_that_names_it(call, words, told):
    command, *rest = words.split()
    given = [SOFT, *DATA] if command in ("train", "inspect", "evaluate") else []
    if command in ("train", "inspect") and any("data.annotations=" in word for word in rest):
        given.remove(DATA[0])
    code, lines = call(command, *given, *rest) if command in ("train", "inspect") else call(command, *rest, *given)
    assert (code, len(lines)) == (2, 1), lines
    assert told in lines[0]


def test_several_wrong_settings_are_a_line_each(call):
    code, lines = call("train", SOFT, "training.max_steps=-5", "training.optim=adam", "run.seed=x")
    assert code == 2 and len(lines) == 3
    assert {"training.max_steps", "training.optim", "run.seed"} == {
        found for line in lines for found in re.findall(r"(?:training|run)\.\w+(?=:)", line)[:1]
    }


def test_more_ranks_than_images_is_one_line(call, monkeypatch, tmp_path):
    from coord_trainer import run

    monkeypatch.setattr(run, "world_size", lambda: 2)
    code, (line,) = call("train", SOFT, *DATA, "run.dir=new")
    assert code == 2 and "1 usable training image for 2 ranks" in line and not (tmp_path / "new").exists()
    monkeypatch.setattr(run, "load_data", lambda *_: SimpleNamespace(train=[1, 2]))
    config = SimpleNamespace(data=SimpleNamespace(given=False))
    assert len(run._load(config, tmp_path).train) == 2
