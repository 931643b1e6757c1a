"""Every planted fault is named, alone and in pairs; clean sets are quiet; where nothing stands out, nothing is said."""

import itertools
import json
import os
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from yolo_files import write_yolo

from coord_codec import InputError
from coord_trainer.inspection.examine import examine
from coord_trainer.inspection.numbers.class_numbers import ClassNumbers, of_coco, shifted_classes
from coord_trainer.inspection.numbers.edges import inflate
from coord_trainer.inspection.numbers.raw import DataSource

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "doctor.py"))
COCO, JSONL, shapes = BENCHMARK["COCO"], BENCHMARK["JSONL"], BENCHMARK["shapes"]
PHOTOGRAPHS = Path(os.environ.get("COORDEXP_SHARED", Path(__file__).parents[5] / "shared")) / "data/coco_permissive33"


@pytest.fixture(scope="module")
def clean():
    return shapes(40)


def told(source, **more):
    """The codes of all findings but notes, and everything that was found."""
    found = examine(source, **{"max_objects": 30} | more)
    return {f.code for f in found.findings if f.severity != "note"}, found


@pytest.mark.parametrize("coco", [True, False])
def test_clean_set_is_quiet(clean, tmp_path, coco):
    codes, found = told(replace(clean, coco=coco).write(tmp_path))
    assert codes == set() and not found.spoils


@pytest.mark.parametrize(
    ("coco", "name"),
    [*((True, name) for name in COCO if "too_" not in name), *((False, name) for name in JSONL)],
    ids=str,
)
def test_fault_of_all_boxes_is_named_alone(clean, tmp_path, coco, name):
    if name == "resized, 512":
        name = "resized"  # images of one size
    planted = (COCO if coco else JSONL)[name](replace(clean, coco=coco))
    codes, found = told(planted.write(tmp_path))
    assert codes == {name.partition(",")[0]}
    finding = found.findings[0]
    assert finding.severity == "error" and finding.count == len(found.raw) and finding.fix and "z " in finding.evidence


@pytest.mark.parametrize("factor", [0.8, 0.9, 1.0, 1.04, 1.1, 1.2, 1.3])
def test_size_of_the_boxes_is_told_within_some_per_cent(clean, tmp_path, factor):
    planted = replace(clean, coco=True).moved(lambda b: inflate(b, factor))
    _, found = told(planted.write(tmp_path))
    of_boxes = [f for f in found.findings if f.code != "rare_classes"]
    if abs(factor - 1) < 0.05:
        assert of_boxes == []
        return
    (finding,) = of_boxes
    assert finding.code == ("too_large" if factor > 1 else "too_small")
    # A small margin is a habit of annotators; boxes that are too small are cut off.
    assert finding.severity == ("error" if factor < 1 else "warning" if factor >= 1.2 else "note")
    share = float(re.search(r"about (\d+)%", finding.message)[1]) / 100
    assert share == pytest.approx(abs(factor - 1), abs=0.05)


def _pairs():
    """Faults of the order, of the unit, and of the image that can hold together."""
    orders, units = ("xywh", "cxcywh", "yxyx"), ("pixels", "norm1000")
    places = ("shifted, 3 %", "too_large, 20 %", "too_small, 20 %")
    yield from ((False, *pair) for pair in itertools.product(orders, units))
    yield from ((True, *pair) for pair in itertools.product(("xyxy", "cxcywh", "swapped_axes"), ("unit", "norm1000")))
    yield from ((True, order, "resized") for order in ("xyxy", "cxcywh", "swapped_axes"))
    yield from ((True, "too_small, 20 %", other) for other in ("unit", "cxcywh", "mirrored"))
    yield from ((True, "too_large, 20 %", other) for other in ("unit", "norm1000", "xyxy", "swapped_axes"))
    yield from ((True, place, "resized, .8") for place in ("shifted, 3 %", "mirrored"))
    every = ("xyxy", "cxcywh", "swapped_axes", "unit", "norm1000", "resized, .8", *places, "mirrored")
    yield from ((True, other, "shuffled") for other in every)


