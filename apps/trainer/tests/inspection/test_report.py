"""`inspect` on the command line: what it prints and writes, its exit codes, and mistakes of users."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from planted import COCO, JSONL, centred, shapes
from yolo_files import write_yolo

from coord_data.reading.image_set import ImageSet


@pytest.fixture(scope="module")
def clean():
    return shapes(24)


@pytest.fixture
def inspect(run):
    """Call `inspect` in process, in an empty folder: exit code, stderr, stdout."""
    return lambda *words: run("inspect", *words)


@pytest.mark.slow
def test_inspect_strict_fails_for_warnings(inspect, clean, tmp_path):
    source = clean.write(tmp_path / "data")
    (tmp_path / "data" / next(iter(clean.images))).write_bytes(b"no image")
    assert inspect(source.annotations)[0] == 0
    code, err, _ = inspect(source.annotations, "--strict")
    assert code == 1 and "1 warning in" in err


@pytest.mark.slow
def test_inspect_writes_the_findings_of_coord_data_to_the_byte(inspect, clean, tmp_path):
    source = COCO["swapped_axes"](replace(clean, coco=True)).write(tmp_path / "data")
    words = [source.annotations, "--images", source.images]
    assert inspect(*words, "--out", "of_trainer")[0] == 1
    done = subprocess.run(
        [sys.executable, "-m", "coord_data", "inspect", *words, "--out", "of_data"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    found, other = (Path(folder, "findings.json").read_bytes() for folder in ("of_trainer", "of_data"))
    assert done.returncode == 1 and found == other and len(found) > 100


@pytest.mark.slow
def test_inspect_keeps_to_the_held_out_set_that_is_named(inspect, clean, tmp_path):
    draft = replace(clean, layout=centred)
    for split, part in (("train", range(16)), ("val", range(14, 24)), ("other", range(16, 24))):
        write_yolo(draft.subset(part), tmp_path / "data", split)
    yaml = tmp_path / "data" / "data.yaml"
    yaml.write_text(json.dumps(json.loads(yaml.read_text()) | {"train": "images/train", "val": "images/val"}))
    code, _, out = inspect("data", "data.heldout_annotations=data/images/other")
    assert code == 0 and "holds out" not in out and "leakage" not in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gone.json"], "gone.json"),
        (["."], "expected annotations in this folder"),
        (["a.jsonl", "b.jsonl"], "one data set"),
        (["a.jsonl", "--images", "nowhere"], "nowhere"),
        (["a.jsonl", "data.max_objcts=3"], "max_objects"),
        (["--out", "pages"], "expected DATA"),
    ],
)
def test_inspect_mistake_is_one_message_and_exit_code_2(inspect, tmp_path, words, told):
    code, err, _ = inspect(*words)
    assert code == 2 and told in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_inspect_finds_the_images_beside_the_file_of_a_folder(inspect, clean, tmp_path):
    draft = replace(clean.subset(range(8)), coco=True)
    source = draft.write(tmp_path / "data" / "images")
    source.annotations.rename(tmp_path / "data" / "instances.json")
    code, _, out = inspect("data")
    assert code == 0 and "8 images" in out


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.parametrize("prefix", ["images/", "./images/", "images\\/"])
def test_inspect_takes_paths_below_images_as_training_does(inspect, clean, tmp_path, prefix):
    clean.subset(range(8)).write(tmp_path / "data/images")
    source = next((tmp_path / "data/images").glob("*.jsonl"))
    text = source.read_text().replace('"image": "', f'"image": "{prefix}')
    source.rename(tmp_path / "data/instances.jsonl").write_text(text)
    code, err, out = inspect("data/instances.jsonl")
    assert code == 0 and "unreadable_image" not in out, err + out


@pytest.mark.slow
def test_inspect_leaves_the_images_beside_a_folder_alone(inspect, clean, tmp_path):
    write_yolo(replace(clean.subset(range(8)), layout=centred), tmp_path / "yolo")
    (tmp_path / "images").mkdir()
    code, err, out = inspect("yolo")
    assert code == 0 and "8 images" in out, err + out


def test_inspect_writes_over_no_file(inspect, clean, tmp_path):
    source = clean.subset(range(8)).write(tmp_path / "data")
    before = source.annotations.read_bytes()
    for out in (source.annotations, source.annotations / "below"):
        code, err, _ = inspect(source.annotations, "--out", out)
        assert code == 2 and err.count("\n") == 1 and "is a file" in err
    assert source.annotations.read_bytes() == before


@pytest.mark.slow
def test_inspect_draws_thin_images_too(inspect, tmp_path):
    (tmp_path / "data").mkdir()
    Image.new("RGB", (2000, 2)).save(tmp_path / "data" / "thin.png")
    record = {"image": "thin.png", "objects": [{"desc": "line", "bbox": [0, 0, 0.5, 0.5]}]}
    (tmp_path / "data" / "a.jsonl").write_text(json.dumps(record) + "\n")
    code, err, _ = inspect("data/a.jsonl")
    assert code == 0, err
    assert 'viewBox="0 0 480 1"' in (tmp_path / "runs/inspect/inspect.html").read_text()


def _config(source, *more):
    from coord_trainer.config.run_config import load_run_config

    words = [
        "custom.coord_soft_ce_w1.enabled=true",
        "evaluation.images=train",
        f"data.annotations={source.annotations}",
    ]
    return load_run_config(None, [*words, *([f"data.images={source.images}"] if source.images else []), *more])


def _set(digest):
    return ImageSet("train", None, Path(), digest)


@pytest.mark.slow
@pytest.mark.parametrize("coco", [True, False])
def test_training_looks_at_an_even_part_of_a_large_file(clean, tmp_path, capsys, monkeypatch, coco):
    from coord_data.reading.image_set import load_annotated
    from coord_trainer.inspection import report

    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
    monkeypatch.setattr(f"coord_data.stream.{'coco' if coco else 'lines'}.PART", 40)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name, plant in (("clean", lambda d: d), ("mirrored", COCO["mirrored"])):
        source = plant(replace(clean, coco=coco)).write(tmp_path / name)
        config = _config(source)
        train = load_annotated(source.annotations, config.data.model_copy(update={"images": source.images}))
        assert train.part is not None and len(train) == len(clean.images)
        told = {f.code for f in report.check_before_training(config, train, None)}
        assert told == ({"mirrored"} & {name})
        assert "is large: only an evenly spaced part of it was examined" in capsys.readouterr().out
        again = load_annotated(source.annotations, config.data.model_copy(update={"images": source.images}))
        assert again.part.path == train.part.path and again.part.text == train.part.text


RULES = {
    "format": "coco",
    "fields": "image=photo",
    "allow_outside": True,
    "read_as": "yxyx,pixels",
    "max_side_ratio": 3.0,
}
"""For each rule of reading that inspection follows a value of `data` other than the default."""

NOT_OF_INSPECTION = {
    "classes": "the findings are of all classes, as `say_classes` says",
    "on_bad_box": "a refused object does not affect its image",
    "geometry": "the findings are of boxes",
    "strict": "acts on the findings",
}


def test_every_rule_of_reading_acts_in_the_inspection(clean, tmp_path):
    from coord_data.reading.rules import ReadingRules
    from coord_trainer.inspection import report

    assert {*RULES, *NOT_OF_INSPECTION, "images"} == {*ReadingRules.model_fields}
    config = _config(clean.subset(range(2)).write(tmp_path))
    for heldout, name in ((False, "images"), (True, "heldout_images")):
        of_data = {**RULES, name: Path("photos")}
        changed = config.model_copy(update={"data": config.data.model_copy(update=of_data)})
        rules = report._rules(changed, heldout=heldout)
        for rule, value in {**RULES, "images": Path("photos")}.items():
            assert getattr(rules, rule) == value != ReadingRules.model_fields[rule].default, rule


@pytest.mark.slow
@pytest.mark.parametrize("read", ["from the set", "again", "a part of a large file"])
def test_reading_that_a_finding_names_acts_where_it_is_printed(clean, tmp_path, monkeypatch, read):
    from coord_data.reading.image_set import load_annotated
    from coord_trainer.inspection import report

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    if read.startswith("a part"):
        monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
        monkeypatch.setattr("coord_data.stream.coco.PART", 40)
    source = COCO["mirrored"](replace(clean, coco=True)).write(tmp_path / "data")

    def told(*words):
        config = _config(source, *words)
        train = _set("a") if read == "again" else load_annotated(source.annotations, config.data)
        return report.check_before_training(config, train, None)

    (finding,) = told()
    assert finding.severity == "error" and finding.read_as
    assert told(f"data.read_as={finding.read_as}") == []


@pytest.mark.slow
def test_training_is_told_of_faults_and_strict_stops(clean, tmp_path, capsys):
    from coord_codec import RunError
    from coord_trainer.inspection import report

    source = COCO["mirrored"](replace(clean, coco=True)).write(tmp_path / "data")
    (finding,) = report.check_before_training(_config(source), _set("a"), None)
    assert finding.code == "mirrored" and "error: mirrored" in capsys.readouterr().out
    with pytest.raises(RunError, match="1 error in the data"):
        report.check_before_training(_config(source, "data.strict=true"), _set("a"), None)


@pytest.mark.slow
@pytest.mark.parametrize("coco", [True, False])
def test_run_names_the_fault_before_it_begins(clean, tmp_path, capsys, coco):
    pytest.importorskip("swift")
    from coord_codec import InputError, RunError
    from coord_trainer.run import train_and_score

    faults = COCO if coco else JSONL
    name = "mirrored" if coco else "pixels"  # boxes that can be read, and boxes that are all refused
    source = faults[name](replace(clean, coco=coco)).write(tmp_path / "data")
    more = ["data.strict=true"] if coco else []
    with pytest.raises(RunError if coco else InputError, match="error in the data" if coco else "no usable image"):
        train_and_score(_config(source, *more), tmp_path / "run")
    assert f"error: {name}" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_inspect_draws_boxes_that_are_equal_but_for_rounding(inspect, clean, tmp_path):
    """NumPy refuses forty bins between two such numbers."""
    x = [0.1, 0.3, 0.7]
    records = {name: [(x1, 0.2, x1 + 0.2, 0.4) for x1 in x] for name in clean.images}
    lines = [
        json.dumps({"image": name, "objects": [{"desc": "a", "bbox": box} for box in boxes]})
        for name, boxes in records.items()
    ]
    source = clean.write(tmp_path / "data")
    source.annotations.write_text("\n".join(lines))
    _, err, _ = inspect(source.annotations)
    assert "Traceback" not in err and "Shorter side" in Path("runs/inspect/inspect.html").read_text()


@pytest.mark.slow
def test_inspect_names_classes_that_the_data_does_not_have(inspect, clean, tmp_path):
    source = clean.write(tmp_path / "data")
    known = next(line for line in map(json.loads, source.annotations.open()) if line["objects"])["objects"][0]["desc"]
    code, _, out = inspect(source.annotations, f"data.classes=[{known},{known}t]")
    assert code == 0 and f"names a class that these annotations do not have: {known}t" in out
    assert "the findings are of all classes" in out
    code, err, _ = inspect(source.annotations, f"data.classes=[{known}t]")
    assert code == 2 and "classes: expected classes of these annotations" in err


@pytest.mark.parametrize("part", [None, SimpleNamespace(path="part.jsonl")])
@pytest.mark.parametrize("strict", [False, True])
def test_rare_classes_are_not_told_of_a_part(monkeypatch, capsys, part, strict):
    from coord_data.finding import Finding
    from coord_trainer.inspection import report

    found = [Finding(code, "note", code, "", 1, "") for code in ("rare_classes", "split_names")]
    refused = []
    monkeypatch.setattr(report, "examination_of", lambda *_, **__: SimpleNamespace(findings=found))
    monkeypatch.setattr(report, "refuse", lambda findings, *_: refused.append([f.code for f in findings]))
    monkeypatch.setattr(report, "_evidence", lambda *_, **__: None)
    data = SimpleNamespace(max_objects=3, annotations="a.json", strict=strict)
    told = report.check_before_training(SimpleNamespace(data=data), SimpleNamespace(part=part), None)
    codes = ["rare_classes", "split_names"] if part is None else ["split_names"]
    assert [f.code for f in told] == codes and refused == [codes] * strict
    out = capsys.readouterr().out
    assert ("a.json is large" in out) is (part is not None) and all(code in out for code in codes)


def test_evidence_is_that_of_the_set_its_part_or_its_own_file(clean, tmp_path, monkeypatch):
    from coord_trainer.inspection import report

    asked = []
    monkeypatch.setattr(report, "evidence_of", lambda *words: asked.append(words) or "read")
    config = _config(clean.subset(range(2)).write(tmp_path))
    of_data = {"heldout_annotations": Path("held.json"), "heldout_images": Path("held")}
    config = config.model_copy(update={"data": config.data.model_copy(update=of_data)})
    images = SimpleNamespace(evidence="kept", part="a part", root=Path("photos"))
    assert report._evidence(images, config) == "kept" and asked == []
    images.evidence = None
    assert report._evidence(images, config) == "read"
    (part, rules) = asked.pop()
    assert (part, rules.images, rules.allow_outside) == ("a part", Path("photos"), True)
    images.part = None
    for heldout, (file, photos) in enumerate(((config.data.annotations, config.data.images), ("held.json", "held"))):
        assert report._evidence(images, config, heldout=bool(heldout)) == "read"
        path, rules = asked.pop()
        assert (path, rules.images) == (Path(file), photos and Path(photos))


@pytest.mark.parametrize(
    ("with_model", "sample", "varies", "shown", "asked"),
    [
        (False, None, False, ["a"], False),
        (True, None, False, ["a"], True),
        (False, 0, False, ["a"], True),
        (False, None, True, ["a"], True),
        (True, 0, True, [], False),
    ],
)
def test_model_is_opened_where_it_is_asked_for_or_samples_vary(
    clean, tmp_path, monkeypatch, with_model, sample, varies, shown, asked
):
    from coord_trainer.inspection import report

    config = _config(clean.subset(range(2)).write(tmp_path), *(["data.order=random"] if varies else []))
    examination = SimpleNamespace(shown=shown, root=tmp_path, findings=[])
    wanted, refused, written = [], [], []
    monkeypatch.setattr(report, "_examined", lambda _, min_side: examination if min_side == 5 else None)
    monkeypatch.setattr(report, "_model_view", lambda _, *words: wanted.append(words))
    monkeypatch.setattr(report, "say_classes", lambda *_: None)
    monkeypatch.setattr(report, "without_model", lambda *_: [])
    monkeypatch.setattr(report, "ceilings", lambda *_: {})
    monkeypatch.setattr(report, "write_report", lambda *words: written.append(words))
    monkeypatch.setattr(report, "refuse", lambda *words: refused.append(words))
    for strict in (False, True):
        report.inspect_data(config, tmp_path, with_model=with_model, strict=strict, sample=sample, min_side=5)
    assert wanted == [(asked, sample)] * 2 and [words[1] for words in refused] == [False, True]
    assert written[0][2].facts == {"annotations": config.data.annotations.name}


@pytest.mark.parametrize(
    ("sample", "chosen"),
    [(None, [0, 2, 4]), (2, [2, 0, 4]), (1, [1, 0, 2, 4]), (4, [4, 0, 2]), (0, [0, 2, 4]), (5, None), (-1, None)],
)
def test_sample_that_is_asked_for_is_shown_first_and_once(monkeypatch, capsys, sample, chosen):
    from coord_codec import InputError
    from coord_trainer.inspection import report

    view = SimpleNamespace(shown=["first"], limit=7)
    monkeypatch.setattr(report, "load_training", lambda _: SimpleNamespace(image_sets=[range(5), range(9)]))
    monkeypatch.setattr(report, "spread_indices", lambda count: list(range(0, count, 2)))
    monkeypatch.setattr(report, "with_model", lambda _, images, places: asked.append((images, list(places))) or view)
    monkeypatch.setattr(report, "token_lines", lambda shown, limit: [f"line of {shown} {limit}"])
    asked = []
    if chosen is None:
        with pytest.raises(InputError, match=f"--sample: expected 0 to 4, found {sample}"):
            report._model_view(None, True, sample)
        return
    assert report._model_view(None, True, sample) is view and asked == [(range(5), chosen)]
    assert ("line of first 7" in capsys.readouterr().out) is (sample is not None)
    assert report._model_view(None, False, sample) is None and len(asked) == 1

    def fails(_):
        raise InputError("no usable image")

    monkeypatch.setattr(report, "load_training", fails)
    assert report._model_view(None, True, sample) is None and "no usable image" in capsys.readouterr().out


@pytest.mark.slow
def test_ceilings_of_a_large_set_are_those_of_its_first_images(clean, tmp_path, monkeypatch):
    from planted import examine

    from coord_trainer.inspection import report

    source = clean.subset(range(8)).write(tmp_path)
    found, config = examine(source), _config(source, "data.max_objects=1")
    whole = report.ceilings(config, found)
    monkeypatch.setattr(report, "_SCORED", len(found.annotations.instances))
    assert report.ceilings(config, found) == whole
    monkeypatch.setattr(report, "_SCORED", 3)
    few = report.ceilings(config, examine(clean.subset(range(3)).write(tmp_path / "few")))
    assert report.ceilings(config, found) == pytest.approx(few) and few != whole


def test_findings_of_each_annotated_source_are_told_where_nothing_can_be_used(monkeypatch):
    from coord_codec import InputError
    from coord_trainer.inspection import report

    def of(name):
        return name, SimpleNamespace(data=SimpleNamespace(annotations=name))

    def examined(annotations, _):
        if annotations == "gone":
            raise InputError("gone")
        return annotations

    told = []
    monkeypatch.setattr(report, "source_configs", lambda _: [of("gone"), of(None), of("a"), of("b")])
    monkeypatch.setattr(report, "_rules", lambda *_: None)
    monkeypatch.setattr(report, "examination_of", examined)
    monkeypatch.setattr(report, "say_findings", told.append)
    with pytest.raises(InputError, match="nothing is left"), report.explain_unusable(None):
        raise InputError("nothing is left")
    assert told == ["a", "b"]
    with pytest.raises(ZeroDivisionError), report.explain_unusable(None):
        1 / 0  # noqa: B018
    assert told == ["a", "b"]
