"""Instance and COCO files: what objects would hold comes out, and of many images it is checked once and kept."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from changes import change_alone
from PIL import Image

from coord_codec import InputError, read_annotations
from coord_data.looking import processes
from coord_data.looking.look import is_outside, look_at
from coord_data.reading import cache as stored
from coord_data.reading.image_set import load_annotated
from coord_data.reading.read import read_by
from coord_data.reading.rules import ReadingRules
from coord_data.records import Records

BOX = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}

CROWD = {"desc": "pack", "bbox": [0, 0, 1, 1], "iscrowd": True, "area": 12.5, "colour": "red"}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Eight records: bad ones among them, one with extra keys, one without objects."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = []
    for n in range(8):
        Image.new("RGB", (40 + n, 20), (n, n, n)).save(tmp_path / f"{n}.png")
        lines.append({"image": f"{n}.png", "width": 40 + n, "height": 20, "image_id": n, "objects": [BOX] * n})
    lines[2] |= {"image_id": "2", "source": "web", "objects": [BOX, CROWD]}
    lines[3]["objects"] = [BOX, BOX | {"bbox": [0.5, 0.1, 0.1, 0.5]}]
    lines[4]["objects"] = [BOX, BOX | {"bbox": [0.1, 0.1, 0.1001, 0.5]}]
    lines[5]["image"] = "gone.png"
    lines[1]["image"] = ".\\1.png"
    lines[6]["image_id"] = 1
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "a.jsonl"


@pytest.fixture
def many(monkeypatch):
    """Every file counts as one with many images."""
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)


def dumped(instances):
    return [instance.model_dump(exclude_unset=True) for instance in instances]


def test_large_file_is_the_same_set_as_a_small_one(path, monkeypatch):
    small = load_annotated(path)
    assert small.evidence.raw.files[1] == "1.png"  # as training names it, though other records have faults
    assert small.evidence.files[1].size == (41, 20)
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
    found = load_annotated(path)
    assert isinstance(found.instances, Records)
    assert dumped(found.instances) == dumped(small.instances) and len(found) == 5
    assert dumped([found.instances[-1], *found.instances[1:3]]) == dumped([small.instances[-1], *small.instances[1:3]])
    assert found.problems == small.problems and len(found.problems) == 4
    assert found.classes == small.classes
    assert found.words == small.words == {o.desc for i in small.instances for o in i.objects if not o.iscrowd}
    assert found.target_counts.tolist() == small.target_counts.tolist() == [len(i.targets) for i in small.instances]
    assert found.image_sizes.tolist() == small.image_sizes.tolist()
    assert [found.image(i).tobytes() for i in range(5)] == [small.image(i).tobytes() for i in range(5)]


def test_image_with_longer_sides_than_the_rules_allow_is_left_out_of_large_and_small_files(path, monkeypatch):
    for large in (False, True):
        monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1 if large else 5000)
        kept = {ratio: load_annotated(path, ReadingRules(max_side_ratio=ratio)) for ratio in (2, None)}
        assert [i.width for i in kept[2].instances] == [w for w in (i.width for i in kept[None].instances) if w <= 40]
        assert any("exceeds max_side_ratio=2" in str(problem) for problem in kept[2].problems)


def test_class_list_takes_the_same_objects_of_a_large_file(path, monkeypatch):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    others = [{"desc": f"a{n % 3}", "bbox": [n / 9, 0, 1, 1], "area": n, "colour": n} for n in range(8)]
    others[5]["iscrowd"] = True
    lines[1] |= {"objects": others, "source": "web"}
    lines[7]["objects"] = others[:1]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for n in (1, 7):  # what decoding changes is noted of images of several pieces
        Image.new("RGBA", (40 + n, 20), (n, n, n, 9)).save(path.parent / f"{n}.png")
    data = ReadingRules(classes=["a1", "a2", "a9"])
    small = load_annotated(path, data)
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
    monkeypatch.setattr(stored, "_PIECE", 2)
    found = load_annotated(path, data)
    assert dumped(found.instances) == dumped(small.instances) and found.target_counts.tolist() == [0, 4, 0, 0, 0]
    assert dict(found.annotations.notes) == dict(small.annotations.notes) and 2 in small.annotations.notes.values()
    assert found.notes == small.notes == ("the list of classes names a class that these annotations do not have: a9",)


def test_folders_are_followed_once_and_not_for_every_image(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    looked = []
    resolve = Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda *given: looked.append(given[0]) or resolve(*given))
    assert not any(is_outside(tmp_path / "images" / f"{n}.png", tmp_path) for n in range(50))
    assert len(looked) == 2


@pytest.fixture
def coco(tmp_path, monkeypatch):
    """A COCO file with everything that is left out or counted, annotations in no order, images before or after them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for n in range(6):
        Image.new("RGB", (40 + n, 20), (n, n, n)).save(tmp_path / f"{n}.png")
    images = [{"id": 9 - n, "file_name": f"{n}.png", "width": 40 + n, "height": 20} for n in range(6)]
    images += [
        {"id": "x", "file_name": "gone.png", "width": 9, "height": 9},
        {"id": 8, "file_name": ".\\2.png"},
        "no row",
        None,
    ]
    images[5] |= {"width": None}
    boxes = [
        [1.5, 2, 8.25, 9],
        [0, 0, 40.5, 20],
        [3, 3, 0, 5],
        [30, 3, 40, 5],
        [5, 5, -1, 2],
        [5, 5, 12.125, 7],
        [1, 1, 5, 5],
    ]
    annotations = [
        {"id": k, "image_id": 9 - (5 * k) % 6, "category_id": (7, 3, 4)[k % 3], "bbox": boxes[k % 7]} for k in range(40)
    ]
    annotations[0] |= {"bbox": boxes[1]}  # clipped, before others of its image that need no closer look
    annotations[4] |= {"iscrowd": 1, "bbox": [1, 1, 9, 9], "area": 12.5}
    annotations[6] |= {"area": 0.1 + 0.2}
    annotations[1] |= {"image_id": str(annotations[1]["image_id"])}
    annotations[8] |= {"category_id": str(annotations[8]["category_id"])}
    annotations[12] |= {"bbox": [3, 3, 8, 4], "attributes": {"rotation": 30, "occluded": False}}
    annotations += [{"id": 1, "image_id": 99, "category_id": 3, "bbox": [1, 1, 2, 2]}, 5, None]
    categories = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 4, "name": "bad <|coord_1|>"}]
    return {"info": {}, "annotations": annotations, "categories": categories, "images": images}


