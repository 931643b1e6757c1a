"""The command `coord-data`: what it prints and writes, exit codes, mistakes of users, and what it does not import."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from planted import COCO, centred, edit_records, shapes
from yolo_files import write_yolo

from coord_data import cli
from coord_data.preparing.choice import Choice


@pytest.fixture(scope="module")
def clean():
    return shapes(24)


def findings(out="runs/inspect"):
    return json.loads((Path(out) / "findings.json").read_text())


@pytest.mark.slow
def test_clean_data_exits_with_0_and_writes_an_empty_list(run, clean, tmp_path):
    source = clean.write(tmp_path / "data")
    code, err, out = run("inspect", source.annotations)
    assert code == 0 and "nothing wrong was found" in out and "error" not in err
    assert findings() == [] and "<svg" in Path("runs/inspect/inspect.html").read_text()


def test_fault_exits_with_1_and_its_command_mends_it(run, clean, tmp_path):
    source = COCO["swapped_axes"](replace(clean, coco=True)).write(tmp_path / "data")
    code, err, _ = run("inspect", source.annotations, source.images, "--out", "found")
    assert code == 1 and "1 error in the data" in err
    (finding,) = findings("found")
    assert set(finding) == {"code", "severity", "message", "evidence", "count", "fix"}
    command = finding["fix"].replace("SRC", str(source.annotations)).replace("DIR", "mended").split()
    assert command[0] == "coord-data" and run(*command[1:])[0] == 0
    assert run("inspect", "mended/instances.jsonl")[0] == 0
    assert [finding["code"] for finding in findings()] == ["reread"]
    assert run("inspect", source.annotations, "--read-as", command[-1])[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["inspect", "gone.json"], "gone.json"),
        (["inspect", "."], "expected annotations in this folder"),
        (["inspect", "gone.json", "--images", "nowhere"], "nowhere"),
        (["inspect", "gone.json", ".", "--images", "."], "named twice"),
        (["inspect", "gone.json", "--format", "cocoa"], "--format"),
        (["inspect", "gone.json", "--read-as", "percents"], "--read-as"),
        (["inspect"], "DATA"),
        (["prepare", "gone.json", "--out", "new"], "gone.json"),
        (["prepare", "gone.json", "--out", "new", "--read-as", "xyxy,xywh"], "expected one order"),
        (["prepare", "gone.json", "--out", "new", "--drop-duplicates", "all"], "--drop-duplicates"),
        (["prepare", "gone.json"], "--out"),
        (["prepare", "gone.json", "--out", "."], "exists already"),
        (["examine"], "examine"),
    ],
)
def test_mistake_is_one_message_and_exit_code_2(run, tmp_path, words, told):
    code, err, _ = run(*words)
    assert code == 2 and told in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_strict_fails_for_warnings_and_counts_are_of_readable_images(run, clean, tmp_path):
    source = clean.write(tmp_path / "data")
    name = next(iter(clean.images))
    (tmp_path / "data" / name).write_bytes(b"no image")
    code, _, out = run("inspect", source.annotations)
    boxes = sum(map(len, clean.corners))
    assert code == 0 and f"{boxes} boxes, {boxes - len(clean.corners[0])} of them usable" in out
    code, err, _ = run("inspect", source.annotations, "--strict")
    assert code == 1 and "1 warning in" in err


@pytest.mark.slow
@pytest.mark.parametrize("named", ["data", "data/train.jsonl", "data/val.jsonl"])
def test_split_is_compared_with_the_other_one(run, clean, tmp_path, named):
    for name, part in (("train", range(16)), ("val", range(14, 24))):
        clean.subset(part).write(tmp_path / "data").annotations.rename(tmp_path / "data" / f"{name}.jsonl")
    assert run("inspect", named)[0] == 1
    (leak,) = [finding for finding in findings() if finding["code"] == "leakage"]
    assert leak["count"] == 2 and leak["severity"] == "error" and "2 of 10 held-out images" in leak["message"]
    assert sorted(map(tuple, leak["pairs"])) == [(name, name) for name in list(clean.images)[14:16]]


@pytest.mark.slow
def test_held_out_set_that_is_named_is_compared(run, clean, tmp_path):
    data, held = clean.subset(range(16)).write(tmp_path / "a"), clean.subset(range(15, 24)).write(tmp_path / "b")
    assert run("inspect", data.annotations, "--heldout", held.annotations)[0] == 1
    assert {finding["code"] for finding in findings()} == {"leakage"}


@pytest.mark.slow
@pytest.mark.parametrize("source", ["data", "data/data.yaml"])
def test_inspect_compares_with_what_a_data_yaml_holds_out(run, clean, tmp_path, source):
    draft = replace(clean, layout=centred)
    for split, part in (("train", range(16)), ("val", range(14, 24))):
        write_yolo(draft.subset(part), tmp_path / "data", split)
    yaml = tmp_path / "data" / "data.yaml"
    names = json.loads(yaml.read_text())
    for held in ({"val": "images/val"}, {"val": ["images/val"]}, {"val": "images/train", "test": "images/val"}):
        yaml.write_text(json.dumps(names | {"train": "images/train"} | held))
        code, _, out = run("inspect", source)
        assert code == 1 and "holds out 10 images" in out and "2 of 10 held-out images are training images" in out
    yaml.write_text(json.dumps(names | {"train": "images/train", "val": "images/train"}))
    code, _, out = run("inspect", source)
    assert code == 0 and "val names the training images: nothing is held out" in out
    yaml.write_text(json.dumps(names | {"train": "images/train", "val": "images/gone"}))
    code, err, out = run("inspect", source)
    assert code == 0 and "images/gone; it is not compared with the training images" in out and "error" not in err


@pytest.mark.slow
def test_inspect_needs_no_labels_of_what_a_data_yaml_holds_out(run, clean, tmp_path):
    write_yolo(replace(clean, layout=centred), tmp_path / "data", "train")
    test = tmp_path / "data" / "images" / "test"
    test.mkdir()
    for image in list(test.parent.glob("train/*"))[:3]:
        (test / image.name).write_bytes(image.read_bytes())
    names = json.loads((tmp_path / "data" / "data.yaml").read_text())
    stated = names | {"train": "images/train", "test": "images/test"}
    (tmp_path / "data" / "of_tests.yaml").write_text(json.dumps(stated))  # a name at which nobody looks by himself
    (tmp_path / "data" / "data.yaml").unlink()
    code, err, out = run("inspect", "data/of_tests.yaml")
    assert code == 1 and "3 of 3 held-out images are training images" in out and "label file" not in err


@pytest.mark.slow
def test_duplicates_are_listed_shown_and_dropped(run, clean, tmp_path):
    """Equal files with the same boxes, with other boxes, and a smaller copy of a third image."""
    draft = clean.subset(range(20))
    names = list(draft.images)
    images = dict(draft.images)
    images |= {
        "equal.png": images[names[0]],
        "other.png": images[names[1]],
        "copy.png": images[names[2]].resize((72, 72)),
    }
    moved = draft.corners[1] * 0.8
    corners = (*draft.corners, draft.corners[0], moved, draft.corners[2])
    labels = (*draft.labels, draft.labels[0], draft.labels[1], draft.labels[2])
    source = replace(draft, images=images, corners=corners, labels=labels).write(tmp_path / "data")
    run("inspect", source.annotations)
    listed = {finding["code"]: finding for finding in findings()}
    assert listed["duplicate_images"]["pairs"] == [
        [names[0], "equal.png"],
        [names[1], "other.png"],
        [names[2], "copy.png"],
    ]
    assert listed["conflicting_boxes"]["pairs"] == [[names[1], "other.png"]]
    page = Path("runs/inspect/inspect.html").read_text()
    assert all(page.count(f'aria-label="{name}"') for name in ("equal.png", "other.png", "copy.png", *names[:3]))
    for option, left_out in (("exact", {"equal.png", "other.png"}), ("near", {"equal.png", "other.png", "copy.png"})):
        code, _, out = run("prepare", source.annotations, "--out", option, "--drop-duplicates", option)
        kept = [json.loads(line)["image"] for line in (tmp_path / option / "instances.jsonl").open()]
        assert code == 0 and {Path(image).name for image in kept} == images.keys() - left_out
        assert f"{len(left_out)} duplicate images left out" in out and "1 of them had other boxes" in out
        summary = json.loads((tmp_path / option / "instances.summary.json").read_text())
        listed = [json.loads(line)["where"] for line in (tmp_path / option / "problems.jsonl").open()]
        for dropped in (listed, [row["image"] for row in summary["dropped_duplicates"]]):
            assert {Path(image).name for image in dropped} == left_out


@pytest.mark.slow
def test_frames_of_one_video_are_no_copies(run, clean, tmp_path):
    """A small object has moved over a background that stays."""
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    background = np.clip(rng.normal(128, 40, (12, 16, 3)), 0, 255).astype(np.uint8)
    scene = np.asarray(Image.fromarray(background).resize((320, 240), Image.Resampling.BICUBIC))
    lines = []
    for number in range(4):
        frame, x = scene.copy(), 40 + 60 * number
        frame[100:138, x : x + 38] = (200, 60, 40)
        Image.fromarray(frame).save(tmp_path / "data" / f"{number}.png")
        box = [x / 320, 100 / 240, (x + 38) / 320, 138 / 240]
        lines.append(json.dumps({"image": f"{number}.png", "objects": [{"desc": "red box", "bbox": box}]}))
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(lines))
    run("inspect", "data/a.jsonl")
    found = [finding for finding in findings() if "duplicate" in finding["code"]]
    assert all(finding["severity"] == "note" for finding in found)
    run("prepare", "data/a.jsonl", "--out", "near", "--drop-duplicates", "near")
    assert len((tmp_path / "near" / "instances.jsonl").read_text().splitlines()) == 4


@pytest.mark.slow
def test_typing_error_in_a_class_name_is_found_beside_the_frequent_one(run, clean, tmp_path):
    source = clean.write(tmp_path / "data")

    def misspell(records):
        objects = [item for record in records for item in record["objects"]]
        for item in objects:
            item["desc"] = "truck"
        objects[3]["desc"] = "truvk"
        for record in records:
            record["objects"] *= 3

    edit_records(source, misspell)
    run("inspect", source.annotations)
    (finding,) = [finding for finding in findings() if finding["code"] == "similar_names"]
    assert finding["severity"] == "warning" and "'truvk' (3)" in finding["evidence"] and finding["count"] == 3


@pytest.mark.slow
def test_command_needs_no_torch_and_help_no_numpy():
    code = """