@pytest.mark.parametrize(("coco", "first", "second"), list(_pairs()), ids=str)
def test_two_faults_of_all_boxes_are_both_named(clean, tmp_path, coco, first, second):
    faults = COCO if coco else JSONL
    codes, found = told(faults[second](faults[first](replace(clean, coco=coco))).write(tmp_path))
    assert codes == {name.partition(",")[0] for name in (first, second)}
    assert {f.count for f in found.findings if f.code in codes} == {len(found.raw)}


def _edit(source, change):
    """Change the records of an instance file in place."""
    records = [json.loads(line) for line in source.annotations.read_text().splitlines()]
    change(records)
    source.annotations.write_text("".join(json.dumps(record) + "\n" for record in records))


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


@pytest.mark.parametrize("names", [*((n,) for n in RECORDS), ("duplicates", "class_names"), ("duplicates", "yxyx")])
def test_fault_of_records_is_named(clean, tmp_path, names):
    draft = JSONL["yxyx"](clean) if "yxyx" in names else clean
    source = draft.write(tmp_path)
    for name in set(names) & set(RECORDS):
        _edit(source, RECORDS[name])
    codes, _ = told(source, max_objects=1 if names == ("too_many_objects",) else 30)
    assert codes == set(names)


def test_xywh_refusals_are_one_finding(clean, tmp_path):
    _, found = told(JSONL["xywh"](clean).write(tmp_path))
    assert len(found.annotations.problems) > 20
    assert [f.code for f in found.findings if f.severity != "note"] == ["xywh"]


def test_refused_records_without_a_common_cause_are_counted(clean, tmp_path):
    source = clean.write(tmp_path)
    _edit(source, lambda records: [r["objects"][0].update(bbox=[0.5, 0.5, 0.5, 0.6]) for r in records[:3]])
    codes, found = told(source)
    assert codes == {"refused"} and found.findings[0].count == 3


def test_broken_file_is_named(clean, tmp_path):
    source = clean.write(tmp_path)
    path = tmp_path / next(iter(clean.images))
    path.write_bytes(path.read_bytes()[:2000])
    codes, found = told(source)
    assert codes == {"unreadable_image"} and found.findings[0].severity == "warning"


def test_annotation_file_that_cannot_be_read_is_no_unreadable_image(tmp_path):
    """It names no image: it was counted as one, under an empty name."""
    from coco_twins import write_voc

    (tmp_path / "images").mkdir()
    for stem in ("a", "b", "c"):
        Image.new("RGB", (200, 100)).save(tmp_path / "images" / f"{stem}.jpg")
    write_voc(tmp_path)
    (tmp_path / "Annotations" / "a.xml").write_text("<annotation><filename>a.jpg</filename><obj")
    found = examine(DataSource(tmp_path), 30)
    assert "unreadable_image" not in {finding.code for finding in found.findings}
    (refused,) = [finding for finding in found.findings if finding.code == "refused"]
    assert refused.count == 1 and "a.xml: expected Pascal VOC XML" in refused.evidence
    assert found.raw.files == ("b.jpg", "c.jpg")


def test_held_out_image_of_the_training_set_is_leakage(clean, tmp_path):
    train = clean.subset(range(20)).write(tmp_path / "train")
    other = clean.subset(range(18, 30))
    again = {name: image.resize((120, 120)) for name, image in other.images.items()}
    codes, found = told(train, heldout=replace(other, images=again).write(tmp_path / "val"))
    assert codes == {"leakage"} and found.findings[0].count == 2
    codes, _ = told(train, heldout=clean.subset(range(20, 30)).write(tmp_path / "apart"))
    assert codes == set()