def by_objects(path, rules):
    """The records as `coord_codec` holds them as objects."""
    sizes = {"image_size": lambda name: look_at(path.parent / name).size}
    return read_annotations(path, **sizes, on_bad_box=rules.on_bad_box, geometry=rules.geometry)


@pytest.mark.parametrize("geometry", ["box", "polygon"])
@pytest.mark.parametrize("on_bad_box", ["drop_image", "drop_box"])
def test_lines_are_read_as_by_objects(path, on_bad_box, geometry):
    rules = ReadingRules(on_bad_box=on_bad_box, geometry=geometry)
    wanted, found = by_objects(path, rules), read_by(path, rules).annotations
    assert dumped(found.instances) == dumped(wanted.instances) and found.problems == wanted.problems
    assert (found.notes, found.categories, found.table) == (wanted.notes, wanted.categories, None)


@pytest.mark.parametrize("geometry", ["box", "polygon"])
@pytest.mark.parametrize("on_bad_box", ["drop_image", "drop_box"])
@pytest.mark.parametrize("first", ["images", "annotations"])
@pytest.mark.parametrize("classes", [None, ["dog", "bird"]])
def test_coco_file_is_read_as_by_objects(tmp_path, coco, monkeypatch, on_bad_box, first, classes, geometry):
    document = {first: coco[first]} | coco
    if on_bad_box == "drop_image":  # otherwise every image goes
        document["annotations"] = [a for a in coco["annotations"] if a in (5, None) or a["id"] % 7 in (0, 1, 2, 6)]
        document["categories"] = coco["categories"][:2]
    (tmp_path / "a.json").write_text("\ufeff" * (first == "images") + json.dumps(document, indent=1))
    rules = ReadingRules(on_bad_box=on_bad_box, classes=classes, geometry=geometry)
    wanted, found = by_objects(tmp_path / "a.json", rules), read_by(tmp_path / "a.json", rules).annotations
    assert dumped(found.instances) == dumped(wanted.instances) and len(found.instances) > 1
    assert found.problems == wanted.problems and len(found.problems) > 3
    assert (found.notes, found.categories, found.table) == (wanted.notes, wanted.categories, wanted.table)
    few = load_annotated(tmp_path / "a.json", rules)
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
    many = load_annotated(tmp_path / "a.json", rules, scored=True)
    again = load_annotated(tmp_path / "a.json", rules)
    assert isinstance(many.instances, Records) and not isinstance(few.instances, Records)
    assert many.annotations.table == few.annotations.table and again.annotations.table is None
    for images in (many, again):
        assert dumped(images.instances) == dumped(few.instances) and images.target_counts.sum() > 2
        assert images.problems == few.problems and dict(images.annotations.notes) == dict(few.annotations.notes)
        assert images.annotations.categories == few.annotations.categories and images.classes == few.classes


