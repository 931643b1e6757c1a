"""The command as a user runs it."""

import json
import subprocess
import sys

import pytest

from coord_eval import oracle_predictions
from coord_eval.cli import main


@pytest.fixture
def files(coco_set, tmp_path):
    truth, predictions = tmp_path / "truth.json", tmp_path / "predictions.jsonl"
    truth.write_text(json.dumps(coco_set))
    records = oracle_predictions(coco_set)
    predictions.write_text("".join(json.dumps(record) + "\n" for record in records))
    return ["--ground-truth", str(truth), "--predictions", str(predictions)]


def test_score_writes_both_files_and_says_what_came_out(files, tmp_path, capsys):
    assert main(["score", *files, "--out", str(tmp_path / "a" / "b")]) == 0
    data = json.loads((tmp_path / "a" / "b" / "evaluation.json").read_text())
    assert data["coco"] == data["ceiling"]
    assert (tmp_path / "a" / "b" / "report.html").stat().st_size > 5000
    printed = capsys.readouterr().out
    assert f"{data['coco']['AP']:.3f}" in printed
    assert "40 of 40 answers parse" in printed
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == ["evaluation.json", "report.html"]


def test_score_json_prints_the_file(files, tmp_path, capsys):
    assert main(["score", *files, "--out", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "evaluation.json").read_text())


def test_score_with_intervals(files, tmp_path, capsys):
    assert main(["score", *files, "--out", str(tmp_path / "o"), "--bootstrap", "20", "--seed", "3"]) == 0
    data = json.loads((tmp_path / "o" / "evaluation.json").read_text())
    row = data["intervals"]["AP"]
    assert row["low"] <= row["value"] == pytest.approx(data["coco"]["AP"])
    assert "95 % interval" in capsys.readouterr().out
    assert "95 % intervals over pictures" in (tmp_path / "o" / "report.html").read_text()


def test_an_empty_results_list_scores_zero_and_exits_zero(files, tmp_path):
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    assert main(["score", *files[:2], "--predictions", str(empty), "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "evaluation.json").read_text())["coco"]["AP"] == 0.0


def test_view_writes_the_pictures(files, tmp_path):
    assert main(["view", *files, "--out", str(tmp_path / "v"), "--count", "7"]) == 0
    assert (tmp_path / "v" / "report.html").read_text().count("<figure>") == 7


def test_parse_shows_objects_and_drops(tmp_path, capsys):
    path = tmp_path / "answer.txt"
    path.write_text(
        '```json\n[{"bbox_2d": [12, 34, 56, 78], "label": "cat"}, {"bbox_2d": [1, 2], "label": "x"}]'
    )
    assert main(["parse", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "0.012 0.034 0.056 0.078  'cat'  complete" in printed
    assert "dropped: wrong_arity" in printed
    assert "divided by 1000, 1000 (assumed)" in printed
    assert main(["parse", str(path), "--json", "--scale", "100"]) == 0
    assert json.loads(capsys.readouterr().out)["objects"][0]["box"] == [0.12, 0.34, 0.56, 0.78]


def test_parse_reads_predictions(files, capsys):
    assert main(["parse", files[3], "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 40


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["score"],
        ["nonsense"],
        ["parse", "x", "--scale", "0"],
        ["parse", "x", "--format", "yaml"],
    ],
)
def test_bad_usage_exits_2(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2


def test_bad_input_exits_2_without_a_traceback(files, tmp_path, capsys):
    (tmp_path / "p.jsonl").write_text('{"image_id": 1}\n')
    code = main(
        ["score", *files[:2], "--predictions", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "o")]
    )
    assert code == 2
    error = capsys.readouterr().err
    assert "p.jsonl, line 1, text" in error
    assert "Traceback" not in error
    assert not (tmp_path / "o").exists()


def test_a_folder_that_cannot_be_written_exits_1(files, tmp_path, capsys):
    (tmp_path / "taken").write_text("a file")
    assert main(["score", *files, "--out", str(tmp_path / "taken")]) == 1
    assert "taken" in capsys.readouterr().err


def test_a_full_disk_leaves_the_old_report_whole(files, tmp_path, monkeypatch, capsys):
    import os

    out = tmp_path / "out"
    assert main(["score", *files, "--out", str(out)]) == 0
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["score", *files, "--out", str(out), "--title", "new"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_a_reader_that_goes_away_is_no_failure(files):
    command = f"{sys.executable} -m coord_eval parse {files[3]} --json | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_as_a_module_and_as_a_command(files, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "coord_eval", "score", *files, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run(
        [sys.executable, "-m", "coord_eval", "--help"], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0
    assert "examples:" in shown.stdout
