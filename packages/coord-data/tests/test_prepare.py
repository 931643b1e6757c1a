"""`prepare`: files and folders go in; records, problems, a summary and a split by image content come out."""

import json
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from one_image import picture
from PIL import Image

from coord_codec import InputError, Instance, read_instances
from coord_data.preparing.preparation import prepare
from coord_data.preparing.selection import split_by_content
from coord_data.reading.image_set import load_annotated
from coord_data.reading.rules import ReadingRules

RNG = np.random.default_rng(5)


@pytest.fixture
def coco(tmp_path, caplog):
    caplog.set_level("INFO")
    (tmp_path / "images").mkdir()
    images, rows = [], []
    for n in range(40):
        picture(n).save(tmp_path / "images" / f"{n}.png")
        images.append({"id": n, "file_name": f"{n}.png", "width": 64, "height": 48})
        rows.append({"id": n, "image_id": n, "category_id": 1, "bbox": [4, 4, 32, 32]})
    rows[3]["bbox"] = [4, 4, 90, 32]
    rows[4]["bbox"] = [4, 4, 0, 32]
    document = {"images": images, "annotations": rows, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    return tmp_path


@pytest.mark.slow
def test_prepared_folder_is_read_back_as_the_same_set(coco, caplog):
    out = coco / "out" / "prepared"
    prepare([coco / "a.json", coco / "images"], out, ReadingRules())
    assert {p.name for p in out.iterdir()} == {"instances.jsonl", "instances.summary.json", "problems.jsonl"}
    before = load_annotated(coco / "a.json", ReadingRules(images=coco / "images"))
    after = load_annotated(out)
    assert [(i.image_id, i.objects) for i in after.instances] == [(i.image_id, i.objects) for i in before.instances]
    assert after.image(7).tobytes() == picture(7 + 1).tobytes()  # the image of record 3 went with its box
    listed = [json.loads(line) for line in (out / "problems.jsonl").read_text().splitlines()]
    assert [line["is_box"] for line in listed] == [True, True]
    summary = json.loads((out / "instances.summary.json").read_text())
    assert (summary["records"], summary["boxes"], summary["problems"]) == (39, 38, 2)
    assert summary["classes"] == {"cat": 38}
    told = caplog.text
    assert "39 records, 38 boxes" in told and "1 image left out with an object that was refused" in told


@pytest.mark.slow
def test_old_form_writes_a_file(coco):
    prepare([coco / "a.json", coco / "images"], coco / "x" / "a.jsonl", ReadingRules())
    assert {p.name for p in (coco / "x").iterdir()} == {"a.jsonl", "a.summary.json", "a.problems.jsonl"}
    assert len(load_annotated(coco / "x" / "a.jsonl")) == 39


def test_last_source_that_is_not_there_is_named(coco):
    with pytest.raises(InputError, match=r"imgs: expected annotations, or a folder of images, found nothing there"):
        prepare([coco / "a.json", coco / "imgs"], coco / "out", ReadingRules())


def test_folders_of_labels_and_images_are_one_source(tmp_path):
    for name in ("labels", "images"):
        (tmp_path / name).mkdir()
    picture(0).save(tmp_path / "images" / "a.png")
    (tmp_path / "labels" / "a.txt").write_text("0 .5 .5 .5 .5")
    (tmp_path / "classes.txt").write_text("cat")
    prepare([tmp_path / "labels", tmp_path / "images"], tmp_path / "out", ReadingRules())
    (instance,) = read_instances(tmp_path / "out" / "instances.jsonl").instances
    assert (instance.image, instance.objects[0].bbox) == ("../images/a.png", (0.25, 0.25, 0.75, 0.75))


@pytest.mark.slow
def test_paths_of_a_folder_that_is_prepared_again_do_not_lead_through_it(coco):
    prepare([coco / "a.json", coco / "images"], coco / "one" / "a", ReadingRules())
    prepare([coco / "one" / "a"], coco / "two", ReadingRules())
    assert read_instances(coco / "two" / "instances.jsonl").instances[0].image == "../images/0.png"


@pytest.mark.parametrize(("text", "told"), [("", "found an empty file"), ("image,label,x,y,w,h\n", "are no records")])
def test_files_without_records_are_told(tmp_path, text, told):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=told):
        prepare([tmp_path / "a.csv"], tmp_path / "out", ReadingRules())


