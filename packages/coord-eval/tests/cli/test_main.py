"""The command as a user runs it."""

import json
import os
import re
import subprocess
import sys

import pytest

from coord_eval import AnswerSettings, score
from coord_eval.cli.main import main
from coord_eval.cli.summaries import evaluation_lines


@pytest.mark.slow
def test_score_writes_report_and_prints_summary(files, tmp_path, capsys):
    drawn = ["--bootstrap", "20", "--seed", "3"]
    assert main(["score", *files, "--out", str(tmp_path / "a" / "b"), *drawn]) == 0
    data = json.loads((tmp_path / "a" / "b" / "evaluation.json").read_text())
    assert data["coco"] == data["ceiling"]
    row = data["intervals"]["AP"]
    assert row["low"] <= row["value"] == pytest.approx(data["coco"]["AP"])
    report, printed = (tmp_path / "a" / "b" / "report.html").read_text(), capsys.readouterr().out
    assert "95 % interval" in printed and "95 % confidence intervals (bootstrap over images)" in report
    assert f"{data['coco']['AP']:.3f}" in printed
    assert "20 of 20 answers parsed" in printed
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == ["evaluation.json", "report.html"]
    assert main(["score", *files, "--out", str(tmp_path / "c"), "--no-report", "--json", *drawn]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "c" / "evaluation.json").read_text()) == data
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["evaluation.json"]


@pytest.mark.slow
def test_score_names_labels_that_the_ground_truth_does_not_have(files, tmp_path, capsys):
    path = tmp_path / "predictions.jsonl"
    answers = path.read_text()
    names = ("cat", "dog", "red car", "person", "T-shirt", "traffic light")
    often = sorted(names, key=lambda name: -answers.count(f"start>{name}<"))
    path.write_text(answers.replace("start>", "start>a "))
    assert main(["score", *files, "--out", str(tmp_path), "--no-report"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "labels that the ground truth" in line]
    counts = {name: answers.count(f"start>{name}<") for name in often}
    assert line.startswith(f"{sum(counts.values())} boxes with labels that the ground truth does not have, counted")
    assert line.endswith(" and 1 more") and f": 'a {often[0]}' ({counts[often[0]]}), " in line


def test_view_writes_the_requested_number_of_images(files, tmp_path):
    assert main(["view", *files, "--out", str(tmp_path / "v"), "--count", "7"]) == 0
    assert (tmp_path / "v" / "report.html").read_text().count('<figure class="shot"') == 7


@pytest.mark.parametrize(
    "arguments", [["score"], ["nonsense"], ["parse", "x", "--scale", "0"], ["parse", "x", "--format", "yaml"]]
)
def test_usage_error_exits_2(arguments, capsys):
    assert main(arguments) == 2
    assert "Usage: coord-eval" in capsys.readouterr().err
    assert main([]) == 2
    assert "Missing command" in capsys.readouterr().err


def test_input_error_exits_2_without_a_traceback(files, tmp_path, capsys):
    (tmp_path / "p.jsonl").write_text('{"image_id": 1}\n')
    code = main(["score", *files[:2], "--predictions", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "o")])
    assert code == 2
    error = capsys.readouterr().err
    assert "p.jsonl, line 1: text" in error
    assert "Traceback" not in error
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
def test_full_disk_exits_1_and_keeps_the_old_report(files, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    out.mkdir()
    before = dict.fromkeys(("evaluation.json", "report.html"), b"old")
    for name, content in before.items():
        (out / name).write_bytes(content)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["score", *files, "--out", str(out), "--title", "new"]) == 1
    assert "no space left" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


@pytest.mark.slow
def test_broken_pipe_exits_0_in_silence(files):
    command = f"{sys.executable} -m coord_eval parse {files[3]} --json | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_score_leniently_leaves_out_faulty_records(coco_set, files, tmp_path, capsys):
    coco_set["annotations"].append({**coco_set["annotations"][0], "image_id": 4711})
    (tmp_path / "truth.json").write_text(json.dumps(coco_set))
    command = ["score", *files, "--out", str(tmp_path / "o"), "--no-report"]
    assert main(command) == 2
    assert "image_id: 4711 is not the id of an image" in capsys.readouterr().err
    assert main([*command, "--lenient"]) == 0
    assert "note: 1 fault in the ground truth" in capsys.readouterr().out