import sys
from coord_data import cli
sys.argv = ["coord-data", "prepare", "--help"]
try:
    cli.main()
except SystemExit:
    pass
assert "numpy" not in sys.modules, "help imports NumPy"
import coord_data.inspection.report, coord_data.inspection.examine, coord_data.preparing.preparation
heavy = {"torch", "transformers", "swift", "matplotlib", "coord_eval", "coord_trainer", "coord_losses"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def arguments(monkeypatch, module, name, result=None):
    """Take the place of a function; return what it is called with."""
    calls = []

    def called(*args, **more):
        calls.append((args, more))
        return result

    monkeypatch.setattr(f"{module}.{name}", called)
    return calls


WORDS = "--format yolo --read-as xywh,percent --fields label=b --allow-outside"
READING = {"format": "yolo", "allow_outside": True, "fields": "label=b"}


@pytest.mark.parametrize(
    ("words", "wanted", "chosen"),
    [
        (
            "",
            {"images": None, "format": "auto", "allow_outside": False, "on_bad_box": "drop_image", "strict": False},
            {},
        ),
        (
            f"{WORDS} --images i --on-bad-box drop_box --strict",
            READING | {"images": Path("i"), "on_bad_box": "drop_box", "strict": True},
            {},
        ),
        (
            "--split 0.25 --seed 7 --drop-duplicates near --join-boxes --count 9",
            {},
            {"split": 0.25, "seed": 7, "drop_duplicates": "near", "join_boxes": True, "count": 9, "as_part": False},
        ),
    ],
    ids=["defaults", "reading", "choice"],
)
def test_options_of_prepare_reach_what_prepares(run, tmp_path, monkeypatch, words, wanted, chosen):
    calls = arguments(monkeypatch, "coord_data.preparing.preparation", "prepare")
    how = arguments(monkeypatch, "coord_data.looking.engines", "executed", contextlib.nullcontext())
    (tmp_path / "i").mkdir()
    assert run("prepare", "a", "b", "--out", "new", "--workers", "3", *words.split())[0] == 0
    (((sources, out, rules), more),) = calls
    assert (list(map(str, sources)), out) == (["a", "b"], Path("new"))
    assert {name: getattr(rules, name) for name in wanted} == wanted
    assert (str(rules.read_as) == "xywh,percent") == ("--read-as" in words)
    assert {name: more[name] for name in chosen} == chosen and set(more) == {f.name for f in dataclasses.fields(Choice)}
    (((executed,), _),) = how
    assert (executed.workers, executed.engine, executed.parts) == (3, "local", tmp_path / "new.parts")


@pytest.mark.parametrize(
    ("words", "wanted", "held"),
    [
        ("", {"images": None, "format": "auto", "max_objects": 30, "min_side": 0}, {}),
        (f"{WORDS} --max-objects 7 --min-side 9", READING | {"images": None, "max_objects": 7, "min_side": 9}, {}),
        ("--images i", {"images": Path("i")}, {}),
        ("i", {"images": Path("i")}, {}),
        (
            f"i {WORDS} --heldout h --heldout-images j --min-side 9",
            READING | {"images": Path("i")},
            {
                "images": Path("j"),
                "format": "auto",
                "read_as": None,
                "fields": None,
                "allow_outside": True,
                "min_side": 9,
            },
        ),
        ("i --heldout h", {"images": Path("i")}, {"images": None}),
    ],
)
def test_options_of_inspect_reach_what_examines(run, tmp_path, monkeypatch, words, wanted, held):
    opened = arguments(monkeypatch, "coord_data.formats.registry", "open_source", "the source")
    evidence = arguments(monkeypatch, "coord_data.inspection.examine", "evidence_of", "the evidence")
    examined = arguments(
        monkeypatch, "coord_data.inspection.find_data", "examine_named", SimpleNamespace(findings=["f"])
    )
    report = arguments(monkeypatch, "coord_data.inspection.report", "write_report")
    refused = arguments(monkeypatch, "coord_data.inspection.report", "refuse")
    how = arguments(monkeypatch, "coord_data.looking.engines", "executed", contextlib.nullcontext())
    for name in "ij":
        (tmp_path / name).mkdir()
    (tmp_path / "a.json").write_text("{}")
    strict = ["--strict"] * bool(held)
    assert run("inspect", "a.json", *words.split(), "--out", "x/out", "--workers", "2", *strict)[0] == 0
    (((source, rules, other), _),) = examined
    assert opened == [((Path("a.json"), rules.format, rules.fields), {})]
    assert source == "the source" and other == ("the evidence" if held else None)
    assert {name: getattr(rules, name) for name in wanted} == wanted
    assert (str(rules.read_as) == "xywh,percent") == ("--read-as" in words)
    for (named, other_rules), _ in evidence:
        assert named == Path("h") and {name: getattr(other_rules, name) for name in held} == held
    assert len(evidence) == bool(held)
    assert report[0][0][1] == Path("x/out") and report[0][0][2].facts == {"annotations": "a.json"}
    assert refused == [((["f"], bool(held), "see x/out"), {})]
    (((executed,), _),) = how
    assert (executed.workers, executed.engine, executed.parts) == (2, "local", tmp_path / "x" / "out.parts")


@pytest.mark.parametrize("command", ["prepare a", "merge a"])
@pytest.mark.parametrize("there", ["new.jsonl", "new.summary.json", "new.problems.jsonl", "new.jsonl/x"])
def test_nothing_that_a_result_would_replace_is_there(run, tmp_path, command, there):
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    code, err, _ = run(*command.split(), "--out", "new.jsonl")
    assert code == 2 and f"{there.partition('/')[0]} exists already" in err and (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("words", ["prepare a --out file/new", "inspect a --out file", "inspect a --out file/x/new"])
def test_result_below_a_file_is_a_mistake(run, tmp_path, words):
    (tmp_path / "file").write_text("mine")
    code, err, _ = run(*words.split())
    assert code == 2 and "is a file, or is below one" in err and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("named", "place", "images"),
    [
        ("a.json", None, None), ("folder", None, None), ("x.tar", None, "image_folder"),
        ("x.parquet", None, "image_folder"),
        ("s3://b/a.json", "local_path", "image_folder"), ("https://x/a.tar", "local_path", "image_folder"),
    ],
)  # fmt: skip
def test_addresses_and_archives_are_fetched_or_unpacked(monkeypatch, named, place, images):
    for function in ("local_path", "image_folder"):
        arguments(monkeypatch, "coord_data.remote", function, function)
    assert cli._place(named) == (place or Path(named)) and cli._image_place(named) == (images or Path(named))