def test_strict_and_error_write_nothing(coco):
    for settings in ({"strict": True}, {"on_bad_box": "error"}):
        with pytest.raises(InputError, match=r"no area|outside its image"):
            prepare([coco / "a.json", coco / "images"], coco / "out", ReadingRules(**settings))
        assert not (coco / "out").exists()


@pytest.mark.slow
def test_several_sources_with_the_same_ids_lose_them(coco, caplog):
    prepare([coco / "a.json", coco / "a.json"], coco / "out", ReadingRules(images=coco / "images"))
    found = read_instances(coco / "out" / "instances.jsonl").instances
    assert len(found) == 78 and all(i.image_id is None for i in found)
    assert "several sources share image ids" in caplog.text


@pytest.mark.parametrize("kind", ["yolo", "voc"])
def test_last_folder_inside_another_source_is_that_of_its_images(tmp_path, caplog, kind):
    caplog.set_level("INFO")
    place, other = tmp_path / "ds", tmp_path / "other"
    for folder in (place, other):
        images = folder / "images" if kind == "yolo" else folder
        images.mkdir(parents=True)
        picture(len(folder.name)).save(images / "a.png")
        if kind == "yolo":
            (folder / "labels").mkdir()
            (folder / "labels" / "a.txt").write_text("0 .5 .5 .2 .2")
            (folder / "classes.txt").write_text("cat")
        else:
            sides = "<xmin>3</xmin><ymin>3</ymin><xmax>30</xmax><ymax>30</ymax>"
            (folder / "a.xml").write_text(
                f"<annotation><object><name>cat</name><bndbox>{sides}</bndbox></object></annotation>"
            )
    last = place / "images" if kind == "yolo" else place
    for name, sources in {"one": [place, last], "two": [other, place, last]}.items():
        prepare(sources, tmp_path / name, ReadingRules())
        assert len(read_instances(tmp_path / name / "instances.jsonl").instances) == len(sources) - 1
    assert "several sources" not in caplog.text
    prepare([place, place, other], tmp_path / "three", ReadingRules())
    assert "1 image has a record in each of several sources, such as" in caplog.text


