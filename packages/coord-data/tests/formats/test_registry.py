"""Every format against COCO JSON with the same boxes: the same images, descriptions and boxes, to the last bit."""

import json
import math
from pathlib import Path

import pytest
from coco_twins import SIZES, TWIN, WRITERS, coco, voc_object, write_openimages, write_voc, write_yolo
from PIL import Image

from coord_codec import InputError
from coord_data.formats.registry import FORMATS
from coord_data.reading.read import read_source


@pytest.fixture
def place(tmp_path):
    """A folder with images of those sizes in `images`."""
    (tmp_path / "images").mkdir()
    for n, (stem, size) in enumerate(SIZES.items()):
        Image.new("RGB", size, (n, n, n)).save(tmp_path / "images" / f"{stem}.jpg")
    return tmp_path


@pytest.mark.parametrize("kind", WRITERS)
def test_format_reads_the_boxes_of_its_coco_twin(place, kind):
    format = "qwen-pixels" if kind == "qwen" else None
    empty = kind != "openimages"  # which cannot say that an image has no objects
    tolerance = 1e-15 if kind == "yolo" else 0  # centre and size: the corners are rounded twice
    source = WRITERS[kind](place)
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
        again = read_source(source, images, found.format)
        assert list(again.annotations.instances) == list(found.annotations.instances)


@pytest.mark.parametrize("kind", ["yolo", "voc"])
def test_hidden_files_are_no_data(place, kind):
    source = WRITERS[kind](place)
    for path in [path for path in source.rglob("*.*") if path.is_file()]:
        path.with_name(f"._{path.name}").write_bytes(b"\x00\x05\x16\x07")
    for name in ("", "data.yaml") if kind == "yolo" else ("",):
        found = read_source(source / name)
        assert found.format == kind and len(found.annotations.instances) == 3 and not found.annotations.problems
    found = read_source(source, place / ("images" if kind == "yolo" else "JPEGImages"))
    assert len(found.annotations.instances) == 3 and not found.annotations.problems


def test_every_format_is_held_to_its_twin():
    """A row without examples, which the tests of the table read, has a twin of the COCO file here."""
    without_examples = {name for name, row in FORMATS.items() if not row.examples}
    assert without_examples <= {kind.split()[0] for kind in WRITERS}


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
    ref = {"ref_id": 1, "ann_id": 9, "image_id": 1, "split": "val"}
    (place / "refs.json").write_text(json.dumps([ref | {"sentences": [{"raw": "left one"}, {"raw": "the cat"}]}]))
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


def test_voc_fractions_count_from_zero_and_sides_at_zero_are_counted(place):
    """CVAT writes its continuous corners, which begin at 0; `voc_object` adds the 1 of Pascal VOC to the lower ones."""
    found = one_voc(place, voc_object("cat", (-1, 9, 120.5, 60)) + voc_object("cat", (29, 19, 40, 30)))
    assert [o.bbox for o in found.instances[0].objects] == [(0, 0.1, 0.6025, 0.6), (0.15, 0.2, 0.2, 0.3)]
    assert list(found.notes.items()) == [("boxes of files with fractions, which count from 0 and not from 1", 2)]
    found = one_voc(place, voc_object("cat", (-1, 9, 120, 60)) + voc_object("cat", (29, 19, 40, 30)))
    assert [o.bbox for o in found.instances[0].objects] == [(0, 0.1, 0.6, 0.6), (0.15, 0.2, 0.2, 0.3)]
    assert [count for note, count in found.notes.items() if "some begin at 0" in note] == [2]


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
    with pytest.raises(InputError, match=r"1 object is refused, and on_bad_box is error"):
        read_source(place, on_bad_box="error")


@pytest.mark.slow
@pytest.mark.shared
def test_published_voc_annotations_of_blood_cells(shared_dir):
    """Against a naive reading of the XML of labelImg: from 0 up to the edge, and 1 is also written for 0."""
    import re

    folder = shared_dir / "bccd"
    found = read_source(folder).annotations
    assert len(found.instances) == 364 and len(found.problems) == 2
    total = 0
    for instance in found.instances:
        text = (folder / "Annotations" / instance.image).with_suffix(".xml").read_text()
        (width, height), *_ = re.findall(r"<width>(\d+)</width>\s*<height>(\d+)</height>", text)
        boxes = re.findall(r"<xmin>(\d+)<.*?<ymin>(\d+)<.*?<xmax>(\d+)<.*?<ymax>(\d+)<", text, re.DOTALL)
        corners = [tuple(map(int, box)) for box in boxes]
        wanted = [
            ((a - (a == 1)) / int(width), (b - (b == 1)) / int(height), c / int(width), d / int(height))
            for a, b, c, d in corners
            if a < c and b < d  # two were clicked without an area
        ]
        assert [o.bbox for o in instance.objects] == [tuple(min(max(v, 0), 1) for v in box) for box in wanted]
        total += len(wanted)
    assert total == 4886
    held_out = read_source(folder / "ImageSets" / "test.txt").annotations
    assert len(held_out.instances) == 72 and held_out.root == folder / "JPEGImages"
