"""Every format against COCO JSON with the same boxes: the same images, descriptions and boxes, to the last bit."""

import csv
import json
import math
from pathlib import Path

import pytest
from PIL import Image

from coord_codec import InputError, read_annotations, write_instances
from coord_trainer.data.formats.registry import FORMATS, read_source

SIZES = {"a": (200, 100), "b": (64, 48), "c": (50, 50)}
BOXES = {"a": [("red cat", 20, 10, 120, 60), ("dog", 0, 0, 200, 100)], "b": [("dog", 63, 47, 64, 48)], "c": []}
NAMES = ["red cat", "dog"]


@pytest.fixture
def place(tmp_path):
    """A folder with images of those sizes in `images`."""
    (tmp_path / "images").mkdir()
    for n, (stem, size) in enumerate(SIZES.items()):
        Image.new("RGB", size, (n, n, n)).save(tmp_path / "images" / f"{stem}.jpg")
    return tmp_path


def coco():
    images = [
        {"id": n, "file_name": f"{stem}.jpg", "width": size[0], "height": size[1]}
        for n, (stem, size) in enumerate(SIZES.items(), start=1)
    ]
    rows = [
        {
            "id": 9,
            "image_id": 1 + list(SIZES).index(stem),
            "category_id": 1 + NAMES.index(name),
            "bbox": [x, y, a - x, b - y],
        }
        for stem, boxes in BOXES.items()
        for name, x, y, a, b in boxes
    ]
    return {
        "images": images,
        "annotations": rows,
        "categories": [{"id": n, "name": name} for n, name in enumerate(NAMES, start=1)],
    }


TWIN = {i.image: (i.width, i.height, [(o.desc, o.bbox) for o in i.objects]) for i in read_annotations(coco()).instances}


def write_coco(place):
    (place / "a.json").write_text(json.dumps(coco()))
    return place / "a.json"


def write_jsonl(place):
    found = read_annotations(coco()).instances
    write_instances(place / "a.txt", [i.model_copy(update={"image": f"images/{i.image}"}) for i in found])
    return place / "a.txt"


def voc_object(name, box, extra=""):
    x1, y1, x2, y2 = box
    sides = {"xmin": x1 + 1, "ymin": y1 + 1, "xmax": x2, "ymax": y2}
    inner = "".join(f"<{k}>{v}</{k}>" for k, v in sides.items())
    return f"<object><name>{name}</name>{extra}<bndbox>{inner}</bndbox></object>"


def write_voc(place):
    (place / "Annotations").mkdir()
    (place / "images").rename(place / "JPEGImages")
    for stem, (width, height) in SIZES.items():
        objects = "".join(voc_object(name, box) for name, *box in BOXES[stem])
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        text = f"<annotation><filename>{stem}.jpg</filename>{size}{objects}</annotation>"
        (place / "Annotations" / f"{stem}.xml").write_text(text)
    return place


def write_yolo(place):
    (place / "labels").mkdir()
    (place / "data.yaml").write_text("train: images\nnames: [red cat, dog]\n")
    for stem, (width, height) in SIZES.items():
        lines = (
            f"{NAMES.index(name)} {(x + a) / 2 / width!r} {(y + b) / 2 / height!r} "
            f"{(a - x) / width!r} {(b - y) / height!r}\n"
            for name, x, y, a, b in BOXES[stem]
        )
        (place / "labels" / f"{stem}.txt").write_text("".join(lines))
    return place


def write_csv(place):
    with (place / "a.data").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"])
        for stem, boxes in BOXES.items():
            for row in boxes or [("", "", "", "", "")]:
                table.writerow([f"{stem}.jpg", *SIZES[stem], *row])
    return place / "a.data"


def write_bare_csv(place):
    with (place / "a.csv").open("w", newline="") as file:
        for stem, boxes in BOXES.items():
            rows = [[f"{stem}.jpg", x, y, a, b, name] for name, x, y, a, b in boxes]
            csv.writer(file).writerows(rows or [[f"{stem}.jpg", "", "", "", "", ""]])
    return place / "a.csv"