@pytest.mark.slow
def test_split_follows_the_content_of_images_and_keeps_copies_together(coco, caplog):
    data = ReadingRules()
    prepare([coco / "a.json", coco / "images"], coco / "one", data, split=0.3)
    sides = {
        name: {i.image.rpartition("/")[2] for i in read_instances(coco / "one" / f"{name}.jsonl").instances}
        for name in ("train", "val")
    }
    assert len(sides["train"]) + len(sides["val"]) == 39 and 4 <= len(sides["val"]) <= 20
    assert not json.loads((coco / "one" / "val.summary.json").read_text())["near_duplicates"]
    # Copies stay in one split under any name and at any size, and no other image moves.
    chosen = sorted(sides["val"])[0]
    document = json.loads((coco / "a.json").read_text())
    document["images"] += [
        {"id": 99, "file_name": "copy.png", "width": 64, "height": 48},
        {"id": 100, "file_name": "small.jpg", "width": 48, "height": 36},
    ]
    (coco / "b.json").write_text(json.dumps(document))
    (coco / "images" / "copy.png").write_bytes((coco / "images" / chosen).read_bytes())
    picture(int(chosen[:-4])).resize((48, 36)).save(coco / "images" / "small.jpg", quality=90)
    prepare([coco / "b.json", coco / "images"], coco / "two", data, split=0.3)
    found = {i.image.rpartition("/")[2] for i in read_instances(coco / "two" / "val.jsonl").instances}
    copies = {chosen, "copy.png", "small.jpg"}
    assert found - copies == sides["val"] - copies and found & copies in (copies, set())
    assert json.loads((coco / "two" / "val.summary.json").read_text())["near_duplicates"] == []


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 6])
def test_share_of_a_split_does_not_grow_with_the_number_of_copies(copies):
    """Of 2,000 groups a fifth goes to val, within four deviations, whether they are one image or six."""
    rng, groups = np.random.default_rng(copies), 2000
    group_I = np.repeat(np.arange(groups), copies)
    names = list(map(str, range(len(group_I))))
    instances = [Instance(image=name, width=8, height=8, objects=()) for name in names]
    digests = rng.integers(0, 256, (len(names), 32), np.uint8).view(">u8")
    hashes = rng.integers(0, 2**63, groups, np.uint64)[group_I]
    looks = SimpleNamespace(digests=digests, hashes=hashes, take=lambda rows: looks)
    with mock.patch("coord_data.preparing.selection.are_copies", lambda one, other, pairs: np.ones(len(pairs), bool)):
        splits, near = split_by_content(instances, names, looks, 0.2)
    train, val = ({group_I[int(instance.image)] for instance in splits[f"{name}.jsonl"]} for name in ("train", "val"))
    assert not val & train and near == [] and abs(len(val) - 400) < 4 * (2000 * 0.2 * 0.8) ** 0.5


@pytest.mark.slow
def test_count_draws_images_by_a_seed(tmp_path):
    names = [f"{number}.png" for number in range(30)]
    for number, name in enumerate(names):
        Image.new("RGB", (20, 20), (8 * number, 0, 0)).save(tmp_path / name)
    box = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
    records = [{"image": name, "objects": [box]} for name in names for _ in range(2)]  # several records an image
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    def drawn(folder, **more):
        prepare([tmp_path / "t.jsonl"], tmp_path / folder, ReadingRules(), **more)
        lines = (tmp_path / folder / "instances.jsonl").read_text().splitlines()
        return [Path(json.loads(line)["image"]).name for line in lines]

    first, again, other = drawn("a", count=7), drawn("b", count=7, seed=0), drawn("c", count=7, seed=1)
    assert first == again and len(set(first)) == 7 and len(first) == 14 and set(other) != set(first)
    assert list(dict.fromkeys(first)) == sorted(set(first), key=names.index)
    summary = json.loads((tmp_path / "a" / "instances.summary.json").read_text())
    assert summary["drawn"] == {"count": 7, "seed": 0}
    prepare([tmp_path / "t.jsonl"], tmp_path / "s", ReadingRules(), 0.5, count=9)
    parts = [(tmp_path / "s" / f"{name}.jsonl").read_text().splitlines() for name in ("train", "val")]
    assert len(parts[0] + parts[1]) == 18
    with pytest.raises(InputError, match="--count: expected 1 to 30, the number of usable images, found 31"):
        drawn("d", count=31)


