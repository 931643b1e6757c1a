"""Pascal VOC: which image a file describes, which files are read, and where corners count from."""

from pathlib import Path

import pytest
from PIL import Image

from coord_data.reading.read import read_source

BOX = ("21", "11", "100", "50")
READ = (0.1, 0.1, 0.5, 0.5)


def voc(filename, box=BOX, folder="", shape="", extra=""):
    sides = "".join(f"<{side}>{v}</{side}>" for side, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return (
        f"<annotation><folder>{folder}</folder><filename>{filename}</filename>"
        "<size><width>200</width><height>100</height></size>"
        f"<object><name>cat</name>{shape or f'<bndbox>{sides}</bndbox>'}{extra}</object></annotation>"
    )


def write(place: Path, images, annotations, under="Annotations"):
    for name in images:
        (place / "JPEGImages" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (200, 100)).save(place / "JPEGImages" / name)
    for name, text in annotations.items():
        (place / under / name).parent.mkdir(parents=True, exist_ok=True)
        (place / under / name).write_text(text)
    return place


@pytest.mark.parametrize(
    ("images", "annotations", "wanted"),
    [
        (
            ["cam1/0.jpg", "cam2/0.jpg"],
            {"1.xml": voc("0.jpg", folder="cam1"), "2.xml": voc("0.jpg", folder="cam2")},
            ["cam1/0.jpg", "cam2/0.jpg"],
        ),
        (["cam1/1.jpg", "cam2/0.jpg"], {"1.xml": voc("0.jpg", folder="cam1")}, []),
        (["0.jpg"], {"1.xml": voc("0.jpg", folder="VOC2012")}, ["0.jpg"]),
        (["1.jpg"], {"1.xml": voc("/home/me/0.jpg")}, ["1.jpg"]),
        (["sub/1.jpg"], {"1.xml": voc("")}, ["sub/1.jpg"]),
        (["0.jpg"], {"1.xml": voc("0.jpg", folder="/tmp"), "2.xml": voc("0.jpg", folder="f" * 300)}, ["0.jpg"] * 2),
    ],
)
def test_voc_folder_is_part_of_the_name_of_the_image(tmp_path, images, annotations, wanted):
    found = read_source(write(tmp_path, images, annotations)).annotations
    assert [i.image for i in found.instances] == wanted


@pytest.mark.parametrize("under", ["Annotations", "annotations", ""])
@pytest.mark.parametrize("names", [["a.xml", "cam1/b.xml"], ["a.XML"], ["a.xml", "._a.xml", ".cache/a.xml"]])
def test_voc_files_are_found_at_any_depth_in_either_case_and_hidden_ones_are_skipped(tmp_path, under, names):
    stems = [name for name in names if "." in name and not name.startswith(".")]
    images = [str(Path(name).with_suffix(".jpg")) for name in stems]
    write(tmp_path, images, {name: voc(Path(name).stem + ".jpg") for name in names}, under)
    found = read_source(tmp_path, tmp_path / "JPEGImages").annotations
    assert ([i.image for i in found.instances], found.problems) == (images, ())
    assert all(o.bbox == READ for i in found.instances for o in i.objects)


def test_voc_annotations_that_are_all_in_folders_are_recognised(tmp_path):
    found = read_source(write(tmp_path, ["cam1/b.jpg"], {"cam1/b.xml": voc("cam1/b.jpg")}))
    assert found.format == "voc" and [i.image for i in found.annotations.instances] == ["cam1/b.jpg"]


FROM_0, FROM_1 = (20, 10, 100, 50), (19, 9, 100, 50)
WHOLE = ("20", "10", "100", "50")
POINT = ("20.0", "10.0", "100.0", "50.0")
QUARTER = ("20.25", "10", "100", "50")
POLYGON = (
    "<polygon><x1>20.5</x1><y1>10.5</y1><x2>100.5</x2><y2>10.5</y2><x3>60</x3><y3>50.5</y3></polygon>",
    (20.5, 10.5, 100.5, 50.5),
)
TURNED = "<attributes><attribute><name>rotation</name><value>{}</value></attribute></attributes>"


@pytest.mark.parametrize(
    ("boxes", "wanted", "note"),
    [
        ([POINT, QUARTER], [FROM_0, (20.25, *FROM_0[1:])], "count from 0"),
        ([POINT], [FROM_0], "count from 0"),
        ([QUARTER, WHOLE, WHOLE], [(19.25, *FROM_1[1:]), FROM_1, FROM_1], "counted from 1 like the others"),
        ([WHOLE], [FROM_1], "nothing shows it"),
        ([WHOLE, ("0", "10", "100", "50")], [FROM_0, (0, 10, 100, 50)], "some begin at 0"),
        ([WHOLE, ("0", "10", "199", "49")], [(20, 10, 101, 51), (0, 10, 200, 50)], "end a pixel before it"),
        ([WHOLE, ("151", "11", "201", "51")], [(19, 9, 99, 49), (150, 10, 200, 50)], "a pixel past their image"),
    ],
)
@pytest.mark.parametrize("step", [1, -1])
def test_voc_counts_from_0_or_1_throughout_a_source(tmp_path, boxes, wanted, note, step):
    """Whichever of the files shows it."""
    boxes, wanted = boxes[::step], wanted[::step]
    images = [f"{n}.jpg" for n in range(len(boxes))]
    found = read_source(write(tmp_path, images, {f"{n}.xml": voc(f"{n}.jpg", box) for n, box in enumerate(boxes)}))
    read = [o.bbox for i in found.annotations.instances for o in i.objects]
    assert read == [pytest.approx((x / 200, y / 100, a / 200, b / 100)) for x, y, a, b in wanted]
    assert any(note in told for told in found.annotations.notes)


@pytest.mark.parametrize(
    ("given", "wanted", "turned"),
    [
        ({"shape": POLYGON[0]}, POLYGON[1], False),
        ({"extra": TURNED.format("0.0")}, FROM_0, False),
        ({"extra": TURNED.format("left")}, FROM_0, False),
        ({"extra": TURNED.format("90.0"), "box": ("60.0", "40.0", "100.0", "60.0")}, (70, 30, 90, 70), True),
        (
            {"extra": TURNED.format("-30"), "box": ("60.0", "40.0", "100.0", "60.0")},
            (57.679, 31.34, 102.321, 68.66),
            True,
        ),
    ],
    ids=["polygon", "not turned", "no angle", "turned by 90 degrees", "turned by -30 degrees"],
)
def test_voc_box_around_a_shape_of_cvat(tmp_path, given, wanted, turned):
    found = read_source(write(tmp_path, ["0.jpg"], {"0.xml": voc("0.jpg", **{"box": POINT} | given)})).annotations
    x1, y1, x2, y2 = wanted
    assert found.instances[0].objects[0].bbox == pytest.approx((x1 / 200, y1 / 100, x2 / 200, y2 / 100), abs=1e-4)
    assert ("rotated boxes, read as the upright box around them" in found.notes) == turned


def test_file_that_states_the_image_of_another_has_that_of_its_own_name(tmp_path):
    annotations = {"1.xml": voc("0.jpg"), "0.xml": voc("0.jpg"), "2.xml": voc("3.jpg")}
    found = read_source(write(tmp_path, ["0.jpg", "1.jpg", "2.jpg", "3.jpg"], annotations)).annotations
    assert [i.image for i in found.instances] == ["0.jpg", "1.jpg", "3.jpg"]
    assert found.notes["files that state the image of another file: the image with the file's own name is used"] == 1


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ("0\nbig cat\n", ["0.jpg", "big cat.jpg"]),
        ("0.jpg\nbig cat.jpg\ncat 1\n", ["0.jpg", "big cat.jpg", "cat 1.jpg"]),
        ("0  1\nbig cat -1\ncat 1  0\n", ["0.jpg", "cat 1.jpg"]),
        ("0\n0\n", ["0.jpg"]),
    ],
)
def test_list_in_imagesets_names_files_with_blanks_and_suffixes_once(tmp_path, rows, wanted):
    stems = ("0", "big cat", "cat 1")
    write(tmp_path, [f"{stem}.jpg" for stem in stems], {f"{stem}.xml": voc(f"{stem}.jpg") for stem in stems})
    (tmp_path / "ImageSets").mkdir()
    (tmp_path / "ImageSets" / "train.txt").write_text(rows)
    found = read_source(tmp_path / "ImageSets" / "train.txt")
    assert [i.image for i in found.annotations.instances] == wanted
    assert any("1 name is listed more than once" in note for note in found.notes) is (rows == "0\n0\n")
