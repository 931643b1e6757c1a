"""What `inspect` does with an examination, and what it examines where one path is named."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tables import figures

import coord_data
from coord_codec import InputError, RunError
from coord_data.finding import Finding
from coord_data.formats.registry import open_source
from coord_data.inspection.examine import evidence_of, examination_of, examine, spread_indices
from coord_data.inspection.find_data import examine_named, find_data, other_split
from coord_data.inspection.report import refuse, say_classes, write_report
from coord_data.inspection.rules import InspectionRules


@pytest.mark.parametrize(
    ("grades", "strict", "told"),
    [
        ("", True, ""),
        ("nn", True, ""),
        ("w", False, ""),
        ("wwn", True, "2 warnings"),
        ("ewn", False, "1 error and 1 warning"),
        ("een", True, "2 errors"),
    ],
)
def test_errors_end_a_run_and_strictly_warnings(grades, strict, told):
    names = {"e": "error", "w": "warning", "n": "note"}
    found = [Finding("exif", names[grade], "m", "e", 1, "f") for grade in grades]
    if not told:
        refuse(found, strict, "see out")
        return
    with pytest.raises(RunError, match=f"^{told} in the data .*, see out$"):
        refuse(found, strict, "see out")


def sets(folder, **files):
    """Write sets of images of their own numbers, each with one box."""
    for name, numbers in files.items():
        lines = []
        for n in numbers:
            Image.effect_noise((64, 48), 20 + n).convert("RGB").resize((64, 48)).save(folder / f"{n}.png")
            lines.append(json.dumps({"image": f"{n}.png", "objects": [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}]}))
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def test_report_prints_counts_findings_and_notes(tmp_path, caplog):
    caplog.set_level(logging.INFO, "coord_data")
    sets(tmp_path, a=range(3))
    (tmp_path / "0.png").write_bytes(b"no image")
    found = replace(coord_data.inspect(tmp_path / "a.jsonl"), notes=("2 lines are empty",))
    write_report(found, tmp_path / "x" / "out")
    first, *rest = caplog.messages
    assert figures(first) == [3, 3, 2]
    assert rest == [
        *(f"  {f}" for f in found.findings),
        "  read: 2 lines are empty",
        f"page: {tmp_path}/x/out/inspect.html",
    ]
    assert [row["code"] for row in json.loads((tmp_path / "x/out/findings.json").read_text())] == [
        f.code for f in found.findings
    ]
    caplog.clear()
    write_report(replace(found, findings=()), tmp_path / "x" / "out")
    assert (
        "nothing wrong was found" in caplog.messages[1]
        and json.loads((tmp_path / "x/out/findings.json").read_text()) == []
    )


def test_classes_of_a_list_that_the_data_lacks_are_told(tmp_path, caplog):
    caplog.set_level(logging.INFO, "coord_data")
    found = coord_data.inspect(sets(tmp_path, a=range(2)) / "a.jsonl")
    say_classes(found, None, "-c")
    assert caplog.messages == []
    say_classes(found, ["cat", "unicorn"], "-c")
    assert "unicorn" in caplog.messages[0] and "all classes of the file" in caplog.messages[-1]
    with pytest.raises(InputError):
        say_classes(found, ["unicorn"], "-c")


@pytest.mark.parametrize(
    ("file", "content", "below"),
    [
        ("a.json", '{"images": [{"file_name": "0.jpg"}]}', True),
        ("a.json", '{"images": [{"file_name": "images/0.jpg"}]}', False),
        ("a.json", r'{"images": [{"file_name": "images\/0.jpg"}]}', False),
        ("a.json", '{"images": [{"file_name": "./images/0.jpg"}]}', False),
        ("a.json", '{"images": [{"file_name": "my-images/0.jpg"}]}', True),
        ("a.csv", "x,images/0.jpg", False),
        ("a.csv", "images/0.jpg,x", True),  # at the very beginning stands the name of a column
        ("data.yaml", "names: [a]", False),
        ("data.yml", "names: [a]", False),
        ("a.parquet", "PAR1", False),
        ("a.tar", "", False),
    ],
)
def test_images_beside_annotations_are_theirs_unless_paths_begin_there(tmp_path, file, content, below):
    (tmp_path / file).write_text(content)
    assert find_data(tmp_path / file) == (tmp_path / file, None)
    (tmp_path / "images").mkdir()
    assert find_data(tmp_path / file) == (tmp_path / file, tmp_path / "images" if below else None)
    other = tmp_path / "other"
    with pytest.raises(InputError, match="--images: expected a folder"):
        find_data(tmp_path / file, other)
    other.mkdir()
    assert find_data(tmp_path / file, other) == (tmp_path / file, other)


def test_folder_names_its_only_json_file_or_its_training_split(tmp_path):
    (tmp_path / "images").mkdir()
    assert find_data(tmp_path) == (tmp_path, None)
    (tmp_path / "a.json").write_text("{}")
    assert find_data(tmp_path) == (tmp_path, tmp_path / "images")
    (tmp_path / "b.json").write_text("{}")
    assert find_data(tmp_path) == (tmp_path, None)
    (tmp_path / "train.jsonl").write_text("{}")
    assert find_data(tmp_path) == (tmp_path / "train.jsonl", tmp_path / "images")


def test_split_has_another_one_beside_it(tmp_path):
    (train, val), other = (tmp_path / name for name in ("train.jsonl", "val.jsonl")), tmp_path / "a.jsonl"
    for path in (train, other):
        path.touch()
    assert [other_split(path) for path in (train, val, other)] == [None, train, None]
    val.touch()
    assert [other_split(path) for path in (train, val, other)] == [val, train, None]


def leak(examination):
    """Return how many of how many images are leaked, and the pairs."""
    return next(
        ((f.message.split()[0], f.message.split()[2], f.pairs) for f in examination.findings if f.code == "leakage"),
        None,
    )


@pytest.mark.slow
def test_set_that_is_named_replaces_what_data_yaml_holds_out(tmp_path):
    folder = sets(tmp_path, named=(0, 1, 6))
    for split, numbers in (("train", (0, 1, 2)), ("test", (2, 7))):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        for n in numbers:
            Image.effect_noise((64, 48), 20 + n).convert("RGB").save(folder / f"images/{split}/{n}.png")
            (folder / f"labels/{split}/{n}.txt").write_text("0 .3 .4 .4 .4")
        for n in {2} & set(numbers):
            Image.new("RGB", (64, 48), "red").save(folder / f"images/{split}/{n}.png")
    for n in (0, 1):
        (folder / f"{n}.png").write_bytes((folder / f"images/train/{n}.png").read_bytes())
    (folder / "data.yaml").write_text("names: [cat]\ntrain: images/train\ntest: images/test\n")
    source = open_source(folder / "data.yaml")
    assert leak(examine_named(source, InspectionRules(), None))[:2] == ("1", "2")
    assert leak(examine_named(source, InspectionRules(), evidence_of(folder / "named.jsonl")))[:2] == ("2", "3")


@pytest.mark.slow
def test_set_that_is_named_replaces_the_other_split(tmp_path):
    folder, rules = sets(tmp_path, train=range(4), val=(3, 4, 5), named=(0, 1, 6, 7, 8)), InspectionRules()
    source = open_source(folder / "train.jsonl")
    assert leak(examine_named(source, rules, None))[:2] == ("1", "3")
    assert leak(examine_named(source, rules, evidence_of(folder / "named.jsonl")))[:2] == ("2", "5")
    of_val = examine_named(open_source(folder / "val.jsonl"), rules, None)
    assert leak(of_val) == ("1", "3", (("3.png", "3.png"),)) and len(of_val.raw.files) == 3
    assert examination_of(folder / "val.jsonl", training=folder / "train.jsonl").leak_roots == (folder, folder)
    assert leak(examination_of(folder / "val.jsonl")) is None


@pytest.mark.slow
def test_other_split_is_read_by_the_same_rules(tmp_path):
    (tmp_path / "in").mkdir()
    folder = sets(tmp_path / "in", train=range(3), val=(2, 3))
    for name in ("train", "val"):
        (folder / f"{name}.jsonl").rename(tmp_path / f"{name}.jsonl")
    for named, counts in (("train", ("1", "2")), ("val", ("1", "2"))):
        found = examine_named(open_source(tmp_path / f"{named}.jsonl"), InspectionRules(images=folder), None)
        assert leak(found)[:2] == counts and found.leak_roots == (folder, folder)


def test_limits_apply_to_the_set_and_to_what_it_is_compared_with(tmp_path):
    folder = sets(tmp_path, b=(2, 3))
    objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.3 + n / 10, 0.6]} for n in range(3)]
    (folder / "c.jsonl").write_text(json.dumps({"image": "2.png", "objects": objects}))
    codes = {n: {f.code: f.count for f in examine(folder / "c.jsonl", max_objects=n)} for n in (1, 2, 3)}
    assert [codes[n].get("too_many_objects") for n in codes] == [2, 1, None]
    sets(folder, d=[9])
    Image.open(folder / "2.png").resize((128, 96)).save(folder / "9.png")  # a large copy
    for name in ("training", "heldout"):
        for least in (0, 48, 49):
            rules = InspectionRules(min_side=least)
            found = examination_of(folder / "d.jsonl", rules, **{name: folder / "b.jsonl"})
            assert (leak(found) is not None) == (least < 49)


def test_small_images_are_those_of_the_files_and_else_of_what_is_stated(tmp_path):
    sizes = {"a.png": (64, 48), "b.png": (20, 48), "gone.png": None}
    stated = {"a.png": (9, 9), "b.png": (64, 48), "gone.png": (20, 20)}
    for name, size in sizes.items():
        if size:
            Image.effect_noise(size, 40).convert("RGB").save(tmp_path / name)
    objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}]
    lines = [{"image": name, "width": w, "height": h, "objects": objects * 2} for name, (w, h) in stated.items()]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = coord_data.inspect(tmp_path / "a.jsonl", min_side=21)
    (small,) = [f for f in found.findings if f.code == "small_images"]
    assert [*found.raw.files] == ["a.png"] and small.count == 2 and small.evidence == "the first: b.png"
    assert figures(small.message) == [2, 21, 4]


@pytest.mark.parametrize("count", [0, 1, 2, 11, 12, 13, 100, 1000])
def test_images_to_show_are_spread_over_all(count):
    found = spread_indices(count)
    assert len(found) == min(count, 12) == len(set(found)) and found == sorted(found)
    assert not count or (found[0], found[-1]) == (0, count - 1)
    steps = np.diff(found)
    assert len(steps) < 2 or steps.max() - steps.min() <= 1


def test_examination_shows_itself_and_what_is_usable(tmp_path):
    folder = sets(tmp_path, a=range(3))
    (folder / "1.png").write_bytes(b"no image")
    found = coord_data.inspect(folder / "a.jsonl")
    assert found.usable.tolist() == [0, 2] and found.usable_boxes == 2 and len(found.boxes) == 3
    assert [instance.image for instance in found.shown] == ["0.png", "2.png"]
    html = found._repr_html_()
    assert "3 images, 3 boxes" in html and "nothing wrong" not in html
    for f in found.findings:
        assert all(str(part) in html for part in (f.severity, f.code, f.count))
    assert "3 images, 3 boxes: nothing wrong was found" in replace(found, findings=())._repr_html_()
    note, error = (Finding("exif", grade, "m", "e", 1, "f") for grade in ("note", "error"))
    assert replace(found, findings=(note,)).with_findings([error]).findings == (error, note)
