"""Faults of single records are named: sizes, names, duplicates, files, refusals, numbers of objects."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from planted import JSONL, DataSource, edit_records, examine, shapes, told

import coord_data
from coord_codec.coco.reader import AREA_TOO_LARGE, NOT_AROUND
from coord_data import load_annotated
from coord_data.inspection.records import deep_images
from coord_data.looking.image_file import ImageFolder


def _double(records):
    for record in records:
        record["objects"] *= 2


def _wrong_sizes(records):
    for record in records:
        record["width"] *= 2


def _names(records):
    for record in records[::2]:
        for item in record["objects"]:
            item["desc"] = item["desc"].title() + " "


RECORDS = {
    "duplicates": _double,
    "size_mismatch": _wrong_sizes,
    "class_names": _names,
    "unreadable_image": lambda records: [r.update(image="gone.png") for r in records[:4]],
    "too_many_objects": lambda records: None,
    "duplicate_images": lambda records: records.extend(records[:3]),
}


@pytest.mark.slow
@pytest.mark.drawn(4)
@pytest.mark.parametrize("names", [*((n,) for n in RECORDS), ("duplicates", "class_names"), ("duplicates", "yxyx")])
def test_fault_of_records_is_named(clean, tmp_path, names):
    draft = JSONL["yxyx"](clean) if "yxyx" in names else clean
    source = draft.write(tmp_path)
    for name in set(names) & set(RECORDS):
        edit_records(source, RECORDS[name])
    codes, _ = told(source, max_objects=1 if names == ("too_many_objects",) else 30)
    assert codes == set(names)


@pytest.mark.slow
def test_xywh_refusals_are_one_finding(clean, tmp_path):
    _, found = told(JSONL["xywh"](clean).write(tmp_path))
    assert len(found.annotations.problems) > 20
    assert [f.code for f in found.findings if f.severity != "note"] == ["xywh"]


@pytest.mark.slow
def test_refused_records_without_a_common_cause_are_counted(clean, tmp_path):
    source = clean.write(tmp_path)
    edit_records(source, lambda records: [r["objects"][0].update(bbox=[0.5, 0.5, 0.5, 0.6]) for r in records[:3]])
    codes, found = told(source)
    assert codes == {"refused"} and found.findings[0].count == 3


@pytest.mark.slow
def test_broken_file_is_named(clean, tmp_path):
    source = clean.write(tmp_path)
    path = tmp_path / next(iter(clean.images))
    path.write_bytes(path.read_bytes()[:2000])
    codes, found = told(source)
    assert codes == {"unreadable_image"} and found.findings[0].severity == "warning"


@pytest.mark.slow
def test_held_out_image_of_the_training_set_is_leakage(clean, tmp_path):
    train = clean.subset(range(20)).write(tmp_path / "train")
    other = clean.subset(range(18, 30))
    again = {name: image.resize((120, 120)) for name, image in other.images.items()}
    codes, found = told(train, heldout=replace(other, images=again).write(tmp_path / "val"))
    assert codes == {"leakage"} and found.findings[0].count == 2
    codes, _ = told(train, heldout=clean.subset(range(20, 30)).write(tmp_path / "apart"))
    assert codes == set()


@pytest.mark.slow
@pytest.mark.parametrize("coco", [True, False])
def test_sizes_of_other_images_beside_boxes_that_fit_are_wrong_sizes(clean, tmp_path, coco):
    sizes = [(96, 96), (144, 96), (96, 144), (120, 96)]
    grown = {name: image.resize(sizes[k % 4]) for k, (name, image) in enumerate(clean.images.items())}
    source = replace(clean, images=grown, coco=coco).write(tmp_path)

    def next_sizes(records):
        stated = [(r["width"], r["height"]) for r in records]
        for record, (width, height) in zip(records, [*stated[1:], stated[0]], strict=True):
            record.update(width=width, height=height)

    if coco:
        document = json.loads(source.annotations.read_text())
        next_sizes(document["images"])
        source.annotations.write_text(json.dumps(document))
    else:
        edit_records(source, next_sizes)
    assert told(source)[0] == {"size_mismatch"}


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [False, True])
def test_images_that_training_refuses_as_outside_are_named(clean, tmp_path, allowed):
    source = clean.write(tmp_path / "images")
    (tmp_path / "elsewhere").mkdir()
    lines = source.annotations.read_text().replace('"image": "', '"image": "../images/')
    (tmp_path / "elsewhere/a.jsonl").write_text(lines)
    codes, found = told(DataSource(tmp_path / "elsewhere/a.jsonl", allow_outside=allowed))
    assert codes == (set() if allowed else {"unreadable_image"})
    assert allowed or "--allow-outside" in found.findings[0].evidence


def test_sizes_of_other_images_mean_shuffled_names(clean, tmp_path):
    few = clean.subset(range(4))
    grown = {n: i.resize((96 + 2 * k, 120)) for k, (n, i) in enumerate(few.images.items())}
    source = replace(few, images=grown).write(tmp_path)
    names = [f"{n}" for n in grown]
    edit_records(source, lambda records: [r.update(image=names[k - 1]) for k, r in enumerate(records)])
    codes, _ = told(source)
    assert codes == {"shuffled"}


@pytest.mark.parametrize(("query", "severity"), [("", "error"), ("a unicorn", "note")])
def test_set_without_boxes_teaches_nothing_unless_it_asks_for_what_is_not_there(tmp_path, query, severity):
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": "a.jpg", "objects": [], "query": query}) + "\n")
    Image.new("RGB", (32, 32)).save(tmp_path / "a.jpg")
    _, found = told(DataSource(tmp_path / "a.jsonl"))
    assert [(f.code, f.severity) for f in found.findings] == [("no_boxes", severity)]


@pytest.mark.slow
def test_refused_records_are_compared_with_records_and_counted_once(clean, tmp_path):
    """A tenth of the images, which is far less than a tenth of all boxes and faults."""
    source = clean.write(tmp_path)
    edit_records(source, lambda records: [r.update(width="96", height="96") for r in records[: len(records) // 10]])
    codes, found = told(source)
    assert codes == {"refused"} and found.findings[0].severity == "error"
    assert found.findings[0].count == len(clean.images) // 10


@pytest.mark.slow
def test_raw_numbers_are_all_read_where_a_description_holds_a_line_separator(clean, tmp_path):
    source = clean.write(tmp_path)

    def separate(records):
        for record in records:
            record["objects"][0]["desc"] = "two\u2028lines"
        records[0]["objects"][0]["bbox"] = [0, 0, 7, 7]  # one refusal, and the file is read as it stands

    edit_records(source, separate)
    assert len(examine(source, max_objects=30).raw) == sum(map(len, clean.corners))


@pytest.mark.slow
def test_list_of_files_that_lost_a_row_means_shuffled_names(clean, tmp_path):
    few = clean.subset(range(12))  # of which a tenth may differ
    plain = {name: Image.new("RGB", (96 + 2 * k, 120), (k, 0, 0)) for k, name in enumerate(few.images)}
    source = replace(few, images=plain).write(tmp_path)
    names = list(plain)

    def lose_a_row(records):
        for record, name in zip(records, names[1:], strict=False):
            record["image"] = name
        records.pop()

    edit_records(source, lose_a_row)
    (shuffled,) = [f for f in told(source)[1].findings if f.code == "shuffled"]
    assert "of other images" in shuffled.evidence


@pytest.mark.parametrize("size", ["small", "large"])
def test_box_that_contradicts_the_outline_or_area_beside_it_is_a_finding(tmp_path, monkeypatch, size):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("coord_data.looking.image_file.FULL_CHECK_LIMIT", 1 if size == "large" else 5000)
    outline = [[10, 10, 50, 10, 50, 40, 10, 40]]
    box, half = [10, 10, 40, 30], [5, 5, 20, 15]
    facts = [
        (box, outline, 1200),
        (half, outline, 300),
        (box, {"counts": [], "size": [48, 64]}, 2000),
        (box, None, 900),
    ]
    rows = [
        {"id": n, "image_id": 1, "category_id": 1, "bbox": b, "segmentation": outlines, "area": area}
        for n, (b, outlines, area) in enumerate(facts)
    ]
    image = {"id": 1, "file_name": "a.png", "width": 64, "height": 48}
    document = {"images": [image], "categories": [{"id": 1, "name": "cat"}], "annotations": rows}
    (tmp_path / "a.json").write_text(json.dumps(document))
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    counted = dict(load_annotated(tmp_path / "a.json").annotations.notes)
    assert counted == {NOT_AROUND: 1, AREA_TOO_LARGE: 1}
    findings = {f.code: f.count for f in examine(DataSource(tmp_path / "a.json")).findings}
    assert findings["box_and_outline"] == findings["box_and_area"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("high", "is_told"), [(4095, True), (65535, False)], ids=["12 bits", "16 bits"])
def test_deep_images_that_nearly_become_uniform_are_named_with_their_range(tmp_path, high, is_told):
    for n in range(6):
        pixels = np.random.default_rng(n).integers(0, high + 1, (40, 50)).astype(np.uint16)
        pixels[0, :2] = 0, high
        Image.fromarray(pixels).save(tmp_path / f"{n}.png")
    Image.new("RGB", (50, 40), "black").save(tmp_path / "6.png")
    objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.7]}]
    lines = (json.dumps({"image": f"{n}.png", "objects": objects}) + "\n" for n in range(7))
    (tmp_path / "a.jsonl").write_text("".join(lines))
    found = {f.code: f for f in coord_data.examine(tmp_path / "a.jsonl")}
    assert ("deep_images" in found) == is_told
    if is_told:
        told_of = found["deep_images"]
        assert (told_of.severity, told_of.count) == ("error", 6) and f"{high}" in told_of.evidence + told_of.fix
        assert "12 bits" in told_of.evidence


@pytest.mark.parametrize(("high", "is_told"), [(31 * 257, True), (32 * 257, False)])
def test_image_that_spans_32_grey_levels_is_no_longer_nearly_uniform(tmp_path, high, is_told):
    pixels = np.zeros((40, 50), np.uint16)
    pixels[:, 25:] = high
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert bool(deep_images(ImageFolder(tmp_path).look_at_all(["a.png"]))) == is_told


@pytest.mark.slow
def test_boxes_are_not_judged_by_deep_images_that_nearly_become_uniform(tmp_path):
    source = replace(shapes(36), coco=True).write(tmp_path)
    for path in tmp_path.glob("*.png"):
        pixels_HW = np.asarray(Image.open(path).convert("L")).astype(np.uint16)
        Image.fromarray(113 * 256 + pixels_HW).save(path)
    assert told(source)[0] == {"deep_images"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folders", "is_told"),
    [("train valid test", True), ("data/train data/valid data/test", True), ("train training", False), ("a b", False)],
)
def test_splits_that_are_read_together_are_named(tmp_path, folders, is_told):
    lines = []
    for folder in folders.split():
        (tmp_path / folder / "images").mkdir(parents=True)
        pixels = np.random.default_rng(len(lines)).integers(0, 255, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / folder / "images" / "0.png")
        objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.7]}]
        lines.append(json.dumps({"image": f"{folder}/images/0.png", "objects": objects}) + "\n")
    (tmp_path / "a.jsonl").write_text("".join(lines))
    found = {f.code: f for f in coord_data.examine(tmp_path / "a.jsonl")}
    assert ("splits_together" in found) == is_told
    assert not is_told or (found["splits_together"].severity, found["splits_together"].count) == ("warning", 3)
