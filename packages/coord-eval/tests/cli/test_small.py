"""Every command on two images: what it passes on, writes, prints and refuses."""

import json

import pytest
from coco_builder import coco

from coord_eval import Calibration, ReportSettings, merge, score
from coord_eval.cli import options
from coord_eval.cli.main import main

TRUTH = coco(
    (1, 1, [10, 10, 40, 40]), (2, 1, [10, 10, 40, 40]), (2, 2, [60, 60, 30, 30]), names=("cat", "dog"), images=(1, 2)
)
FOUND = [
    {"image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 40], "score": 0.9},
    {"image_id": 2, "category_id": 2, "bbox": [61, 60, 30, 30], "score": 0.7},
    {"image_id": 2, "category_id": 2, "bbox": [60, 61, 30, 30], "score": 0.6},
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    contents = {"t": TRUTH, "a": FOUND, "b": FOUND[1:]}
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


SCORE = ["score", "--ground-truth", "t.json", "--predictions", "a.json", "--out", "r"]


@pytest.mark.slow
def test_options_of_score_act_in_what_it_writes(folder, capsys):
    words = ["--fuse", "nms:0.5", "--bootstrap", "3", "--seed", "5", "--iou", "0.3", "0.6", "--max-dets", "1", "7"]
    assert main([*SCORE, *words, "--area", "mid=100:1000", "--no-report", "--json", "--export"]) == 0
    written = json.loads((folder / "r" / "evaluation.json").read_text())
    assert json.loads(capsys.readouterr().out) == written
    names = {"evaluation.json", "images.csv", "classes.csv", "coco_results.json", "fiftyone.json"}
    assert {path.name for path in (folder / "r").iterdir()} == names
    assert written["fusion"]["rule"] == "nms:0.5" and written["counts"]["detections"] == 2
    whole = score(TRUTH, [FOUND[0], FOUND[1]], report=ReportSettings(bootstrap=3, seed=5))
    assert written["intervals"]["recall"] == whole.intervals["recall"] != {}
    assert [*written["coco_own"]] == ["AP", "AP@0.3", "AP@0.6", "AR@1", "AR@7", "AP_mid", "AR_mid"]
    assert main([*SCORE, "--title", "My <title>", "--diagnose"]) == 0
    text, printed = (folder / "r" / "report.html").read_text(), capsys.readouterr().out
    assert "<h1>My &lt;title&gt;" in text and "a.json" in text and "t.json" in text
    assert "diagnosis: " in printed and f"report: {folder / 'r' / 'report.html'}".endswith(
        printed.split("report: ")[1].strip()
    )
    assert main([*SCORE, "--no-report"]) == 0
    printed = capsys.readouterr().out
    assert "diagnosis: " not in printed and "evaluation: " in printed


@pytest.mark.slow
def test_a_folder_of_parts_is_merged_with_intervals_and_other_files_are_left_out(folder, capsys):
    (folder / "parts").mkdir()
    for n in (1, 2):
        rows = [row for row in FOUND if row["image_id"] == n]
        (folder / "parts" / f"{n}.json").write_text(json.dumps(rows))
    (folder / "parts" / "notes.txt").write_text("no predictions")
    words = [*SCORE[:4], "parts", *SCORE[5:], "--no-report", "--json", "--bootstrap", "3", "--seed", "5"]
    assert main(words) == 0
    parts = [score(TRUTH, [row for row in FOUND if row["image_id"] == n]) for n in (1, 2)]
    expected = merge(parts, bootstrap=3, seed=5)
    written = json.loads(capsys.readouterr().out)
    assert (written["coco"], written["intervals"]) == (expected.coco, expected.intervals)
    whole = score(TRUTH, FOUND, report=ReportSettings(bootstrap=3, seed=5))
    assert written["intervals"] == whole.intervals != {}
    assert written["coco"] == score(TRUTH, FOUND).coco and not any("diagnosis" in note for note in written["notes"])


FUSE = ["fuse", "a=a.json", "b=b.json", "--out", "f.json"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fuse", "a=a.json", "a=b.json", "--out", "f.json"], "two files are called 'a'"),
        ([*FUSE, "--ground-truth", "t.json", "--calibration", "a=a.json"], "--calibration has no place beside"),
        ([*FUSE[:3], "--out", "t.json", "--ground-truth", "t.json"], "--out: t.json is one of the inputs"),
        ([*FUSE[:3], "--out", "b.json"], "--out: b.json is one of the inputs"),
        ([*FUSE[:3], "--out", "c.json", "--calibration", "a=c.json"], "--out: c.json is one of the inputs"),
        (["calibrate", *SCORE[1:5], "--out", "a.json"], "--out: a.json is one of the inputs"),
        (["calibrate", *SCORE[1:5], "--out", "t.json"], "--out: t.json is one of the inputs"),
        (["calibrate", *SCORE[1:5], "--out", "c.json"], "too little to rest on"),
        (["compare", *SCORE[1:3], "x=a.json", "x=a.json"], "a.json is named twice"),
        (["compare", *SCORE[1:3], "a.json"], "at least two runs"),
        (["review", *SCORE[1:5]], "review: --out is missing"),
        (["review", *SCORE[1:3], "--out", "r"], "review: --predictions is missing"),
        (["review", *SCORE[3:]], "review: --ground-truth is missing"),
        (["review", *SCORE[1:], "--export", "cvat,excel"], "--export: expected some of"),
        (["parse", "a.txt", "--scale", "pixels"], "--scale pixels: needs the size of the image"),
        ([*SCORE, "--iou", "1.5"], "iou"),
        ([*SCORE, "--area", "mid=9:1"], "areas"),
    ],
)
def test_wrong_words_exit_2_and_say_what_is_wrong(folder, capsys, words, told):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(words) == 2
    error = capsys.readouterr().err
    assert told in error and "Traceback" not in error
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_fuse_weighs_keeps_and_tells_what_it_did(folder, capsys):
    assert main([*FUSE, "--weight", "1", "3", "--method", "nms:0.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rule"], told["objects"], "choice" in told) == ("nms:0.5", 2, False)
    assert sorted(row["score"] for row in json.loads((folder / "f.json").read_text())) == pytest.approx([0.225, 0.525])
    assert main([*FUSE]) == 0
    printed = capsys.readouterr().out
    assert "5 boxes of 2 images became 2, by wbf:0.55" in printed and printed.endswith("fused: f.json\n")
    assert (
        "  a: 3 boxes: 1 merged with others', 1 near-duplicates of its own, 1 found by it alone; scored by" in printed
    )
    assert main([*FUSE, "--ground-truth", "t.json"]) == 0
    printed = capsys.readouterr().out
    assert "a alone  <- chosen" in printed and "by a alone" in printed and "merged with" not in printed
    assert [row["score"] for row in json.loads((folder / "f.json").read_text())] == [0.9, 0.7, 0.6]


@pytest.mark.slow
def test_view_compare_and_review_write_their_files(folder, capsys):
    assert main(["view", *SCORE[1:], "--count", "1"]) == 0
    text = (folder / "r" / "report.html").read_text()
    assert text.count('<figure class="shot"') == 1 and "Images of a" in text and "t.json" in text
    runs = ["compare", "--ground-truth", "t.json", "base=a.json", "b.json", "--resamples", "3", "--seed", "4"]
    capsys.readouterr()
    assert main([*runs, "--json", "--out", "c"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "c" / "comparison.json").read_text())
    assert (printed["resamples"], printed["seed"], [*printed["metrics"]]) == (3, 4, ["base", "b.json"])
    assert main(runs) == 0 and "b.json against base" in capsys.readouterr().out
    assert main(["review", *SCORE[1:-1], "v", "--export", "cvat, coco", "--title", "Mine", "--least", "0"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("3 labels judged, ") and printed.count("export: ") == 2 and "review: " in printed
    assert "Mine" in (folder / "v" / "review.html").read_text()


def test_values_after_an_option_that_repeats_are_its_own_until_the_next_option():
    words = ["score", "--iou", "0.5", "0.75", "--out", "r", "x", "--max-dets=1", "7", "--json"]
    told = options.repeat_options(words, "--iou", "--max-dets")
    assert told == [
        *("score", "--iou", "0.5", "--iou", "0.75", "--out", "r", "x"),
        *("--max-dets=1", "--max-dets", "7", "--json"),
    ]


@pytest.mark.slow
def test_calibrate_writes_the_map_that_it_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    boxes = [(i, 1, [10.0, 10.0, 40.0, 40.0]) for i in range(25)]
    rows = [{"image_id": i, "category_id": 1, "bbox": box, "score": 0.5 + i / 100} for i, _, box in boxes]
    rows += [{**row, "bbox": [60.0, 60.0, 9.0, 9.0], "score": 0.01 * k} for k, row in enumerate([*rows, *rows])]
    (tmp_path / "t.json").write_text(json.dumps(coco(*boxes, images=range(25))))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    words = ["calibrate", *SCORE[1:5], "--out", "c.json", "--seed", "3"]
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "c.json").read_text() and json.loads(printed)["rests_on"]["seed"] == 3
    assert main(words) == 0
    lines = [*Calibration.read("c.json").lines()]
    printed = capsys.readouterr().out.splitlines()
    assert printed[: len(lines)] == lines and printed[-1] == "calibration: c.json"