@pytest.mark.parametrize("problem", [False, True])
def test_annotations_without_a_box_are_refused(place, problem):
    objects = [{"desc": "cat", "bbox": [0.5, 0.5, 0.1, 0.1]}] if problem else []
    lines = [{"image": "images/a.png", "objects": []}, {"image": "images/a.png", "objects": objects}]
    (place / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = "found none; the first problem: .*no area" if problem else "expected boxes, found none; check that these are"
    with pytest.raises(InputError, match=told):
        prepare([place / "a.jsonl"], place / "out", ReadingRules())
    (place / "a.jsonl").write_text(json.dumps({**lines[0], "query": "a unicorn"}))
    prepare([place / "a.jsonl"], place / "out", ReadingRules())


def test_each_image_left_out_is_a_copy_of_the_one_that_is_kept(tmp_path):
    grey = picture(1).convert("L").point(lambda value: 60 + value // 2)
    for step, name in enumerate("abcd"):  # each a copy of its neighbours alone
        grey.point(lambda value, step=step: value + 9 * step).save(tmp_path / f"{name}.png")
    records = [{"image": f"{name}.png", "objects": [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}]} for name in "abcd"]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    prepare([tmp_path / "a.jsonl"], tmp_path / "out", ReadingRules(), drop_duplicates="near")
    rows = json.loads((tmp_path / "out" / "instances.summary.json").read_text())["dropped_duplicates"]
    assert {row["image"]: row["kept"] for row in rows} == {"../b.png": "../a.png", "../d.png": "../c.png"}


def test_boxes_and_phrases_that_only_copies_have_are_joined(tmp_path):
    for name in "ab":
        picture(1).save(tmp_path / f"{name}.png")
    near, other = [0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9]
    records = [("a", near, {}), ("b", [0.11, 0.1, 0.5, 0.5], {}), ("b", other, {}), ("b", other, {"query": "left cat"})]
    lines = [{"image": f"{n}.png", "objects": [{"desc": "cat", "bbox": box}], **more} for n, box, more in records]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    prepare([tmp_path / "t.jsonl"], tmp_path / "out", ReadingRules(), drop_duplicates="exact", join_boxes=True)
    written = read_instances(tmp_path / "out" / "instances.jsonl").instances
    assert [(i.image, [list(o.bbox) for o in i.objects]) for i in written] == [
        ("../a.png", [near, other]),
        ("../a.png", [other]),
    ]
    assert written[1].query == "left cat"
    with pytest.raises(InputError, match=r"--join-boxes .* add --drop-duplicates"):
        prepare([tmp_path / "t.jsonl"], tmp_path / "x", ReadingRules(), join_boxes=True)


@pytest.mark.slow
def test_summary_and_lines_tell_what_was_read_and_chosen(coco, caplog):
    (coco / "images" / "5.png").write_bytes((coco / "images" / "6.png").read_bytes())  # an equal file
    rules = ReadingRules(read_as="pixels", allow_outside=True)
    sources = [coco / "a.json", coco / "images"]
    prepare(sources, coco / "out", rules, drop_duplicates="exact", count=20, seed=3)
    summary = json.loads((coco / "out" / "instances.summary.json").read_text())
    (source,) = summary["sources"]
    assert source["path"] == str(coco / "a.json") and source["digest"]
    assert (summary["images"], summary["records"], summary["problems"]) == ("../images", 20, 2)
    assert (summary["read_as"], summary["drawn"]) == ("pixels", {"count": 20, "seed": 3})
    (dropped,) = summary["dropped_duplicates"]
    assert (dropped["image"], dropped["kept"]) == ("../images/6.png", "../images/5.png") and dropped["same_boxes"]
    listed = [json.loads(line) for line in (coco / "out" / "problems.jsonl").read_text().splitlines()]
    assert len(listed) == 3 and "../images/6.png" in listed[2].values()
    told = caplog.text
    for said in ("1 duplicate image left out (--drop-duplicates), for example ../images/6.png", "--allow-outside"):
        assert said in told
    assert told.count("left out: ") == 2 and "problems in all" not in told and "had other boxes" not in told
    caplog.clear()
    prepare(sources, coco / "plain", ReadingRules())
    plain = json.loads((coco / "plain" / "instances.summary.json").read_text())
    assert not {"read_as", "drawn", "dropped_duplicates", "near_duplicates", "part"} & plain.keys()
    assert "--allow-outside" not in caplog.text and "duplicate image left out" not in caplog.text
    prepare(sources, coco / "split", ReadingRules(), 0.5)
    assert json.loads((coco / "split" / "val.summary.json").read_text())["near_duplicates"] == []


def test_boxes_of_a_copy_that_are_lost_are_told_with_what_keeps_them(tmp_path, caplog):
    caplog.set_level("INFO")
    lines = []
    for name, box in (("a", [0.1, 0.1, 0.5, 0.5]), ("b", [0.6, 0.6, 0.9, 0.9])):
        picture(1).save(tmp_path / f"{name}.png")
        lines.append(json.dumps({"image": f"{name}.png", "objects": [{"desc": "cat", "bbox": box}]}))
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    for join, said in ((False, "lost; --join-boxes keeps them"), (True, "which are joined")):
        caplog.clear()
        prepare([tmp_path / "t.jsonl"], tmp_path / f"{join}", ReadingRules(), drop_duplicates="exact", join_boxes=join)
        assert f"1 of them had other boxes, which are {said.removeprefix('which are ')}" in caplog.text


def test_more_than_five_problems_are_told_by_the_first_and_their_number(coco, caplog):
    document = json.loads((coco / "a.json").read_text())
    for row in document["annotations"][:6]:
        row["bbox"] = [4, 4, 0, 32]
    (coco / "a.json").write_text(json.dumps(document))
    prepare([coco / "a.json", coco / "images"], coco / "out", ReadingRules())
    assert caplog.text.count("left out: ") == 5
    assert f"6 problems in all, see {coco / 'out' / 'problems.jsonl'}" in caplog.text


@pytest.mark.parametrize(
    "chosen", [{"split": 0.5}, {"drop_duplicates": "exact"}, {"count": 3}, {"split": 0.5, "out": "a.jsonl"}]
)
def test_what_a_part_cannot_choose_and_a_file_cannot_hold_is_refused(coco, chosen):
    out = coco / chosen.pop("out", "out")
    told = "writes two files" if out.suffix else f"--{next(iter(chosen)).replace('_', '-')}: a part does not know"
    with pytest.raises(InputError, match=told):
        prepare([coco / "a.json", coco / "images"], out, ReadingRules(), as_part=not out.suffix, **chosen)
    with pytest.raises(InputError, match="--as-part writes a folder"):
        prepare([coco / "a.json", coco / "images"], coco / "b.jsonl", ReadingRules(), as_part=True)
    assert not out.exists() and not (coco / "b.jsonl").exists()


@pytest.mark.parametrize("count", [1, 3])
def test_objects_that_are_all_crowds_are_told_as_such(place, count):
    crowd = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5], "iscrowd": 1}
    (place / "a.jsonl").write_text(json.dumps({"image": "images/a.png", "objects": [crowd] * count}))
    told = "the only object is a crowd region" if count == 1 else "all 3 objects are crowds"
    with pytest.raises(InputError, match=f"1 image of .*expected boxes, found none; {told}"):
        prepare([place / "a.jsonl"], place / "out", ReadingRules())


@pytest.mark.parametrize("category_id", [1, 0])
def test_findings_of_the_numbers_are_told_at_any_size(tmp_path, monkeypatch, category_id):
    """Two categories of one name, confidences, and class numbers that are one too low."""
    ids = range(12)
    for i in ids:
        Image.new("RGB", (64, 48)).save(tmp_path / f"{i}.jpg")
    document = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 64, "height": 48} for i in ids],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}, {"id": 3, "name": "dog"}],
        "annotations": [
            {"id": i, "image_id": i, "category_id": category_id + i % 3, "bbox": [8, 8, 16, 16], "score": 0.5}
            for i in ids
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    told = []
    for limit in (5000, 5):
        monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", limit)
        prepare([tmp_path / "a.json"], tmp_path / str(limit), ReadingRules())
        (summary,) = (tmp_path / str(limit)).glob("*.summary.json")
        lines = json.loads(summary.read_text())["told"]
        told.append([line for line in lines if line.startswith(("error: ", "warning: "))])
    assert told[0] == told[1]
    codes = [line.split(": ")[1] for line in told[0]]
    assert codes == [*["class_numbers"] * (category_id == 0), "same_names", "predictions"]