@pytest.mark.parametrize("boxes_are", ["stored", "upright"])
def test_exif_orientation_is_told_from_what_the_boxes_fit(clean, tmp_path, boxes_are):
    source = clean.write(tmp_path)
    _edit(source, lambda records: [r.update(image=r["image"].replace(".png", ".jpg")) for r in records])
    for i, (name, image) in enumerate(clean.images.items()):
        exif = Image.Exif()
        if i < 20:
            exif[0x0112] = 6
            # A viewer turns by 270 degrees what is stored turned by 90.
        stored = image.transpose(Image.Transpose.ROTATE_90) if i < 20 and boxes_are == "upright" else image
        stored.save(tmp_path / name.replace(".png", ".jpg"), exif=exif, quality=95)
    _, found = told(source)
    (finding,) = [f for f in found.findings if f.code == "exif"]
    assert finding.severity == ("error" if boxes_are == "stored" else "note") and finding.count == 20
    assert [f.code for f in found.findings if f.severity == "error"] == ["exif"] * (boxes_are == "stored")


@pytest.mark.parametrize("fault", [None, "mirrored", "swapped_axes", "cxcywh"])
def test_boxes_are_compared_with_pixels_where_all_images_are_turned(clean, tmp_path, fault):
    planted = COCO[fault](replace(clean, coco=True)) if fault else replace(clean, coco=True)
    source = planted.write(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    source.annotations.write_text(source.annotations.read_text().replace(".png", ".jpg"))
    for name, image in clean.images.items():
        stored = image.transpose(Image.Transpose.ROTATE_90)
        stored.save(tmp_path / name.replace(".png", ".jpg"), exif=exif, quality=95)
    codes, found = told(source)
    assert codes == ({fault} if fault else set())
    assert {f.code for f in found.findings if f.severity == "note"} == {"exif"}


@pytest.mark.filterwarnings("error")
def test_number_near_the_end_of_its_range_is_refused_in_silence(clean, tmp_path):
    source = replace(clean, coco=True).write(tmp_path)
    document = json.loads(source.annotations.read_text())
    document["annotations"][0]["bbox"] = [1e308] * 4
    source.annotations.write_text(json.dumps(document))
    assert told(source)[0] == {"refused"}


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
        _edit(source, next_sizes)
    assert told(source)[0] == {"size_mismatch"}


def test_doctor_abstains_where_boxes_show_nothing(clean, tmp_path):
    rng = np.random.default_rng(0)
    noise = {name: Image.fromarray(rng.integers(0, 255, (96, 96, 3), np.uint8)) for name in clean.images}
    for name, plant in (("clean", lambda d: d), ("mirrored", COCO["mirrored"]), ("shuffled", COCO["shuffled"])):
        codes, found = told(plant(replace(clean, images=noise, coco=True)).write(tmp_path / name))
        assert codes == set()
        assert "no_evidence" in {f.code for f in found.findings}


@pytest.mark.parametrize("unit", [1.0, 40_000.0])
def test_numbers_that_fit_no_reading_are_an_error(clean, tmp_path, unit):
    """Boxes anywhere: fractions, some of them beyond 1, of images of 96 pixels; numbers far outside of these."""
    rng = np.random.default_rng(0)
    corners = tuple(np.sort(rng.uniform(0, 1.5, (len(c), 2, 2)), axis=1).reshape(-1, 4) for c in clean.corners)
    planted = replace(clean, coco=True, corners=corners, unit=lambda size: np.full_like(size, unit))
    codes, found = told(planted.write(tmp_path))
    assert "unknown_numbers" in codes <= {"unknown_numbers", "refused"} and found.spoils


def test_shuffled_pixels_are_named_where_sizes_differ(clean, tmp_path):
    """A box keeps its pixels in an image of another size, and may leave it."""
    sizes = [(96, 96), (160, 96), (96, 160)]
    images = {name: image.resize(sizes[k % 3]) for k, (name, image) in enumerate(clean.images.items())}
    planted = COCO["shuffled"](replace(clean, images=images, coco=True))
    ends = [(b[:, :2] + b[:, 2:]) / i.size for b, i in zip(planted.numbers(), images.values(), strict=True)]
    assert np.concatenate(ends).max() > 1.3
    codes, _ = told(planted.write(tmp_path))
    assert "shuffled" in codes <= {"shuffled", "refused"}


@pytest.mark.parametrize("allowed", [False, True])
def test_images_that_training_refuses_as_outside_are_named(clean, tmp_path, allowed):
    source = clean.write(tmp_path / "images")
    (tmp_path / "elsewhere").mkdir()
    lines = source.annotations.read_text().replace('"image": "', '"image": "../images/')
    (tmp_path / "elsewhere/a.jsonl").write_text(lines)
    codes, found = told(DataSource(tmp_path / "elsewhere/a.jsonl", allow_outside=allowed))
    assert codes == (set() if allowed else {"unreadable_image"})
    assert allowed or "data.allow_outside" in found.findings[0].evidence


def test_sizes_of_other_images_mean_shuffled_names(clean, tmp_path):
    grown = {n: i.resize((96 + 2 * k, 120)) for k, (n, i) in enumerate(clean.images.items())}
    source = replace(clean, images=grown).write(tmp_path)
    names = [f"{n}" for n in grown]
    _edit(source, lambda records: [r.update(image=names[k - 1]) for k, r in enumerate(records)])
    codes, _ = told(source)
    assert codes == {"shuffled"}


@pytest.mark.parametrize(("query", "severity"), [("", "error"), ("a unicorn", "note")])
def test_set_without_boxes_teaches_nothing_unless_it_asks_for_what_is_not_there(tmp_path, query, severity):
    (tmp_path / "a.jsonl").write_text(json.dumps({"image": "a.jpg", "objects": [], "query": query}) + "\n")
    Image.new("RGB", (32, 32)).save(tmp_path / "a.jpg")
    _, found = told(DataSource(tmp_path / "a.jsonl"))
    assert [(f.code, f.severity) for f in found.findings] == [("no_boxes", severity)]


@pytest.mark.parametrize("text", ["", "[]", '{"images": [], "annotations": [], "categories": []}'])
def test_set_without_records_is_a_wrong_file(tmp_path, text):
    name = "a.json" if text else "a.jsonl"
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"found (none|an empty file)"):
        examine(DataSource(tmp_path / name), max_objects=30)


