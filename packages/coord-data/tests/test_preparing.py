"""Which records are written, by choice, copies and rules; and what a part, a merged set and a class list say of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from one_image import picture
from PIL import Image

from coord_codec import Category, InputError, Instance, RunError
from coord_data import ReadingRules, load_annotated, merge_prepared
from coord_data.preparing.choice import Choice
from coord_data.preparing.output_folder import output_folder
from coord_data.preparing.preparation import prepare
from coord_data.reading.classes import OTHER, absent_classes, class_categories, usable

CAT = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
DOG = {"desc": "dog", "bbox": [0.2, 0.2, 0.6, 0.6]}


def records(folder, *rows, name="a.jsonl"):
    """Write records of images, which are drawn by a number where there is none."""
    for row in rows:
        path = folder / row["image"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            picture(int(path.stem)).save(path)
    (folder / name).write_text("".join(json.dumps({"objects": [CAT], **row}) + "\n" for row in rows))
    return folder / name


def read(folder, name="instances"):
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    summary = json.loads((folder / f"{name}.summary.json").read_text())
    problems = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    return [json.loads(line) for line in lines], summary, problems


@pytest.mark.parametrize(
    ("chosen", "needs_looks"),
    [
        ({}, False),
        ({"count": 3}, False),
        ({"count": 3, "seed": 1}, False),
        ({"split": 0.0}, True),
        ({"split": 1.0}, True),
        ({"drop_duplicates": "near"}, True),
        ({"as_part": True}, True),
        ({"as_part": True, "seed": 2}, True),
    ],
)
def test_images_are_decoded_only_where_a_choice_needs_them(tmp_path, chosen, needs_looks):
    choice = Choice(**chosen)
    assert choice.needs_looks is needs_looks and choice.folder_of(tmp_path / "out") == (tmp_path / "out").resolve()
    if "split" not in chosen and "as_part" not in chosen:
        assert choice.folder_of(tmp_path / "x" / "a.jsonl") == (tmp_path / "x").resolve()


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"join_boxes": True}, "--join-boxes"),
        ({"as_part": True, "split": 0.0}, "--split: a part"),
        ({"as_part": True, "count": 1}, "--count: a part"),
        ({"as_part": True, "drop_duplicates": "near"}, "--drop-duplicates: a part"),
        ({"split": 1.5}, "split"),
        ({"split": -0.1}, "split"),
        ({"count": 0}, "count"),
        ({"drop_duplicates": "all"}, "drop_duplicates"),
    ],
)
def test_choice_that_is_none_is_refused(chosen, told):
    with pytest.raises(InputError, match=told):
        Choice(**chosen)


def test_split_of_nothing_or_all_is_refused(tmp_path):
    source = records(tmp_path, *({"image": f"{n}.png"} for n in range(4)))
    for share, empty in ((0.0, "val"), (1.0, "train")):
        with pytest.raises(InputError, match=rf"--split {share:g}: no image was assigned to {empty}\.jsonl"):
            prepare([source], tmp_path / "out", ReadingRules(), share)


@pytest.mark.parametrize("seed", [0, 5])
def test_drawn_images_and_all_of_their_records_are_said_with_the_seed(tmp_path, seed):
    import random

    source = records(tmp_path, *({"image": f"{n // 2}.png", "query": f"q{n}"} for n in range(20)))
    prepare([source], tmp_path / "out", ReadingRules(), count=4, seed=seed)
    lines, summary, _ = read(tmp_path / "out")
    expected = {f"../{name}" for name in random.Random(seed).sample([f"{n}.png" for n in range(10)], 4)}
    assert {line["image"] for line in lines} == expected and len(lines) == 8
    assert summary["drawn"] == {"count": 4, "seed": seed} and summary["records"] == 8


@pytest.fixture
def copies(tmp_path):
    """1 and 2 are equal files, 3 is 1 with less quality, 4 another image; 2 has a box more, 5 is 4 with a phrase."""
    rows = [{"image": f"{n}.png"} for n in (1, 2, 3, 4)]
    rows[1]["objects"], rows[2]["objects"] = [CAT, DOG], [CAT]
    picture(1).save(tmp_path / "1.png")
    picture(1).save(tmp_path / "2.png")
    picture(1).save(tmp_path / "3.png", "JPEG", quality=95)
    picture(4).save(tmp_path / "4.png")
    picture(4).save(tmp_path / "5.png")
    rows.append({"image": "5.png", "query": "the dog", "objects": [DOG]})
    rows.append({"image": "4.png", "query": "the cat", "objects": [CAT]})
    return records(tmp_path, *rows)


@pytest.mark.parametrize("which", ["exact", "near"])
@pytest.mark.parametrize("join", [False, True])
def test_copies_are_left_out_told_and_joined(copies, tmp_path, which, join):
    prepare([copies], tmp_path / "out", ReadingRules(), drop_duplicates=which, join_boxes=join)
    lines, summary, problems = read(tmp_path / "out")
    found = [(Path(line["image"]).name, line.get("query"), [o["desc"] for o in line["objects"]]) for line in lines]
    first = ("1.png", None, ["cat", "dog"] if join else ["cat"])
    small = [("3.png", None, ["cat"])] * (which == "exact")
    asked = [("4.png", "the dog", ["dog"])] * join
    assert found == [first, *small, ("4.png", None, ["cat"]), ("4.png", "the cat", ["cat"]), *asked]
    dropped = {(Path(row["image"]).name, Path(row["kept"]).name) for row in summary["dropped_duplicates"]}
    expected = {("2.png", "1.png"), ("5.png", "4.png")} | ({("3.png", "1.png")} if which == "near" else set())
    assert dropped == expected and {Path(row["where"]).name for row in problems} == {name for name, _ in expected}
    assert all(row["field"] == "image" and "is kept" in row["message"] for row in problems)
    assert summary["problems"] == 0 and summary["records"] == len(lines)


def test_summary_states_the_counts_of_all_sources_and_where_the_images_are(tmp_path):
    bad = {"desc": "cat", "bbox": [0.5, 0.5, 0.1, 0.6]}
    crowd = {**CAT, "iscrowd": 1}
    for name in "ab":
        rows = [{"image": "1.png"}, {"image": "2.png", "objects": [DOG, crowd]}, {"image": "3.png", "objects": [bad]}]
        records(tmp_path / name, *rows)
    prepare([tmp_path / "a" / "a.jsonl", tmp_path / "b" / "a.jsonl"], tmp_path / "x" / "out", ReadingRules())
    lines, summary, problems = read(tmp_path / "x" / "out")
    assert [line["image"] for line in lines] == [f"../../{name}/{n}.png" for name in "ab" for n in (1, 2)]
    assert (summary["records"], summary["boxes"], summary["problems"]) == (4, 4, 2) and len(problems) == 2
    assert list(summary["classes"].items()) == [("cat", 2), ("dog", 2)] and summary["images"] == "../.."
    assert [Path(source["path"]).parent.name for source in summary["sources"]] == ["a", "b"]
    assert not {"read_as", "part", "drawn", "near_duplicates", "dropped_duplicates"} & summary.keys()
    assert load_annotated(tmp_path / "x" / "out").root == tmp_path / "x" / "out"


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("faulty", [False, True])
def test_problems_of_a_file_are_written_beside_it_where_there_are_some(tmp_path, single, faulty):
    objects = [CAT, {"desc": "cat", "bbox": [0.5, 0.5, 0.1, 0.6]}][: 1 + faulty]
    source = records(tmp_path, {"image": "1.png", "objects": objects}, {"image": "2.png"})
    out = tmp_path / "out" / ("a.jsonl" if single else "set")
    prepare([source], out, ReadingRules(on_bad_box="drop_box"), **({} if single else {"as_part": True}))
    names = {path.name for path in (out.parent if single else out).iterdir()}
    if single:
        assert names == {"a.jsonl", "a.summary.json"} | ({"a.problems.jsonl"} if faulty else set())
        return
    assert names == {"instances.jsonl", "instances.summary.json", "problems.jsonl", "looks.parquet"}
    part = read(out)[1]["part"]
    assert part["has_ids"] is True and part["rules"].keys() == ReadingRules.model_fields.keys() - {"images", "format"}
    assert part["rules"]["on_bad_box"] == "drop_box"


def test_source_that_is_read_in_another_way_says_so_and_its_parts_too(tmp_path):
    rows = [{"image": f"{n}.png", "objects": [{"desc": "cat", "bbox": [10, 10, 50, 50]}]} for n in range(2)]
    for row in rows:
        records(tmp_path, row, name=f"{row['image'][0]}.jsonl")
    rules = ReadingRules(read_as="percent")
    for n in range(2):
        prepare([tmp_path / f"{n}.jsonl"], tmp_path / f"part{n}", rules, as_part=True)
    merge_prepared([tmp_path / "part0", tmp_path / "part1"], tmp_path / "all")
    prepare([tmp_path / "0.jsonl"], tmp_path / "one", rules)
    stated = {name: read(tmp_path / name)[1] for name in ("part0", "all", "one")}
    key = next(key for key, value in stated["one"].items() if value == "percent")
    assert [summary[key] for summary in stated.values()] == ["percent"] * 3
    assert all(line["objects"][0]["bbox"] == [0.1, 0.1, 0.5, 0.5] for line in read(tmp_path / "all")[0])


@pytest.fixture
def parts(tmp_path):
    def part(name, n, rules=None, **more):
        bad = {"desc": "cat", "bbox": [0.5, 0.5, 0.1, 0.6]}
        source = records(tmp_path / name, {"image": f"{n}.png", "objects": [CAT, bad], **more}, name="s.jsonl")
        prepare([source], tmp_path / f"of-{name}", rules or ReadingRules(on_bad_box="drop_box"), as_part=True)
        return tmp_path / f"of-{name}"

    return part


def test_merged_set_adds_up_what_its_parts_say(parts, tmp_path):
    merged = [parts("a", 1, image_id=1), parts("b", 2, image_id=2), parts("c", 3, image_id=3)]
    merge_prepared(merged, tmp_path / "all", as_part=True)
    lines, summary, problems = read(tmp_path / "all")
    assert [line["image_id"] for line in lines] == [1, 2, 3] and summary["problems"] == len(problems) == 3
    assert summary["images"] == ".." and [Path(s["path"]).parent.name for s in summary["sources"]] == ["a", "b", "c"]
    assert summary["part"] == {"rules": read(merged[0])[1]["part"]["rules"], "has_ids": True}
    (tmp_path / "link").symlink_to(merged[0])
    with pytest.raises(InputError, match=r"of-a: it is named twice"):
        merge_prepared([merged[0], tmp_path / "link"], tmp_path / "out")


@pytest.mark.parametrize(("name", "value"), [("classes", ("cat",)), ("max_side_ratio", 3.0), ("allow_outside", True)])
@pytest.mark.parametrize("first", [False, True])
def test_parts_by_other_rules_are_not_merged_in_either_order(parts, tmp_path, name, value, first):
    two = [parts("a", 1), parts("b", 2, ReadingRules(on_bad_box="drop_box", **{name: value}))]
    with pytest.raises(InputError, match=f"{name} is .*, but .*; prepare all parts by the same rules"):
        merge_prepared(two[:: -1 if first else 1], tmp_path / "out")


@pytest.mark.parametrize("fact", ["record", "looks", "problems", "no part"])
def test_part_that_was_changed_is_refused(parts, tmp_path, fact):
    part = parts("a", 1)
    lines = part / "instances.jsonl"
    if fact == "record":
        lines.write_text(lines.read_text() * 2)
    elif fact == "looks":
        lines.write_text(lines.read_text().replace("1.png", "2.png") + lines.read_text())
        summary = part / "instances.summary.json"
        summary.write_text(summary.read_text().replace('"records": 1', '"records": 2'))
    elif fact == "problems":
        (part / "problems.jsonl").write_text("[")
    else:
        (part / "instances.summary.json").unlink()
    told = {"problems": "it is damaged", "no part": "written by prepare --as-part"}.get(fact, "it was changed")
    with pytest.raises(InputError, match=told):
        merge_prepared([part], tmp_path / "out")


def test_files_that_came_meanwhile_are_not_replaced(tmp_path):
    out = tmp_path / "a.jsonl"
    with pytest.raises(RunError, match="another call has written there"), output_folder(out, single=True) as folder:
        (folder / "a.jsonl").write_text("new")
        (folder / "a.summary.json").write_text("new")
        (tmp_path / "a.summary.json").write_text("old")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.summary.json": "old"}


STATED = (Category(3, "cat"), Category(8, "dog"), Category("x", "hen"))


@pytest.mark.parametrize(
    ("classes", "expected", "absent"),
    [
        (None, STATED, ()),
        (("dog",), STATED[1:2], ()),
        (("hen", "cat"), (STATED[0], STATED[2]), ()),
        (("cat", "cow", "owl"), (STATED[0], Category(9, "cow"), Category(10, "owl")), ("2 classes", "cow, owl")),
        (("owl", "dog"), (STATED[1], Category(9, "owl")), ("a class", "owl")),
    ],
)
def test_categories_of_a_class_list_keep_their_ids_and_others_have_new_ones(classes, expected, absent):
    assert class_categories(STATED, classes, "a.json") == expected
    told = absent_classes(STATED, classes)
    assert len(told) == bool(absent) and all(words in told[0] for words in absent)
    with pytest.raises(InputError, match=r"a\.json: classes: expected classes of these .*\(cat, dog, hen\), found cow"):
        class_categories(STATED, ("cow",), "a.json")


def test_objects_of_other_classes_are_counted_and_faults_take_their_record_away():
    from collections import Counter

    from coord_codec import Problem

    rows = [Instance(image=f"{n}.png", objects=objects) for n, objects in enumerate(([CAT, DOG, DOG], [DOG], [CAT]))]
    fault, problems, notes = Problem("b", "image", "gone"), [], Counter(a=1)
    found = list(usable(rows, [None, None, fault], ("cat",), problems, notes))
    assert [[o.desc for o in i.objects] for i in found] == [["cat"], []] and problems == [fault]
    assert notes == {"a": 1, OTHER: 3}
    assert list(usable(rows, [None] * 3, None, [], notes)) == rows and notes[OTHER] == 3


@pytest.mark.parametrize("limit", [1, 5000])
@pytest.mark.parametrize("change", ["box", "image", "order"])
def test_digest_of_a_set_changes_with_its_boxes_and_its_pixels(tmp_path, monkeypatch, change, limit):
    """Of a set with many images whose format is no stream the sizes of the files count."""
    monkeypatch.setattr("coord_data.reading.image_set.FULL_CHECK_LIMIT", limit)
    source = records(tmp_path, {"image": "1.png"}, {"image": "2.png"})
    before = load_annotated(source).digest
    assert load_annotated(source).digest == before
    if change == "box":
        records(tmp_path, {"image": "1.png", "objects": [DOG]}, {"image": "2.png"})
    elif change == "order":
        records(tmp_path, {"image": "2.png"}, {"image": "1.png"})
    else:
        picture(9).save(tmp_path / "2.png")
    assert load_annotated(source).digest != before


def test_first_images_of_a_set_are_said_and_no_count_is_all(tmp_path):
    found = load_annotated(records(tmp_path, *({"image": f"{n}.png"} for n in range(3))))
    assert [len(found.first(count)) for count in (None, 0, 1, 3, 9)] == [3, 0, 1, 3, 3]
    assert [found.first(count).notes for count in (3, 9, None)] == [found.notes] * 3
    assert "the first 1 of 3 images are used (limit is 1)" in found.first(1).notes[-1]
    assert [i.image for i in found.ground_truth(2).instances] == ["0.png", "1.png"]


@pytest.mark.parametrize("limit", [0, 5000])
def test_images_of_a_prepared_set_may_lie_where_its_summary_says_and_nowhere_else(tmp_path, monkeypatch, limit):
    """Also where the records of many images are kept: the folder is in the key."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = records(tmp_path / "in", {"image": "1.png"})
    prepare([source], tmp_path / "sets" / "out", ReadingRules())
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", limit)
    path = tmp_path / "sets" / "out" / "instances.jsonl"
    found = load_annotated(path)
    assert len(found) == 1 and found.base.resolve() == (tmp_path / "in").resolve()
    (tmp_path / "sets" / "out" / "instances.summary.json").unlink()
    with pytest.raises(InputError, match="outside"):
        load_annotated(path)
    assert len(load_annotated(path, ReadingRules(allow_outside=True))) == 1
    with pytest.raises(InputError, match="max_side_ratio=1"):
        Image.new("RGB", (30, 20)).save(tmp_path / "in" / "1.png")
        load_annotated(source, ReadingRules(max_side_ratio=1))
    assert np.array_equal(np.asarray(found.image(0)), np.asarray(Image.open(tmp_path / "in" / "1.png")))