def test_boxes_for_scoring_are_read_anew_where_records_are_kept(tmp_path, coco, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(coco))
    rules = ReadingRules(on_bad_box="drop_box")
    wanted = load_annotated(tmp_path / "a.json", rules).annotations.table
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
    tables = [load_annotated(tmp_path / "a.json", rules, scored=scored).annotations.table for scored in (False, True)]
    assert tables == [None, wanted] and wanted is not None


def test_where_a_file_is_cut_into_blocks_and_parts_makes_no_difference(tmp_path, coco, monkeypatch):
    """Numbers may be cut at the end of a block, and rows that are no plain numbers may stand at the end of a part."""
    for row in coco["annotations"][:40]:
        row["id"] += 123456
    coco["annotations"][7]["iscrowd"] = 2
    path = tmp_path / "a.json"
    path.write_text(json.dumps(coco))
    rules = ReadingRules(on_bad_box="drop_box")
    wanted = by_objects(path, rules)
    assert any("iscrowd: expected 0 or 1, found 2" in str(problem) for problem in wanted.problems)
    for block, part in ((1, 1), (7, 3), (16, 4), (1 << 20, 5), (1 << 20, 41)):
        monkeypatch.setattr("coord_codec.json_stream._BLOCK", block)
        monkeypatch.setattr("coord_codec.coco.columns.PART", part)
        monkeypatch.setattr("coord_codec.coco.document.PART", part)
        found = read_by(path, rules).annotations
        assert dumped(found.instances) == dumped(wanted.instances)
        assert (found.problems, found.notes) == (wanted.problems, wanted.notes)
        assert found.table == wanted.table


def test_part_of_many_images_is_evenly_spaced_and_unchanged(path, coco, many, monkeypatch):
    for kind in ("lines", "coco"):
        monkeypatch.setattr(f"coord_data.stream.{kind}.PART", 3)
    assert load_annotated(path).part.text.splitlines() == path.read_text().splitlines()[::2]
    (path.parent / "a.json").write_text(json.dumps(coco))
    part = json.loads(load_annotated(path.parent / "a.json", ReadingRules(on_bad_box="drop_box")).part.text)
    assert part["images"] == [coco["images"][n] for n in (0, 3, 6)] and part["categories"] == coco["categories"]
    own = [row for row in coco["annotations"] if isinstance(row, dict) and str(row["image_id"]) in ("9", "6", "x")]
    found = sorted(part["annotations"], key=lambda row: row["id"])
    assert [{"iscrowd": 0} | row for row in found] == [{"iscrowd": 0} | row for row in own]


def test_large_coco_file_whose_annotations_have_no_image_is_an_error(tmp_path, coco, many):
    for row in coco["annotations"][:41]:
        row["image_id"] = f"{row['image_id']}.png"
    (tmp_path / "a.json").write_text(json.dumps(coco))
    with pytest.raises(InputError, match=r"\.png' is not the id .*; no other annotation"):
        load_annotated(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"images": [], "categories": [], "annotations": [', "not JSON"),
        ('{"images": [], "categories": []}', r"found an object with the keys \['categories', 'images'\]"),
        ('{"images": [], "categories": 3, "annotations": []}', "categories: expected a list, found 3"),
    ],
)
def test_broken_large_coco_file_is_named(tmp_path, many, text, told, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=told) as error:
        load_annotated(tmp_path / "a.json")
    assert "a.json" in str(error.value)


def test_checked_file_is_taken_from_the_cache_until_anything_changes(path, many, caplog, tmp_path):
    caplog.set_level("INFO")
    first = load_annotated(path)
    assert "checked before" not in caplog.text
    again = load_annotated(path)
    assert "checked before" in caplog.text
    caplog.clear()
    assert dumped(again.instances) == dumped(first.instances) and again.digest == first.digest
    assert again.problems == first.problems
    for change in ("image", "file", "setting"):
        data = ReadingRules(on_bad_box="drop_box") if change == "setting" else None
        if change == "image":
            Image.new("RGB", (40, 20), (99, 9, 9)).resize((41, 21)).resize((40, 20)).save(tmp_path / "0.png")
        elif change == "file":
            path.write_text(path.read_text() + "\n")
        other = load_annotated(path, data)
        assert "checked before" not in caplog.text, change
        assert other.digest != first.digest
    assert not list((tmp_path / "cache").rglob("*.tmp"))