def test_refused_records_are_compared_with_records_and_counted_once(clean, tmp_path):
    """A tenth of the images, which is far less than a tenth of all boxes and faults."""
    source = clean.write(tmp_path)
    _edit(source, lambda records: [r.update(width="96", height="96") for r in records[: len(records) // 10]])
    codes, found = told(source)
    assert codes == {"refused"} and found.findings[0].severity == "error"
    assert found.findings[0].count == len(clean.images) // 10


def test_raw_numbers_are_all_read_where_a_description_holds_a_line_separator(clean, tmp_path):
    source = clean.write(tmp_path)

    def separate(records):
        for record in records:
            record["objects"][0]["desc"] = "two\u2028lines"
        records[0]["objects"][0]["bbox"] = [0, 0, 7, 7]  # one refusal, and the file is read as it stands

    records = [json.loads(line) for line in source.annotations.read_text().splitlines()]
    separate(records)
    source.annotations.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")
    assert len(examine(source, max_objects=30).raw) == sum(map(len, clean.corners))


def test_list_of_files_that_lost_a_row_means_shuffled_names(clean, tmp_path):
    plain = {name: Image.new("RGB", (96 + 2 * k, 120), (k, 0, 0)) for k, name in enumerate(clean.images)}
    source = replace(clean, images=plain).write(tmp_path)
    names = list(plain)

    def lose_a_row(records):
        for record, name in zip(records, names[1:], strict=False):
            record["image"] = name
        records.pop()

    _edit(source, lose_a_row)
    (shuffled,) = [f for f in told(source)[1].findings if f.code == "shuffled"]
    assert "of other images" in shuffled.evidence


@pytest.mark.parametrize("fault", [None, "yxyx", "resized"])
def test_other_formats_are_examined_as_they_are_read(clean, tmp_path, fault):
    """Pascal VOC, corners in whole pixels from 1."""
    draft = replace(clean, unit=lambda size: size * (0.5 if fault == "resized" else 1), layout=None)
    draft = JSONL["yxyx"](draft) if fault == "yxyx" else draft
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "JPEGImages").mkdir()
    draft.write_images(tmp_path / "JPEGImages")
    sides = "xmin", "ymin", "xmax", "ymax"
    for (name, image), boxes, labels in zip(draft.images.items(), draft.numbers(), draft.labels, strict=True):
        rows = np.rint(boxes).astype(int) + np.array([1, 1, 0, 0])
        written = ["".join(f"<{s}>{v}</{s}>" for s, v in zip(sides, row, strict=True)) for row in rows]
        objects = [
            f"<object><name>{d}</name><bndbox>{b}</bndbox></object>" for d, b in zip(labels, written, strict=True)
        ]
        size = f"<size><width>{image.width}</width><height>{image.height}</height></size>"
        text = f"<annotation><filename>{name}</filename>{size}{''.join(objects)}</annotation>"
        (tmp_path / "Annotations" / f"{name[:-4]}.xml").write_text(text)
    codes, found = told(DataSource(tmp_path))
    assert len(found.raw.files) == len(clean.images) and codes == ({fault} if fault else set())


@pytest.mark.parametrize("fault", [None, "xywh", "xyxy", "swapped_axes", "pixels"])
def test_yolo_labels_are_examined_as_they_are_written(clean, tmp_path, fault):
    centred = BENCHMARK["_centred"]
    draft = {
        None: lambda d: replace(d, layout=centred),
        "xywh": JSONL["xywh"],
        "xyxy": lambda d: d,
        "swapped_axes": lambda d: replace(d, layout=lambda b: centred(b)[:, [1, 0, 3, 2]]),
        "pixels": lambda d: replace(d, layout=centred, unit=lambda size: size),
    }[fault](clean)
    write_yolo(draft, tmp_path)
    codes, found = told(DataSource(tmp_path))
    assert codes == ({fault} if fault else set())
    if fault == "pixels":  # every line is refused, and says so; the doctor says what they are
        assert [f.count for f in found.findings if f.code == "pixels"] == [len(found.raw)] and len(found.raw) > 40


@pytest.mark.filterwarnings("error")
def test_yolo_lines_with_numbers_that_are_none_say_nothing_of_the_others(clean, tmp_path):
    write_yolo(replace(clean, layout=BENCHMARK["_centred"]), tmp_path)
    for label, line in zip(
        sorted((tmp_path / "labels").iterdir()), ("nan .5 .5 .2 .2", "0 inf .5 .2 nan"), strict=False
    ):
        label.write_text(f"{label.read_text()}\n{line}\n")
    codes, found = told(DataSource(tmp_path))
    assert codes == {"refused"} and found.findings[0].count == 2 and np.isfinite(found.raw.numbers_N4).all()


@pytest.mark.parametrize("names", [["a thing"], ["a thing", "box"], ["a thing", "box", "circle"]])
def test_yolo_classes_counted_from_1_are_named(clean, tmp_path, names):
    turned = iter(range(1000))
    labels = [[names[next(turned) % len(names)] for _ in row] for row in clean.labels]
    draft = replace(clean, labels=labels, layout=BENCHMARK["_centred"])
    write_yolo(draft, tmp_path, first=1)
    codes, found = told(DataSource(tmp_path))
    assert "class_numbers" in codes
    (finding,) = [f for f in found.findings if f.code == "class_numbers"]
    assert finding.count == sum(map(len, labels)) and f"have class {len(names)}, names go from 0" in finding.evidence
    assert "subtract 1 from the class" in finding.fix
    line = finding.fix.partition("`")[2].rstrip("`")
    (tmp_path / "data.yaml").write_text(line)  # the line that it says
    assert told(DataSource(tmp_path))[0] == set()


@pytest.mark.parametrize(
    ("used", "ids", "way"),
    [
        ({1: 3, 2: 4, 3: 1}, (0, 1, 2), "high"),
        ({0: 3, 1: 4, 2: 1}, (1, 2, 3), "low"),
        ({0: 3, 1: 4, 3: 1}, (0, 1, 2), None),  # the first one occurs: that one number is wrong
        ({1: 3, 2: 4}, (0, 1, 2), None),  # the first one may just be rare
        ({1: 3, 2: 4, 7: 1}, (0, 1, 2), None),  # not the next
        ({1: 3, 2: 4, 3: 1, 7: 1}, (0, 1, 2), None),  # not all of them by one
        ({0: 3, 1: 4, 2: 1, -1: 1}, (0, 1, 2), None),
        ({2: 3, 4: 4, 10: 1}, (1, 2, 5, 9), None),  # 4 has no name, and neither has the one before it
        ({2: 3, 3: 4, 6: 4, 10: 1}, (1, 2, 5, 9), "high"),  # names leave numbers out, as COCO's do
        ({0: 3, 4: 4, 8: 1}, (1, 2, 5, 9), "low"),
        ({0: 3, 4: 4, 9: 1}, (1, 2, 5, 9), None),  # the last one occurs
        ({}, (0, 1, 2), None),
    ],
)
def test_coco_categories_of_other_numbers_are_named_where_all_are_shifted(used, ids, way):
    document = {
        "categories": [{"id": n, "name": f"c{n}"} for n in ids],
        "annotations": [{"category_id": n} for n, count in used.items() for _ in range(count)],
    }
    found = shifted_classes(of_coco(document))
    assert [f"one too {way}" in f.message for f in found] == [True] * (way is not None)
    assert all("the category_id of each annotation" in f.fix for f in found)


def test_line_for_names_is_short_for_many_classes_and_has_no_number_below_0():
    many = {number: f'the "{number}"' for number in range(80)}
    (finding,) = shifted_classes(ClassNumbers({1: 5, 80: 2}, many))
    assert finding.fix.endswith(r'`names: {1: "the \"0\"", 2: "the \"1\"", ..., 80: "the \"79\""}`')
    (finding,) = shifted_classes(ClassNumbers({-1: 5, 0: 2}, many))
    assert finding.fix == "add 1 to the class of each object"


@pytest.mark.parametrize("lvis", [False, True])
def test_coco_file_with_shifted_categories_is_examined(clean, tmp_path, lvis):
    source = replace(clean, coco=True).write(tmp_path)

    document = json.loads(source.annotations.read_text())
    for row in document["images"] if lvis else ():
        row["coco_url"] = f"http://nowhere/{source.images.name}/{row.pop('file_name')}"
    last = max(row["id"] for row in document["categories"])
    document["annotations"] = [
        row | {"category_id": row["category_id"] - 1} for row in document["annotations"] if row["category_id"] <= last
    ]
    source.annotations.write_text(json.dumps(document))
    assert "class_numbers" in told(source)[0]


@pytest.mark.shared
@pytest.mark.skipif(not PHOTOGRAPHS.is_dir(), reason=f"the real photographs are not at {PHOTOGRAPHS}")
@pytest.mark.parametrize("name", ["clean", "swapped_axes", "resized, .8", "shuffled"])
def test_faults_in_real_photographs(name, tmp_path):
    draft = replace(BENCHMARK["read"](PHOTOGRAPHS / "instances.json", PHOTOGRAPHS / "images"), coco=True)
    codes, _ = told(COCO[name](draft).write(tmp_path) if name != "clean" else draft.write(tmp_path))
    assert codes - {"size_mismatch"} == {name.partition(",")[0]} - {"clean"}