def write_lvis(place):
    document = coco()
    for row in document["images"]:
        row["coco_url"] = f"http://images.cocodataset.org/train2017/{row.pop('file_name')}"
        row["not_exhaustive_category_ids"] = []
    (place / "a.json").write_text(json.dumps(document))
    (place / "images").rename(place / "train2017")
    return place / "a.json"


def write_vg(place):
    objects = [
        {
            "image_id": n,
            "objects": [{"names": [name], "x": x, "y": y, "w": a - x, "h": b - y} for name, x, y, a, b in BOXES[stem]],
        }
        for n, stem in enumerate(SIZES, start=1)
    ]
    facts = [
        {"image_id": n, "width": w, "height": h, "url": f"https://x/rak/images/{stem}.jpg"}
        for n, (stem, (w, h)) in enumerate(SIZES.items(), start=1)
    ]
    (place / "objects.json").write_text(json.dumps(objects))
    (place / "image_data.json").write_text(json.dumps(facts))
    return place


def write_openimages(place):
    header = (
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
    )
    (place / "train-annotations-bbox.csv").write_text(
        header
        + "".join(
            f"\n{stem},x,/m/0{NAMES.index(name)},1,{x / w!r},{a / w!r},{y / h!r},{b / h!r},0,0,0,0,0"
            for stem, (w, h) in SIZES.items()
            for name, x, y, a, b in BOXES[stem]
        )
    )
    (place / "class-descriptions-boxable.csv").write_text("/m/00,red cat\n/m/01,dog\n")
    return place / "train-annotations-bbox.csv"


def write_swift(place):
    lines = []
    for stem, boxes in BOXES.items():
        text = "".join("<ref-object><bbox>" for _ in boxes)
        objects = {"ref": [name for name, *_ in boxes], "bbox": [box for _, *box in boxes]}
        turns = [{"role": "user", "content": "<image>Where?"}, {"role": "assistant", "content": text}]
        lines.append(json.dumps({"messages": turns, "images": [f"images/{stem}.jpg"], "objects": objects}))
    (place / "a.jsonl").write_text("\n".join(lines))
    return place / "a.jsonl"


def write_qwen(place):
    records = []
    for stem, boxes in BOXES.items():
        found = [{"bbox_2d": box, "label": name} for name, *box in boxes]
        answer = f"```json\n{json.dumps(found)}\n```"
        turns = [{"from": "human", "value": "<image>\nDetect."}, {"from": "gpt", "value": answer}]
        records.append({"image": f"images/{stem}.jpg", "conversations": turns})
    (place / "a.json").write_text(json.dumps(records))
    return place / "a.json"