OTHER_RULES = {
    "images": "elsewhere",
    "on_bad_box": "drop_box",
    "allow_outside": True,
    "classes": ("cat",),
    "geometry": "polygon",
    "read_as": "xyxy,percent",
    "max_side_ratio": None,
}
"""For each rule that decides which records are kept another value than its default."""

WITHOUT_EFFECT_ON_RECORDS = {
    "strict": "raises an error, or changes nothing",
    "fields": "names columns of Parquet files and members of tars, which are not kept",
    "format": "the format that was found is in the key",
}
"""The other rules, with the reason why the records that are kept do not depend on them."""


def test_every_rule_that_decides_which_records_are_kept_changes_their_digest(tmp_path, many, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder in (tmp_path, tmp_path / "elsewhere"):
        folder.mkdir(exist_ok=True)
        for n in range(2):
            Image.new("RGB", (40, 20)).save(folder / f"{n}.png")
            os.utime(folder / f"{n}.png", (1, 1))
    lines = [json.dumps({"image": f"{n}.png", "objects": [BOX]}) + "\n" for n in range(2)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    assert {*OTHER_RULES, *WITHOUT_EFFECT_ON_RECORDS} == {*ReadingRules.model_fields}
    digests = {"none": load_annotated(tmp_path / "a.jsonl").digest}
    for name, value in OTHER_RULES.items():
        rules = ReadingRules(**{name: tmp_path / value if name == "images" else value})
        assert getattr(rules, name) != getattr(ReadingRules(), name)
        digests[name] = load_annotated(tmp_path / "a.jsonl", rules).digest
    assert len({*digests.values()}) == len(digests), digests


@pytest.mark.parametrize("large", [True, False])
def test_limit_is_in_the_digest_of_a_set(path, monkeypatch, large):
    """Of what is kept, and of answers that go on: the first images of a set are another set."""
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1 if large else 5000)
    whole = load_annotated(path)
    digests = [whole.first(count).digest for count in (1, 2, len(whole) - 1, len(whole), None)]
    assert digests[-2:] == [whole.digest] * 2 and len({*digests}) == 4


@pytest.mark.slow
def test_last_byte_of_a_large_file_and_of_an_image_is_in_the_digest(tmp_path, monkeypatch):
    """Files are hashed a MiB at a time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Image.new("RGB", (40, 20)).save(tmp_path / "0.png")
    image = (tmp_path / "0.png").read_bytes()
    lines = json.dumps({"image": "0.png", "objects": [BOX]}) + " " * (1 << 20)
    digests = {}
    for large in (False, True):
        monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 0 if large else 5000)
        for last, of_image in (("\n", b"a"), (" ", b"a"), ("\n", b"b")):
            (tmp_path / "a.jsonl").write_text(lines + last)
            (tmp_path / "0.png").write_bytes(image + b" " * (1 << 20 if not large else 1) + of_image)
            os.utime(tmp_path / "0.png", (1, 1))
            digests[large, last, of_image] = load_annotated(tmp_path / "a.jsonl").digest
    assert digests[False, "\n", b"a"] != digests[False, "\n", b"b"]
    assert digests[True, "\n", b"a"] != digests[True, " ", b"a"]


@pytest.mark.parametrize("fact", ["size", "time", "gone"])
def test_every_fact_of_an_image_alone_makes_what_is_kept_stale(path, many, caplog, fact):
    """The last image is checked as the first."""
    caplog.set_level("INFO")
    for name in ("0.png", "7.png"):
        before = load_annotated(path).digest
        caplog.clear()
        change_alone(path.parent / name, fact)
        assert load_annotated(path).digest != before and "checked before" not in caplog.text


@pytest.mark.parametrize("fact", [None, "size", "damaged"])
def test_pieces_of_an_interrupted_check_are_used_or_counted_as_outdated(path, fact):
    root, images = path.parent, [("0.png", 40, 20)]
    pieces = stored._Pieces(root / "kept", root)
    pieces.keep(0, stored._check_images(stored._Job(images, None), root, None, None))
    if fact == "damaged":
        pieces._path(0).write_text("[")
    elif fact:
        change_alone(root / "0.png", fact)
    (job,) = pieces.jobs([images])
    assert (job.known is None, pieces.used, pieces.outdated) == (bool(fact), not fact, bool(fact))


@pytest.mark.slow
def test_interrupted_check_of_headers_is_continued_by_the_same_command(tmp_path, monkeypatch):
    Image.new("RGB", (40, 20)).save(tmp_path / "0.png")
    for n in range(1, 6000):
        os.link(tmp_path / "0.png", tmp_path / f"{n}.png")
    records = [
        {"image": f"{n}.png", "width": 40 + (n % 1000 == 7), "height": 20, "objects": [BOX]} for n in range(6000)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = [sys.executable, "-m", "coord_data", "prepare", "a.jsonl", "--workers", "2", "--out"]
    places = {"cwd": tmp_path, "env": os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}}
    with subprocess.Popen([*words, "out"], stderr=subprocess.PIPE, text=True, **places) as process:
        end = time.monotonic() + 120
        while not list(tmp_path.glob("cache/coordexp/records/*.checked/000001.json")):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130 and "the same command continues" in told, told
    pieces = sorted(tmp_path.glob("cache/coordexp/records/*.checked/*.json"))
    assert len(pieces) > 1 and not (tmp_path / "out").exists()
    pieces[0].write_text("damaged")
    stated = json.loads(pieces[1].read_text())
    assert list(stated[1]) == [f"{1007 - 512}"]
    stated[1]["2"] = stated[1].pop(f"{1007 - 512}")  # to be seen where it is taken from the piece
    pieces[1].write_text(json.dumps(stated))
    again = subprocess.run([*words, "out"], capture_output=True, text=True, check=True, **places)
    assert "continued with" in again.stdout and "checked again" in again.stdout
    found = [json.loads(line)["image"] for line in (tmp_path / "out" / "instances.jsonl").read_text().splitlines()]
    left_out = {f"../{n}.png" for n in range(6000)} - set(found)
    assert left_out == {f"../{n}.png" for n in (7, 514, 2007, 3007, 4007, 5007)}
    assert not pieces[0].parent.exists()


def test_refused_objects_of_a_large_file_are_an_error_when_asked(path, many):
    with pytest.raises(InputError, match=r"2 objects are refused, and on_bad_box is error"):
        load_annotated(path, ReadingRules(on_bad_box="error"))
    with pytest.raises(InputError, match=r"strict is on"):
        load_annotated(path, ReadingRules(strict=True))


@pytest.mark.slow
def test_checks_shared_out_to_processes_find_the_same(tmp_path, coco, path, monkeypatch):
    document = coco | {"annotations": [a for a in coco["annotations"] if a in (5, None) or a["id"] % 7 in (0, 1, 2, 6)]}
    (tmp_path / "a.json").write_text(json.dumps(document | {"categories": coco["categories"][:2]}))
    wanted = [load_annotated(file) for file in (path, tmp_path / "a.json")]
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
    monkeypatch.setattr(stored, "_PIECE", 1)
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: {0, 1})
    forked = []
    submit = processes.ProcessPoolExecutor.submit
    monkeypatch.setattr(
        processes.ProcessPoolExecutor, "submit", lambda *given, **named: forked.append(1) or submit(*given, **named)
    )
    for small, file in zip(wanted, (path, tmp_path / "a.json"), strict=True):
        forked.clear()
        found = load_annotated(file)
        assert len(forked) > 2 and dumped(found.instances) == dumped(small.instances)
        assert sorted(map(str, found.problems)) == sorted(map(str, small.problems))
        assert dict(found.annotations.notes) == dict(small.annotations.notes) and found.classes == small.classes


@pytest.mark.parametrize("annotations", [[], [None]])
def test_large_coco_file_without_annotations_is_the_same_set(tmp_path, coco, monkeypatch, annotations):
    (tmp_path / "a.json").write_text(json.dumps(coco | {"annotations": annotations}))
    wanted = load_annotated(tmp_path / "a.json").problems
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1)
    assert load_annotated(tmp_path / "a.json").problems == wanted


@pytest.mark.parametrize("size", ["small", "large"])
def test_images_of_several_records_are_said_unless_they_ask_for_phrases(path, monkeypatch, size):
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1 if size == "large" else 5000)
    one, phrase = {"image": "0.png", "objects": [BOX]}, {"image": "2.png", "query": "the cat", "objects": [BOX]}
    path.write_text("".join(json.dumps(line) + "\n" for line in [one, one, {**one, "image": "1.png"}, phrase, phrase]))
    found = load_annotated(path, ReadingRules(strict=True))
    assert isinstance(found.instances, Records) is (size == "large")
    assert found.notes == ("1 image has several records, such as 0.png: merge them into one record per image",)


def test_large_list_of_records_is_no_lines(path, many):
    records = [{"image": f"{n}.png", "objects": [BOX]} for n in range(3)]
    path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]")
    found = load_annotated(path, ReadingRules(strict=True))
    assert [instance.image for instance in found.instances] == ["0.png", "1.png", "2.png"]
