"""The command line as somebody mistypes it: one line, the right exit code, nothing left behind."""

import json
import subprocess

import pytest
from PIL import Image

from coord_trainer import cli


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr("sys.argv", ["coord-trainer", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        told = capsys.readouterr()
        return stopped.value.code, told.err, told.out

    return call


@pytest.fixture
def coco(tmp_path):
    Image.new("RGB", (64, 64), (200, 0, 0)).save(tmp_path / "a.png")
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 64, "height": 64}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 32, 32]},
            {"id": 2, "image_id": 1, "category_id": 1, "bbox": [0, 0, 0, 32]},
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    return path


SOFT = "custom.coord_soft_ce_w1.enabled=true"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "-c", "nowhere.yaml"], "nowhere.yaml: no such config file"),
        (["train", SOFT, "data.anotations=a.json"], "did you mean annotations?"),
        (
            ["train", SOFT, "data.annotations=gone.json", "data.images=.", "evaluation.pictures=train"],
            "gone.json",
        ),
        (
            ["train", SOFT, "data.annotations=a.json", "data.images=nowhere", "evaluation.pictures=train"],
            "data.images",
        ),
        (["train", SOFT, "model.path=nowhere"], "model.path: no folder"),
        (["train", "custom.coord_objective.use_geom_loss=true"], "use_coordexp_loss"),
        (["train"], "coord_soft_ce_w1.enabled"),
        (
            [
                "train",
                SOFT,
                "data.annotations=a.json",
                "data.images=.",
                "evaluation.pictures=train",
                "--strict",
            ],
            "no area",
        ),
        (["prepare", "a.json", ".", "--out", "a.png"], "exists already"),
        (["evaluate", "nowhere", "--out", "a.png", SOFT], "exists already"),
        (["compare", "nowhere.yaml"], "base/shapes.yaml"),
        (["compare", "run.seed=1"], "base/shapes.yaml"),
        (["dance"], "dance"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(run, coco, tmp_path, words, told):
    before = sorted(p.name for p in tmp_path.iterdir())
    code, error, _ = run(*words)
    assert code == 2
    assert told in error
    assert "Traceback" not in error
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_prepare_writes_instances_and_lists_what_it_leaves_out(run, coco, tmp_path):
    code, _, out = run("prepare", coco, tmp_path, "--out", tmp_path / "out" / "a.jsonl")
    assert code == 0
    (line,) = (tmp_path / "out" / "a.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["image"] == "../a.png"
    assert record["objects"] == [{"desc": "cat", "bbox": [0.0, 0.0, 0.5, 0.5]}]
    assert "annotations[1]" in out


def test_a_checkpoint_that_wants_its_own_code_is_refused(run, coco, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"auto_map": {"AutoConfig": "evil.Config"}}')
    places = ["data.annotations=a.json", "data.images=.", "evaluation.pictures=train"]
    code, error, _ = run("train", SOFT, *places, "model.path=model", f"run.dir={tmp_path / 'run'}")
    assert code == 2
    assert "auto_map" in error


def test_an_older_run_is_moved_aside_not_lost(tmp_path):
    from coord_trainer.run_folder import open_run_folder

    (tmp_path / "run").mkdir()
    assert open_run_folder(tmp_path / "run") is None  # an empty folder is nothing to keep
    (tmp_path / "run" / "report.html").write_text("old")
    assert open_run_folder(tmp_path / "run") == tmp_path / "run.1"
    (tmp_path / "run" / "report.html").write_text("newer")
    assert open_run_folder(tmp_path / "run") == tmp_path / "run.2"
    assert (tmp_path / "run.1" / "report.html").read_text() == "old"


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs more rights than this user has")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_told_and_leaves_no_half_checkpoint(run, coco, small_disk):
    words = ["data.annotations=a.json", "data.images=.", "evaluation.pictures=train", "training.max_steps=1"]
    code, error, _ = run("train", SOFT, *words, f"run.dir={small_disk / 'run'}")
    assert code == 1
    assert "no space left" in error
    assert "Traceback" not in error
    assert not list((small_disk / "run").glob("checkpoints/checkpoint-*"))
    assert not (small_disk / "run" / "report.html").exists()
