"""Large instance files: the same set as a small one's, mapped from disk, checked once, and read as a stream."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coord_codec import InputError, Instance
from coord_codec.records import parse_objects
from coord_trainer.config.sections import DataSection
from coord_trainer.data.image_set import load_annotated
from coord_trainer.data.large import check
from coord_trainer.data.large import store as large
from coord_trainer.data.large.check import plain_row
from coord_trainer.data.large.records import Records, instance_of, row_of, write_records
from coord_trainer.data.lengths import Lengths, longer_than
from coord_trainer.data.parallel import processes
from coord_trainer.data.usable.image import is_outside

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
    """Every instance file counts as a large one."""
    monkeypatch.setattr(large, "LARGE_BYTES", 0)


def dumped(instances):
    return [instance.model_dump(exclude_unset=True) for instance in instances]


def test_large_file_is_the_same_set_as_a_small_one(path, monkeypatch):
    small = load_annotated(path, None, "train", False)
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    found = load_annotated(path, None, "train", False)
    assert isinstance(found.instances, Records)
    assert dumped(found.instances) == dumped(small.instances) and len(found) == 5
    assert dumped([found.instances[-1], *found.instances[1:3]]) == dumped([small.instances[-1], *small.instances[1:3]])
    assert sorted(map(str, found.problems)) == sorted(map(str, small.problems)) and len(found.problems) == 4
    assert found.classes == small.classes
    assert found.words == small.words == {o.desc for i in small.instances for o in i.objects if not o.iscrowd}
    assert found.target_counts.tolist() == small.target_counts.tolist() == [len(i.targets) for i in small.instances]
    assert found.image_sizes.tolist() == small.image_sizes.tolist()
    assert [found.image(i).tobytes() for i in range(5)] == [small.image(i).tobytes() for i in range(5)]


def test_class_list_takes_the_same_objects_of_a_large_file(path, monkeypatch):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    others = [{"desc": f"a{n % 3}", "bbox": [n / 9, 0, 1, 1], "area": n, "colour": n} for n in range(8)]
    others[5]["iscrowd"] = True
    lines[1] |= {"objects": others, "source": "web"}
    lines[7]["objects"] = others[:1]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = DataSection(classes=["a1", "a2"])
    small = load_annotated(path, None, "train", False, data)
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    found = load_annotated(path, None, "train", False, data)
    assert dumped(found.instances) == dumped(small.instances) and found.target_counts.tolist() == [0, 4, 0, 0, 0]
    assert dict(found.annotations.notes) == dict(small.annotations.notes)


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


@pytest.mark.parametrize("on_bad_box", ["drop_image", "drop_box"])
@pytest.mark.parametrize("first", ["images", "annotations"])
@pytest.mark.parametrize("classes", [None, ["dog", "bird"]])
def test_large_coco_file_is_the_same_set_as_a_small_one(tmp_path, coco, monkeypatch, on_bad_box, first, classes):
    document = {first: coco[first]} | coco
    if on_bad_box == "drop_image":  # otherwise every image goes
        document["annotations"] = [a for a in coco["annotations"] if a in (5, None) or a["id"] % 7 in (0, 1, 2, 6)]
        document["categories"] = coco["categories"][:2]
    (tmp_path / "a.json").write_text("\ufeff" * (first == "images") + json.dumps(document, indent=1))
    data = DataSection(on_bad_box=on_bad_box, classes=classes)
    small = load_annotated(tmp_path / "a.json", None, "train", False, data)
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    found = load_annotated(tmp_path / "a.json", None, "train", False, data)
    assert isinstance(found.instances, Records) and not isinstance(small.instances, Records)
    assert dumped(found.instances) == dumped(small.instances) and len(found) > 1 and found.target_counts.sum() > 2
    assert found.problems == small.problems and len(found.problems) > 4
    assert dict(found.annotations.notes) == dict(small.annotations.notes)
    assert found.annotations.categories == small.annotations.categories and found.classes == small.classes
    again = load_annotated(tmp_path / "a.json", None, "train", False, data)
    assert (
        dumped(again.instances) == dumped(small.instances)
        and again.annotations.categories == small.annotations.categories
    )


def test_large_coco_file_whose_annotations_have_no_image_is_an_error(tmp_path, coco, many):
    for row in coco["annotations"][:41]:
        row["image_id"] = f"{row['image_id']}.png"
    (tmp_path / "a.json").write_text(json.dumps(coco))
    with pytest.raises(InputError, match=r"\.png' is not the id .*; no other annotation"):
        load_annotated(tmp_path / "a.json", None, "train", False)


def test_large_coco_file_that_is_scored_keeps_its_rows(tmp_path, coco, many):
    coco["annotations"] = coco["annotations"][:2]
    (tmp_path / "a.json").write_text(json.dumps(coco))
    found = load_annotated(tmp_path / "a.json", None, "heldout", False, DataSection(), scored=True)
    assert found.annotations.tables is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"images": [], "categories": [], "annotations": [', "not JSON"),
        ('{"images": [], "categories": []}', "found no list annotations"),
        ('{"images": [], "categories": 3, "annotations": []}', "no usable image is left"),
    ],
)
def test_broken_large_coco_file_is_named(tmp_path, many, text, told, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=told) as error:
        load_annotated(tmp_path / "a.json", None, "train", False)
    assert "a.json" in str(error.value)


def test_checked_file_is_taken_from_the_cache_until_anything_changes(path, many, capsys, tmp_path):
    first = load_annotated(path, None, "train", False)
    assert "checked before" not in capsys.readouterr().out
    again = load_annotated(path, None, "train", False)
    assert "checked before" in capsys.readouterr().out
    assert dumped(again.instances) == dumped(first.instances) and again.digest == first.digest
    assert again.problems == first.problems
    for change in ("image", "file", "setting"):
        data = DataSection(on_bad_box="drop_box") if change == "setting" else None
        if change == "image":
            Image.new("RGB", (40, 20), (99, 9, 9)).resize((41, 21)).resize((40, 20)).save(tmp_path / "0.png")
        elif change == "file":
            path.write_text(path.read_text() + "\n")
        other = load_annotated(path, None, "train", False, data)
        assert "checked before" not in capsys.readouterr().out, change
        assert other.digest != first.digest
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_refused_objects_of_a_large_file_are_an_error_when_asked(path, many):
    with pytest.raises(InputError, match=r"2 objects are refused; data\.on_bad_box is error"):
        load_annotated(path, None, "train", False, DataSection(on_bad_box="error"))
    with pytest.raises(InputError, match=r"data\.strict is on"):
        load_annotated(path, None, "train", True)


def test_records_are_mapped_and_a_copy_maps_the_same_file(tmp_path):
    instances = [Instance(image=f"{n}.png", objects=[BOX] * (n % 3)) for n in range(10_000)]
    assert write_records(tmp_path / "a.arrow", map(row_of, instances)) == 10_000
    records = Records(tmp_path / "a.arrow")
    copy = pickle.loads(pickle.dumps(records))
    assert len(pickle.dumps(records)) < 400
    assert dumped(copy[5000:5003]) == dumped(instances[5000:5003]) and dumped(records) == dumped(instances)
    assert records.target_counts.tolist() == [n % 3 for n in range(10_000)]
    with pytest.raises(IndexError):
        records[10_000]


def test_failed_writing_leaves_nothing(tmp_path):
    def broken():
        yield Instance(image="a.png", objects=[])
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        write_records(tmp_path / "a.arrow", map(row_of, broken()))
    assert not list(tmp_path.iterdir())


def test_long_samples_of_a_large_set_are_those_of_a_small_one(tmp_path):
    """Only records that may be too long are read; the bound holds for every target text."""
    from coord_codec import encode_target

    draw = np.random.default_rng(3)
    names = ["cat", "a very long description of a thing " * 3, "ü" * 20]
    instances = [
        Instance(
            image=f"{n}.png",
            width=int(draw.integers(10, 60)),
            height=50,
            objects=[{"desc": names[k], "bbox": [0.1, 0.1, 0.5, 0.5]} for k in draw.integers(0, 3, n % 9)],
        )
        for n in range(60)
    ]
    write_records(tmp_path / "a.arrow", map(row_of, instances))
    records = Records(tmp_path / "a.arrow")
    for style, markers in (("markers", "qwen"), ("markers", "obj"), ("json", "qwen")):

        def write(instance, style=style, markers=markers):
            return encode_target(instance, style=style, markers=markers)

        assert all(len(write(i).encode()) <= bound for i, bound in zip(instances, records.text_bounds, strict=True))
        lengths = Lengths(around=5, answer=lambda text: len(text.encode()), image=lambda width, height: width * height)
        assert [(i.image, n) for i, n in longer_than(2500, lengths, records, write)] == [
            (i.image, n) for i, n in longer_than(2500, lengths, instances, write)
        ]


_TYPED = [0, 1, 0.0, 1.0, 0.25, 0.5, 0.5005, True, None, "<|coord_100|>", "x", float("nan"), -0.1, 1e-7, [0.1], 12, ""]

_SHAPES = [None, "round", {"type": "polygon", "coordinates": [0.1, 0.1]}, {"type": "point", "coordinates": [0.5, 0.5]}]


def drawn_record(draw):
    """Return a record that is right but for what chance puts in, at any place."""
    objects = []
    for _ in range(draw.integers(0, 4)):
        (x1, x2), (y1, y2) = sorted(draw.uniform(0, 1, 2)), sorted(draw.uniform(0, 1, 2))
        found = {"desc": "cat", "bbox": [x1, y1, x2, y2]}
        given = {"iscrowd": [True, False, 0, 1], "area": [3, 2.5, None], "colour": ["red", [1]], "geometry": _SHAPES}
        for key, values in given.items():
            if draw.random() < (0.1 if key == "geometry" else 0.3):
                found[key] = values[draw.integers(len(values))]
        objects.append(found)
    record = {"image": "a.png", "width": 40, "height": 20, "image_id": int(draw.integers(9)), "objects": objects}
    if draw.random() < 0.2:
        record["source"] = {"web": 1}
    if draw.random() < 0.2:
        record.pop(["image", "width", "height", "image_id", "objects"][draw.integers(5)])
    if draw.random() < 0.6:
        value = _TYPED[draw.integers(len(_TYPED))]
        place = draw.choice(["image", "width", "image_id", "objects", "coord_space", "object", "side", "desc", "area"])
        if place in ("object", "side", "desc", "area") and objects:
            found = objects[draw.integers(len(objects))]
            if place == "object":
                objects[0] = value
            elif place == "side":
                found["bbox"][draw.integers(4)] = value
            else:
                found[place] = ["<|coord_1|>", " ", "\ud800", value][draw.integers(4)]
        else:
            record[place] = value
    return record


def test_plain_row_is_the_codecs_instance_or_none():
    draw, plain = np.random.default_rng(0), 0
    for _ in range(3000):
        record = drawn_record(draw)
        line = json.dumps(record).encode()
        row = plain_row(line)
        if row is not None:
            instance, faults = parse_objects(line, "a:1", "drop_box")
            assert not faults and repr(row) == repr(row_of(instance)), record  # repr, since no NaN equals another
            assert repr(instance_of(row)) == repr(instance)
            plain += 1
    assert 1000 < plain < 2500


def test_checks_shared_out_to_processes_find_the_same(tmp_path, coco, path, monkeypatch):
    document = coco | {"annotations": [a for a in coco["annotations"] if a in (5, None) or a["id"] % 7 in (0, 1, 2, 6)]}
    (tmp_path / "a.json").write_text(json.dumps(document | {"categories": coco["categories"][:2]}))
    wanted = [load_annotated(file, None, "train", False) for file in (path, tmp_path / "a.json")]
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    monkeypatch.setattr(check, "PIECE", 1)
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: {0, 1})
    forked = []
    submit = processes.ProcessPoolExecutor.submit
    monkeypatch.setattr(
        processes.ProcessPoolExecutor, "submit", lambda *given, **named: forked.append(1) or submit(*given, **named)
    )
    for small, file in zip(wanted, (path, tmp_path / "a.json"), strict=True):
        forked.clear()
        found = load_annotated(file, None, "train", False)
        assert len(forked) > 2 and dumped(found.instances) == dumped(small.instances)
        assert sorted(map(str, found.problems)) == sorted(map(str, small.problems))
        assert dict(found.annotations.notes) == dict(small.annotations.notes) and found.classes == small.classes


@pytest.mark.parametrize("annotations", [[], [None]])
def test_large_coco_file_without_annotations_is_the_same_set(tmp_path, coco, monkeypatch, annotations):
    (tmp_path / "a.json").write_text(json.dumps(coco | {"annotations": annotations}))
    wanted = load_annotated(tmp_path / "a.json", None, "train", False).problems
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    assert load_annotated(tmp_path / "a.json", None, "train", False).problems == wanted


@pytest.mark.parametrize("size", ["small", "large"])
def test_images_of_several_records_are_said_unless_they_ask_for_phrases(path, monkeypatch, size):
    monkeypatch.setattr(large, "LARGE_BYTES", 0 if size == "large" else 1_000_000)
    one, phrase = {"image": "0.png", "objects": [BOX]}, {"image": "2.png", "query": "the cat", "objects": [BOX]}
    path.write_text("".join(json.dumps(line) + "\n" for line in [one, one, {**one, "image": "1.png"}, phrase, phrase]))
    found = load_annotated(path, None, "train", strict=True)
    assert isinstance(found.instances, Records) is (size == "large")
    assert found.told == ("1 image has several records, such as 0.png: merge them into one record per image",)


def test_large_list_of_records_is_no_lines(path, many):
    records = [{"image": f"{n}.png", "objects": [BOX]} for n in range(3)]
    path.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]")
    found = load_annotated(path, None, "train", strict=True)
    assert [instance.image for instance in found.instances] == ["0.png", "1.png", "2.png"]
