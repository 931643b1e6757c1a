"""Every option of a command reaches the function that it is about."""

import json
from pathlib import Path

import pytest

from coord_eval import AnswerSettings, ReportSettings
from coord_eval.cli.main import main
from coord_eval.cli.options import name_and_file, repeat_options


class Recorder:
    """Stands for a function and for its result: what is called, with which arguments, in turn."""

    notes, name, chosen, file, list = ("a note",), "", None, "f", "l"
    findings, judged, truth = (), (), None

    def __init__(self, calls, name):
        self.calls, self.name = calls, name
        self.counts = {"boxes": 1, "images": 1, "objects": 1, "rule": "x alone", "files": {}}

    def __call__(self, *values, **named):
        self.calls.append((self.name, values, {key: value for key, value in named.items() if key != "progress"}))
        return Recorder(self.calls, f"{self.name}()")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Recorder(self.calls, f"{self.name}.{name}")

    def __iter__(self):
        return iter(())


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Runs words of the command and returns the calls of the functions behind it, by name, and what was printed."""
    monkeypatch.chdir(tmp_path)
    for name in ("t.json", "p.json", "q.json", "l.jsonl", "c.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "pics").mkdir()

    def run(words, *targets):
        made = []
        for target in targets:
            monkeypatch.setattr(target, Recorder(made, target.rpartition(".")[2]))
        monkeypatch.setattr("coord_eval.cli.options.print_summary", lambda lines, notes: None)
        assert main(words.split()) == 0
        return made

    return run


SCORE, COMPARE, REVIEW = "coord_eval.scoring.score", "coord_eval.comparison.compare.compare", "coord_eval.review.review"
GIVEN = "--ground-truth t.json --predictions p.json --out o"
SETTINGS = (
    "--score-source constant --backend pycocotools --format json --scale 7 --boxes median --ignore-label x --in-order "
    "--fuse nms:0.5 --calibration c.json --lenient"
)
ANSWERS = AnswerSettings(
    format="json",
    scale=7.0,
    boxes="median",
    ignored_labels=("x",),
    in_order=True,
    fuse="nms:0.5",
    calibration=Path("c.json"),
)
T, P, O = Path("t.json"), Path("p.json"), Path("o")


def settings_of(call):
    _, values, named = call
    lenient = named["labels"].lenient
    return values, named["score_source"], named["backend"], named["answers"], lenient


def test_options_of_score_reach_the_evaluation_and_its_report(calls):
    made = calls(
        f"score {GIVEN} {SETTINGS} --bootstrap 5 --seed 3 --diagnose --images pics --title A --iou 0.5 0.6", SCORE
    )
    assert settings_of(made[0]) == ((T, P), "constant", "pycocotools", ANSWERS, True)
    report = made[0][2]["report"]
    assert (report.bootstrap, report.seed, report.diagnose, report.image_root) == (5, 3, True, Path("pics"))
    assert list(report.params.iou_thresholds) == [0.5, 0.6]
    facts = {"predictions": "p.json", "ground truth": "t.json"}
    assert made[1] == ("score().write_report", (O,), {"image_root": Path("pics"), "title": "A", "facts": facts})
    plain = calls(f"score {GIVEN}", SCORE)
    assert (plain[0][2]["report"].params, plain[1][2]["title"]) == (None, "p")


def test_options_of_score_reach_each_part_and_their_sum(calls, tmp_path):
    (tmp_path / "parts").mkdir()
    for name in ("b.json", "a.jsonl", "c.txt"):
        (tmp_path / "parts" / name).write_text("{}")
    words = "score --ground-truth t.json --predictions parts --out o --bootstrap 5 --seed 3"
    made = calls(words, SCORE, "coord_eval.parts.merge")
    assert [call[1][1].name for call in made[:2]] == ["a.jsonl", "b.json"]
    assert {(call[2]["report"].bootstrap, call[2]["report"].diagnose) for call in made[:2]} == {(0, False)}
    assert (made[2][0], len(made[2][1][0]), made[2][2]) == ("merge", 2, {"bootstrap": 5, "seed": 3})
    assert calls(f"{words} --diagnose", SCORE, "coord_eval.parts.merge")[0][2]["report"].diagnose is True


def test_options_of_view_compare_and_calibrate_reach_their_functions(calls):
    made = calls(f"view {GIVEN} {SETTINGS} --count 7 --images pics", SCORE)
    assert settings_of(made[0]) == ((T, P), "constant", "pycocotools", ANSWERS, True)
    assert (made[1][1], made[1][2]["max_overlays"], made[1][2]["image_root"]) == ((O,), 7, Path("pics"))
    assert made[1][2]["title"] == "Images of p"
    words = f"compare a=p.json a=l.jsonl q.json --ground-truth t.json {SETTINGS} --resamples 9 --seed 4"
    words += " --out o --images pics"
    made = calls(words, SCORE, COMPARE)
    assert [call[1][1].name for call in made[:3]] == ["p.json", "l.jsonl", "q.json"]
    assert all(settings_of(call)[1:] == ("constant", "pycocotools", ANSWERS, True) for call in made[:3])
    name, (runs, *more), _ = made[3]
    assert (name, {key: len(own) for key, own in runs.items()}, more[:2]) == ("compare", {"a": 2, "q.json": 1}, [9, 4])
    assert made[4] == ("compare().write_report", (O,), {"image_root": Path("pics")})
    fitted = "coord_eval.calibration.calibration.fit_calibration"
    made = calls(f"calibrate {GIVEN} --seed 6 {SETTINGS}", SCORE, fitted)
    assert settings_of(made[0]) == ((T, P), "constant", "pycocotools", ANSWERS, True)
    assert (made[0][2]["report"].diagnose, made[1][0], made[1][2]) == (False, "fit_calibration", {"seed": 6})
    assert made[2] == ("fit_calibration().write", (O,), {})


def test_options_of_review_and_expressions_and_lvis_reach_their_functions(calls):
    words = f"review {GIVEN} --score-source stated --scale 7 --images pics --likelihoods l.jsonl --calibration c.json"
    made = calls(f"{words} --least 0.25 --count 4 --title B", REVIEW)
    name, values, named = made[0]
    assert (name, values, named["likelihoods"], named["calibration"]) == (
        "review",
        (T, P),
        Path("l.jsonl"),
        Path("c.json"),
    )
    assert (named["least"], named["score_source"], named["answers"].scale) == (0.25, "stated", 7)
    facts = {"predictions": "p.json", "ground truth": "t.json"}
    assert made[1] == ("review().write", (O,), {"image_root": Path("pics"), "title": "B", "most": 4, "facts": facts})
    target = "coord_eval.metrics.expressions.score_expression_files"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coord_eval.cli.main._output", lambda scores, lines, file, as_json: print(file, as_json))
        made = calls(
            f"expressions {GIVEN} --iou 0.5 0.75 --which best --scale 7 --format json --geometry point", target
        )
        assert made[0][1] == (T, P, [0.5, 0.75])
        answers = AnswerSettings(scale=7.0, format="json", geometry="point")
        assert made[0][2] == {"which": "best", "answers": answers}
        made = calls(f"lvis {GIVEN} --score-source stated --scale 7", "coord_eval.metrics.lvis.score_lvis")
        assert made[0][1] == (T, P) and made[0][2]["answers"] == AnswerSettings(scale=7.0)
        assert made[0][2]["score_source"] == "stated"


@pytest.mark.parametrize("with_truth", [False, True])
def test_options_of_fuse_reach_the_choice_and_the_fusion(calls, with_truth):
    targets = ["coord_eval.fusion.ensemble.fuse_predictions", SCORE, "coord_eval.fusion.choice.choose_fusion"]
    targets.append("coord_eval.calibration.calibration.Calibration.read")
    words = "fuse a=p.json q.json --out o.jsonl --method nms:0.4 --weight 2 1 --score-source stated --scale 7"
    made = calls(words + (" --ground-truth t.json" if with_truth else " --calibration a=c.json"), *targets)
    answers, by_name = AnswerSettings(scale=7.0), {call[0]: call for call in made}
    _, (files,), named = by_name["fuse_predictions"]
    assert files == {"a": P, "q.json": Path("q.json")}
    assert (named["method"], named["answers"], named["score_source"]) == ("nms:0.4", answers, "stated")
    assert by_name["fuse_predictions().write"][1] == (Path("o.jsonl"),)
    if not with_truth:
        assert (named["weights"], list(named["calibrations"]), named["alone"]) == ([2, 1], ["a"], None)
        assert by_name["read"][1] == (Path("c.json"),)
        return
    rated = [call for call in made if call[0] == "score"]
    assert [call[1] for call in rated] == [(T, P), (T, Path("q.json"))]
    assert all(call[2]["report"] == ReportSettings(diagnose=False) for call in rated)
    assert all((call[2]["answers"], call[2]["score_source"]) == (answers, "stated") for call in rated)
    _, (runs, rule), more = by_name["choose_fusion"]
    assert (list(runs), str(rule), more) == (["a", "q.json"], "nms:0.4", {"weights": [2, 1]})


def test_sizes_and_names_of_answers_reach_the_parser(tmp_path, capsys):
    text = '[{"bbox": [10, 20, 40, 60], "label": "cat"}]'
    lines = [{"image_id": 3, "image": "a.jpg"}, {"image_id": None, "image": "b.jpg"}, {"image_id": 0, "image": "c"}, {}]
    path = tmp_path / "p.JSONL"
    path.write_text("".join(json.dumps({**row, "text": text}) + "\n" for row in lines))
    assert main(["parse", str(path), "--scale", "pixels", "--image-size", "200", "100", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["answer"] for row in found] == ["3", "b.jpg", "0", "4"]
    assert {tuple(row["objects"][0]["box"]) for row in found} == {(0.05, 0.2, 0.2, 0.6)}


def test_words_of_runs_and_repeated_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a=b.json", "c.json", "x=y=z.json"):
        (tmp_path / name).write_text("")
    for word, expected in {
        "c.json": ("c.json", "c.json"), "run=c.json": ("run", "c.json"), "a=b.json": ("a=b.json", "a=b.json"),
        "r=a=b.json": ("r", "a=b.json"), "p=q=c.json": ("p=q", "c.json"), "n=none.json": ("n", "none.json"),
    }.items():  # fmt: skip
        name, file = name_and_file(word)
        assert (name, file) == (expected[0], Path(expected[1])), word
    assert repeat_options("a --iou 1 2 -x 3 --iou=4 5 --w 6 7".split(), "--iou") == (
        "a --iou 1 --iou 2 -x 3 --iou=4 --iou 5 --w 6 7".split()
    )


@pytest.mark.slow
def test_result_is_never_written_over_an_input_under_another_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("t.json", "p.json"):
        (tmp_path / name).write_text("[]")
    (tmp_path / "link.json").symlink_to("t.json")
    for out in ("./t.json", "link.json", str(tmp_path / "p.json"), "x/../p.json"):
        assert main(["calibrate", "--ground-truth", "t.json", "--predictions", "p.json", "--out", out]) == 2
        assert "is one of the inputs" in capsys.readouterr().err
        assert (tmp_path / "t.json").read_text() == "[]"