# Writer, format to name (None: told by content), whether images without objects can be said in it, tolerance.
KINDS = {
    "coco": (write_coco, None, True, 0),
    "jsonl": (write_jsonl, None, True, 0),
    "voc": (write_voc, None, True, 0),
    "yolo": (write_yolo, None, True, 1e-15),  # centre and size: the corners are rounded twice
    "csv": (write_csv, None, True, 0),
    "csv without header": (write_bare_csv, None, True, 0),
    "lvis": (write_lvis, None, True, 0),
    "vg": (write_vg, None, True, 0),
    "openimages": (write_openimages, None, False, 0),
    "swift": (write_swift, None, False, 0),
    "qwen": (write_qwen, "qwen-pixels", True, 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_format_reads_the_boxes_of_its_coco_twin(place, kind):
    write, format, empty, tolerance = KINDS[kind]
    source = write(place)
    images = place / "images" if kind == "coco" else None
    found = read_source(source, images, format or "auto")
    assert found.format == (format or kind.split()[0])
    got = {
        Path(i.image).name: (i.width, i.height, [(o.desc, o.bbox) for o in i.objects])
        for i in found.annotations.instances
    }
    wanted = {name: value for name, value in TWIN.items() if empty or value[2]}
    assert got.keys() == wanted.keys()
    for name, (width, height, objects) in wanted.items():
        assert got[name][:2] == (width, height)
        assert [desc for desc, _ in got[name][2]] == [desc for desc, _ in objects]
        for (_, mine), (_, twin) in zip(got[name][2], objects, strict=True):
            assert mine == (twin if not tolerance else pytest.approx(twin, abs=tolerance))
    root = found.annotations.root
    assert all((root / i.image).is_file() for i in found.annotations.instances)
    if empty:
        assert not found.annotations.problems
    if not format:
        assert read_source(source, images, found.format).annotations.instances == found.annotations.instances


def test_every_format_is_held_to_its_twin():
    assert {kind.split()[0] for kind in KINDS} | {"refcoco", "qwen-pixels"} == {*FORMATS, "coco", "jsonl", "lvis"}


def test_qwen_thousandths_are_the_default_and_said(place):
    box = [{"bbox_2d": [100, 250, 500, 1000], "label": "cat"}]
    turns = [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": json.dumps(box)}]
    (place / "a.jsonl").write_text(json.dumps({"messages": turns, "images": ["images/a.jpg"]}))
    found = read_source(place / "a.jsonl")
    assert found.annotations.instances[0].objects[0].bbox == (0.1, 0.25, 0.5, 1.0)
    assert "thousandths" in found.notes[0]
    (place / "a.jsonl").write_text((place / "a.jsonl").read_text().replace("1000", "1001"))
    found = read_source(place / "a.jsonl")
    assert "pixels" in found.notes[0]
    assert "outside its image" in found.annotations.problems[0].message


def refcoco(place):
    (place / "instances.json").write_text(json.dumps(coco()))
    refs = [
        {
            "ref_id": 1,
            "ann_id": 9,
            "image_id": 1,
            "split": "val",
            "sentences": [{"raw": "left one"}, {"raw": "the cat"}],
        }
    ]
    (place / "refs.json").write_text(json.dumps(refs))
    return place


def test_refcoco_gives_a_record_a_phrase_and_refuses_the_pickle(place):
    document = coco()
    document["annotations"][0]["id"] = 5
    refcoco(place)
    (place / "instances.json").write_text(json.dumps(document))
    (place / "refs.json").write_text((place / "refs.json").read_text().replace('"ann_id": 9', '"ann_id": 5'))
    found = read_source(place).annotations
    assert [(i.image, i.objects[0].desc, i.query) for i in found.instances] == [
        ("a.jpg", "left one", "left one"),
        ("a.jpg", "the cat", "the cat"),
    ]
    assert all(i.objects[0].bbox == TWIN["a.jpg"][2][0][1] for i in found.instances)
    (place / "refs.json").rename(place / "refs(unc).p")
    for source in (place, place / "refs(unc).p"):
        with pytest.raises(InputError, match="pickle can run any code"):
            read_source(source)


def one_voc(place, inner, size="<size><width>200</width><height>100</height></size>"):
    (place / "a.xml").write_text(f"<annotation><filename>a.jpg</filename>{size}{inner}</annotation>")
    return read_source(place / "a.xml").annotations


DIFFICULT = voc_object("cat", (20, 10, 120, 60), "<difficult>1</difficult>")
TURNED = "<robndbox><cx>100</cx><cy>50</cy><w>40</w><h>20</h><angle>{}</angle></robndbox>"
POLYGON = "<polygon><x1>11</x1><y1>21</y1><x2>50</x2><y2>40</y2><x3>30</x3><y3>60</y3></polygon>"


@pytest.mark.parametrize(
    ("inner", "targets", "note"),
    [
        (
            voc_object("cat", (20, 10, 120, 60), "<truncated>1</truncated>"),
            [(20, 10, 120, 60)],
            "truncated objects, kept",
        ),
        (DIFFICULT, [], "difficult objects, ignored"),
        (f"<object><name>cat</name>{TURNED.format(0)}</object>", [(80, 40, 120, 60)], "rotated boxes, read as"),
        (
            f"<object><name>cat</name>{TURNED.format(math.pi / 2)}</object>",
            [(90, 30, 110, 70)],
            "rotated boxes, read as",
        ),
        (f"<object><name>cat</name>{POLYGON}</object>", [(10, 20, 50, 60)], "polygons, read as"),
    ],
    ids=["truncated", "difficult", "rotated by 0", "rotated by 90 degrees", "polygon"],
)
def test_voc_flags_and_shapes_follow_their_rule_and_are_counted(place, inner, targets, note):
    found = one_voc(place, inner)
    (instance,) = found.instances
    pixels = [pytest.approx((x / 200, y / 100, a / 200, b / 100), abs=1e-12) for x, y, a, b in targets]
    assert [o.bbox for o in instance.targets] == pixels
    assert sum(count for name, count in found.notes.items() if name.startswith(note)) == 1


def test_voc_pixels_count_from_one_and_belong_to_the_box(place):
    found = one_voc(place, voc_object("cat", (0, 0, 200, 100)) + voc_object("cat", (19, 9, 20, 10)))
    assert [o.bbox for o in found.instances[0].objects] == [(0, 0, 1, 1), (0.095, 0.09, 0.1, 0.1)]


def yolo_lines(place, text):
    write_yolo(place)
    (place / "labels" / "a.txt").write_text(text)
    return read_source(place).annotations


def test_yolo_polygons_confidences_and_missing_labels_are_counted(place):
    write_yolo(place)
    (place / "labels" / "c.txt").unlink()
    text = "0 .1 .1 .5 .1 .5 .6 .1 .6\n1 .5 .5 .2 .2 .99\n"
    (place / "labels" / "a.txt").write_text(text)
    found = read_source(place / "data.yaml").annotations
    boxes = [o.bbox for i in found.instances if i.image.endswith("a.jpg") for o in i.objects]
    assert boxes == [(0.1, 0.1, 0.5, 0.6), pytest.approx((0.4, 0.4, 0.6, 0.6))]
    assert sorted(found.notes.values()) == [1, 1, 1]


def test_openimages_groups_are_ignored_and_codes_need_names(place):
    path = write_openimages(place)
    path.write_text(path.read_text().replace("0,0,0,0,0", "1,0,1,0,0", 1))
    found = read_source(path).annotations
    assert [len(i.targets) for i in found.instances] == [1, 1] and found.notes["objects with IsOccluded, kept"] == 1
    (place / "class-descriptions-boxable.csv").unlink()
    with pytest.raises(InputError, match=r"LabelName /m/00 is a code; put class-descriptions"):
        read_source(path)


@pytest.mark.parametrize(
    ("policy", "left"), [("drop_image", ["b.jpg", "c.jpg"]), ("drop_box", ["a.jpg", "b.jpg", "c.jpg"])]
)
def test_refused_box_of_any_format_follows_on_bad_box(place, policy, left):
    write_voc(place)
    path = place / "Annotations" / "a.xml"
    path.write_text(path.read_text().replace("<xmax>120</xmax>", "<xmax>220</xmax>"))
    found = read_source(place, on_bad_box=policy).annotations
    assert [i.image for i in found.instances] == left
    assert [(p.where, p.is_box) for p in found.problems] == [(f"{path}: object 0", True)]
    assert "lies outside its image, which is 200 x 100 pixels" in found.problems[0].message
    with pytest.raises(InputError, match=r"1 objects are refused; data\.on_bad_box is error"):
        read_source(place, on_bad_box="error")


@pytest.mark.shared
def test_published_voc_annotations_of_blood_cells(shared_dir):
    """Against a naive reading of the XML: pixels count from 1 and the last one belongs to the box."""
    import re

    folder = shared_dir / "bccd"
    found = read_source(folder).annotations
    assert len(found.instances) == 364 and not found.problems
    total = 0
    for instance in found.instances:
        text = (folder / "Annotations" / instance.image).with_suffix(".xml").read_text()
        (width, height), *_ = re.findall(r"<width>(\d+)</width>\s*<height>(\d+)</height>", text)
        boxes = re.findall(r"<xmin>(\d+)<.*?<ymin>(\d+)<.*?<xmax>(\d+)<.*?<ymax>(\d+)<", text, re.DOTALL)
        corners = [tuple(map(int, box)) for box in boxes]
        wanted = [
            ((a - 1) / int(width), (b - 1) / int(height), c / int(width), d / int(height)) for a, b, c, d in corners
        ]
        assert [o.bbox for o in instance.objects] == [tuple(min(max(v, 0), 1) for v in box) for box in wanted]
        total += len(wanted)
    assert total == 4888
    held_out = read_source(folder / "ImageSets" / "test.txt").annotations
    assert len(held_out.instances) == 72 and held_out.root == folder / "JPEGImages"