@pytest.mark.slow
def test_help_and_usage_errors_load_nothing_slow():
    """They answer at once: NumPy and all that builds on it are imported by the commands."""
    words = [["--help"], ["score", "--help"], ["compare", "--help"], ["score"], ["lvis", "--boxes", "x"], []]
    code = (
        "import sys\n"
        "from coord_eval.cli.main import main\n"
        "slow = ('numpy', 'pycocotools', 'matplotlib', 'PIL', 'rich', 'coord_eval.scoring')\n"
        f"for words in {words!r}:\n"
        "    code = main(words)\n"
        "    print('loaded', code, words, *[m for m in slow if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert told == [f"loaded {0 if '--help' in each else 2} {each}" for each in words]


@pytest.mark.slow
def test_choices_of_options_equal_those_of_the_library(capsys):
    """Closed ones are those of the record; the others, which users add to, are asked when an option is read."""
    from typing import get_args

    from coord_codec import MARKERS, Order
    from coord_eval import FORMATS, SCORE_SOURCES
    from coord_eval.intake.box_sources import STATED_IN

    assert main(["score", "--help"]) == 0
    listed = re.findall(r"^  --(\S+) <([^>]*[|][^>]*)>", capsys.readouterr().out, re.MULTILINE)
    choices = {name: set(words.split("|")) for name, words in listed}
    assert choices["boxes"] == {"tokens", *STATED_IN}
    assert choices["score-source"] == {"auto", *SCORE_SOURCES} - {"results"}
    assert choices["markers"] == set(MARKERS) and choices["order"] == set(get_args(Order))
    for name in ("auto", *FORMATS):
        assert main(["parse", "nowhere", "--format", name]) == 2 and "Invalid value" not in capsys.readouterr().err
    assert main(["parse", "nowhere", "--format", "yaml"]) == 2
    assert "'--format': expected one of auto, obj" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lvis", "expressions"])
def test_help_of_a_command_has_examples(name, capsys):
    for words, code in (([name, "--help"], 0), ([name], 2), ([name, "--scale", "-1"], 2)):
        assert main(words) == code
    assert f"  coord-eval {name} --ground-truth" in capsys.readouterr().out


@pytest.mark.slow
def test_score_takes_defaults_and_an_empty_results_list_with_options_for_text(results, tmp_path, capsys):
    words = ["score", *results, "--out", "r", "--no-report"]
    assert main([*words, "--format", "auto", "--score-source", "auto"]) == 0
    (tmp_path / "results.json").write_text("[]")
    assert main([*words, "--scale", "1000"]) == 0
    assert json.loads((tmp_path / "r" / "evaluation.json").read_text())["coco"]["AP"] == 0.0


@pytest.mark.slow
def test_compare_notes_the_runs_on_which_options_for_text_have_no_effect(results, capsys):
    runs = ["words=predictions.jsonl", "boxes=results.json"]
    common = ["compare", *results[:2], "--resamples", "5", "--format", "obj"]
    assert main([*common, *runs]) == 0
    assert "scores itself: format had no effect" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["score", "view"])
@pytest.mark.parametrize(("name", "found"), [("nowhere", "nothing"), ("truth.json", "a file")])
def test_images_that_are_no_folder_are_refused(files, tmp_path, monkeypatch, capsys, command, name, found):
    monkeypatch.chdir(tmp_path)
    assert main([command, *files, "--out", "r", "--images", name]) == 2
    told = capsys.readouterr().err
    assert told == f"error: --images: expected the folder of the images, found {found} at {name}\n"
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_compare_takes_files_whose_path_has_an_equals_sign(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("lr=1", "lr=1=2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.jsonl").write_bytes((tmp_path / "predictions.jsonl").read_bytes())
    runs = ["base=predictions.jsonl", "lr=1/p.jsonl", "new=lr=1/p.jsonl", "more=lr=1=2/p.jsonl"]
    assert main(["compare", *files[:2], *runs, "--resamples", "5", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["metrics"]) == ["base", "lr=1/p.jsonl", "new", "more"]


def test_console_shows_the_scores_of_shapes_and_no_boxes_of_points(coco_set):
    text = '[{"point_2d": [100, 100], "label": "cat"}]'
    records = [{"image_id": image["id"], "text": text} for image in coco_set["images"]]
    evaluation = score(coco_set, records, answers=AnswerSettings(scale=1000, geometry="point"))
    lines = [line.split() for line in evaluation_lines(evaluation)]
    values = {words[0]: words[1:] for words in lines if len(words) == 3}
    shapes = evaluation.shapes
    assert values["mean"] == [f"{shapes['mean']:.3f}", f"{shapes['ceiling']['mean']:.3f}"]
    assert not any("IoU" in words for words in lines)
    assert evaluation.brief().startswith("point: AP") and f"{shapes['ceiling']['AP']:.3f}" in evaluation.brief()
    assert "boxes" not in repr(evaluation)
