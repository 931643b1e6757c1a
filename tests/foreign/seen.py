"""What other tools write and read, as it was seen: the rows of docs/guides/other-tools.md, each with its check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from environment import versions

from coord_data import examine, gather_evidence
from coord_data.reading.read import read_by, read_source
from coord_data.reading.rules import ReadingRules

SIZE = (100, 80)
TRUTH = {"a.jpg": [("cat", 10, 20, 40, 60), ("dog", 70, 60, 100, 80)], "b.jpg": [("dog", 0, 0, 20, 30)], "c.jpg": []}
"""What every tool was given: labels and corners in pixels."""
WITH_OBJECTS = {image: boxes for image, boxes in TRUTH.items() if boxes}


class Written:
    """The files that the tools wrote.

    Args:
        root: folder with `images` and `written`
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str, *parts: str) -> Path:
        """Return a file or folder of a writer."""
        return self.root.joinpath("written", name, *parts)

    def rules(self) -> ReadingRules:
        """Return the rules by which all are read."""
        return ReadingRules(images=self.root / "images", on_bad_box="drop_box")

    def boxes(self, name: str, *parts: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return the labels and corners in pixels of each image, as this product reads them."""
        found = read_source(self.path(name, *parts), **dict(self.rules())).annotations
        return {
            Path(instance.image).name: sorted(
                (item.desc, *(round(value * side, 2) for value, side in zip(item.bbox, SIZE * 2, strict=True)))
                for item in instance.objects
                if not item.iscrowd
            )
            for instance in found.instances
        }

    def codes(self, name: str) -> set[str]:
        """Return the codes of the findings of `inspect`."""
        return {finding.code for finding in examine(gather_evidence(self.path(name), self.rules()))}

    def document(self, name: str, *parts: str) -> Any:
        """Return the content of a JSON file."""
        return json.loads(self.path(name, *parts).read_text())


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        package: the tool's package
        seen: what it writes or reads
        here: what this product does with it
        check: raises an AssertionError where one of the two is no longer so
    """

    package: str
    seen: str
    here: str
    check: Callable[[Written], None]


def _hole(written: Written) -> None:
    (row,) = written.document("supervision_hole", "a.json")["annotations"]
    assert row["iscrowd"] == 1
    assert written.boxes("supervision_hole") == {"a.jpg": []}
    assert "crowds" in written.codes("supervision_hole")


def _mask_box(written: Written) -> None:
    assert written.document("supervision_mask_box", "box.json") == [10, 20, 39, 59]  # the mask is 30 x 40 pixels


def _outline(written: Written) -> None:
    (line,) = written.path("supervision_outline", "labels", "a.txt").read_text().splitlines()
    numbers = line.split()[1:]
    vertices = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert len(set(vertices)) < len(vertices)
    assert written.boxes("supervision_outline")["a.jpg"] == [("dog", 10, 20, 39, 59)]


def _voc_from_one(written: Written) -> None:
    assert "<xmin>11</xmin>" in written.path("supervision_voc", "Annotations", "a.xml").read_text()
    assert written.boxes("supervision_voc") == TRUTH


def _labelimg(written: Written) -> None:
    text = written.path("labelimg_voc", "a.xml").read_text()
    assert "<xmin>10</xmin>" in text and "<database>Unknown</database>" in text and "<path>" in text
    assert "<xmin>1</xmin>" in written.path("labelimg_voc", "b.xml").read_text()  # of 0
    assert written.boxes("labelimg_voc") == TRUTH
    assert written.boxes("labelimg_yolo")["b.jpg"] == [("dog", 1, 1, 20, 30)]


def _supervisely(written: Written) -> None:
    assert "<xmax>39</xmax>" in written.path("supervisely_voc", "a.xml").read_text()
    first = written.document("supervisely_coco", "a.json")["annotations"][0]
    assert (first["bbox"], first["area"]) == ([10, 20, 29, 39], 1200)
    words = written.path("supervisely_yolo", "labels", "train", "a.txt").read_text().split()
    assert words[1:5] == ["0.240000", "0.487500", "0.300000", "0.500000"]  # the centre is .25, .5
    for name in ("supervisely_voc", "supervisely_coco", "supervisely_yolo"):
        assert written.boxes(name) == TRUTH


def _scalabel(written: Written) -> None:
    assert written.document("scalabel_coco", "a.json")["annotations"][0]["bbox"] == [10, 20, 31, 41]
    assert written.boxes("scalabel_coco") == TRUTH


def _groups(written: Written) -> None:
    objects = written.document("labelme_groups", "a.json")["shapes"]
    assert [row["group_id"] for row in objects[:3]] == [1, 1, 1] and objects[3]["label"] == "__ignore__"
    converted = json.loads((written.root / "labelme_objects.json").read_text())
    assert written.boxes("labelme_groups")["a.jpg"] == sorted(map(tuple, converted))
    assert ("dog", 15, 65, 30, 78) in written.boxes("labelme_groups")["a.jpg"]  # of four turned corners


def _pixels_inside(written: Written) -> None:
    assert written.document("labelme_json", "a.json")["imageData"]
    for images in (written.rules().images, None):
        found = read_source(written.path("labelme_json"), **{**dict(written.rules()), "images": images})
        assert len(found.annotations.instances) == len(TRUTH) and not found.annotations.problems
    assert written.boxes("labelme_json") == TRUTH


def _failed(written: Written) -> None:
    found = read_by(written.path("megadetector_json"), written.rules()).annotations
    assert ["image access failure" in problem.message for problem in found.problems] == [True]
    of_class = {image: [("animal", *box) for _, *box in boxes] for image, boxes in TRUTH.items()}
    assert written.boxes("megadetector_json") == of_class


def _kitti(written: Written) -> None:
    line = written.path("datumaro_kitti", "train", "label_2", "a.txt").read_text().splitlines()[0]
    assert len(line.split()) == 16 and not written.path("datumaro_kitti", "train", "label_2", "c.txt").exists()
    assert written.boxes("datumaro_kitti") == TRUTH


def _phrases(written: Written) -> None:
    phrases = [row["phrase"] for row in written.document("mmdet_grounding", "a.jsonl")["grounding"]["regions"]]
    assert phrases == [["cat", "dog"], "dog"]
    boxes = sorted([("cat dog", 10, 20, 40, 60), ("dog", 70, 60, 100, 80), ("dog", 0, 0, 20, 30)])
    assert written.boxes("mmdet_grounding", "a.jsonl") == {"a.jpg": boxes}


def _polygons(written: Written) -> None:
    text = written.path("datumaro_polygons", "obj_train_data", "a.txt").read_text()
    assert len(text.splitlines()) == 1  # of a polygon and a box
    assert written.boxes("datumaro_polygons")["a.jpg"] == [("dog", 70, 60, 100, 80)]


def _datumaro_voc(written: Written) -> None:
    assert "<xmin>10.0</xmin>" in written.path("datumaro_voc", "Annotations", "a.xml").read_text()
    assert not written.path("datumaro_voc", "Annotations", "c.xml").exists()
    assert written.boxes("datumaro_voc") == WITH_OBJECTS


def _merged(written: Written) -> None:
    place = "datumaro_merged", "both", "annotations", "instances_train.json"
    document = written.document(*place)
    assert [row["id"] for row in document["images"]] == [1, 1]
    assert len({row["id"] for row in document["annotations"]}) < len(document["annotations"])
    found = read_by(written.path(*place), written.rules()).annotations
    assert not found.instances and {problem.field.rpartition(".")[2] for problem in found.problems} >= {"id"}


def _labelme_xml(written: Written) -> None:
    assert written.boxes("datumaro_labelme") == TRUTH


def _labelstudio_voc(written: Written) -> None:
    text = written.path("labelstudio_voc", "Annotations", "a.xml").read_text()
    assert "<xmin>10</xmin>" in text and "Label Studio" in text
    assert not written.path("labelstudio_voc", "Annotations", "c.xml").exists()
    assert written.boxes("labelstudio_voc") == WITH_OBJECTS


def _turned(written: Written) -> None:
    (around,) = written.boxes("labelstudio_turned_coco")["a.jpg"]
    assert around == ("cat", 37.5, 20, 75.98, 49.32)  # 40, 20, 75.98, 52.32 lies around it
    unturned = ("cat", 50, 20, 80, 40)
    assert written.boxes("labelstudio_turned_yolo")["a.jpg"] == [unturned]
    assert written.boxes("labelstudio_turned_voc")["a.jpg"] == [unturned]
    assert written.boxes("labelstudio_turned_obb")["a.jpg"] == [("cat", 40, 20, 75.98, 52.32)]


def _json_min(written: Written) -> None:
    with pytest.raises(ValueError, match="JSON_MIN"):
        written.boxes("labelstudio_json_min")


def _upload_names(written: Written) -> None:
    images = written.document("labelstudio_coco", "result.json")["images"]
    assert all(row["file_name"].startswith("/data/upload/") for row in images)
    assert images[2]["width"] is None
    assert written.boxes("labelstudio_coco") == TRUTH


def _ids_with_names(written: Written) -> None:
    first = written.path("labelformat_yolo", "labels", "a.txt").read_text().split()[0]
    assert first == "3"  # the id of `cat` in the COCO file
    assert written.boxes("labelformat_yolo") == TRUTH  # data.yaml names 3 and 7


def _ids_without_names(name: str, *labels: str, first: str = "3", file: str = "") -> Callable[[Written], None]:
    def check(written: Written) -> None:
        assert written.path(name, *labels, "a.txt").read_text().split()[0] == first
        assert not any(written.boxes(name, *filter(None, (file,))).values())

    return check


def _parts(written: Written) -> None:
    assert written.boxes("ultralytics_parts") == TRUTH
    path, rules = written.path("ultralytics_parts"), {**dict(written.rules()), "geometry": "polygon", "images": None}
    found = read_source(path, **rules).annotations
    assert not found.problems
    assert sum(count for note, count in found.notes.items() if "several rings" in note) == 1
    shapes = [item.geometry for instance in found.instances for item in instance.objects if item.desc == "cat"]
    assert min(shapes[0].coordinates[::2]) == 0.25  # of the larger part, from 25 to 40


def _corner_as_centre(written: Written) -> None:
    assert written.path("imantics_yolo", "labels", "a.txt").read_text().split()[1:3] == ["0.10000", "0.25000"]
    assert not any(written.boxes("imantics_yolo").values())
    assert "xywh" in written.codes("imantics_yolo")


def _names_that_are_no_xml(written: Written) -> None:
    found = read_by(written.path("pascalvocwriter_voc"), written.rules()).annotations
    assert [problem.where.rpartition("/")[2] for problem in found.problems] == ["b.xml"]
    assert written.boxes("pascalvocwriter_voc") == {"a.jpg": [("cat", 10, 20, 40, 60)]}


def _centres(written: Written) -> None:
    assert "-5,0,25,40" in written.path("imgann_csv", "a.csv").read_text()  # of the box from 10, 20 to 40, 60
    for name in ("imgann_csv", "imgann_voc"):
        assert ("cat", 10, 20, 40, 60) not in written.boxes(name).get("a.jpg", [])
        assert "refused" in written.codes(name)


def _repeated(written: Written) -> None:
    assert written.boxes("pylabel_coco")["b.jpg"] == TRUTH["b.jpg"] * 2
    assert "duplicates" in written.codes("pylabel_coco")


def _checksums(written: Written) -> None:
    document = written.document("darwin_coco", "output.json")
    assert min(row["id"] for row in document["categories"]) > 1000
    assert written.boxes("darwin_coco") == TRUTH


def _one_category(written: Written) -> None:
    assert written.document("torchmetrics_coco", "a_target.json")["categories"] == [{"id": 0, "name": "0"}]
    found = read_by(written.path("torchmetrics_coco", "a_target.json"), written.rules()).annotations
    assert {problem.field.rpartition(".")[2] for problem in found.problems} == {"category_id", "file_name"}


def _widths(written: Written) -> None:
    found = json.loads((written.root / "torch.json").read_text())
    sides = [[[x1, y1, x2 - x1, y2 - y1] for _, x1, y1, x2, y2 in boxes] for boxes in WITH_OBJECTS.values()]
    for boxes_of_images in found.values():
        assert [[box for _, *box in boxes] for boxes in boxes_of_images] == sides


def _read_as_given(name: str, *parts: str) -> Callable[[Written], None]:
    def check(written: Written) -> None:
        assert written.boxes(name, *parts) == TRUTH

    return check


def _openimages(written: Written) -> None:
    assert written.path("globox_openimages", "a.csv").read_text().splitlines()[1].startswith("a.jpg,")
    assert written.boxes("globox_openimages") == WITH_OBJECTS


def _absolute(written: Written) -> None:
    images = written.document("labelme2coco_coco", "dataset.json")["images"]
    assert all("/" in row["file_name"] for row in images)
    assert written.boxes("labelme2coco_coco", "dataset.json") == TRUTH


ROWS = (
    Row(
        "supervision",
        "`as_coco` of a mask with a hole: a crowd region (`iscrowd` 1)",
        "no target; `inspect` has the finding `crowds`",
        _hole,
    ),
    Row(
        "labelme",
        "shapes with one label and `group_id`, which its own converter makes one object, and `__ignore__`, which it "
        "leaves out; its masks have the pixel at the last corner, so that labelme2coco.py writes boxes a pixel wider",
        "read so, up to the corners of the shapes",
        _groups,
    ),
    Row("labelme", "`imageData`: the pixels in the file", "read, without the image too", _pixels_inside),
    Row("megadetector", "`failure` in place of detections", "a problem of that image; the others are read", _failed),
    Row(
        "mmdet",
        "`goldg2odvg`: a list of the parts of a phrase, a list of boxes of a phrase",
        "a phrase of its parts; an object for each box",
        _phrases,
    ),
    Row(
        "datumaro",
        "`kitti_detection`: a score as sixteenth number; no file for an image without objects",
        "read",
        _kitti,
    ),
    Row("supervision", "`mask_to_xyxy`: a pixel short on the right and below", "no file is written", _mask_box),
    Row(
        "supervision",
        "`as_yolo` of a mask: outlines a pixel short; a hole is joined to its outline, which repeats a vertex",
        "read as the box around it; never taken for a pose",
        _outline,
    ),
    Row("supervision", "`as_pascal_voc`: whole pixels that count from 1", "read so", _voc_from_one),
    Row(
        "datumaro",
        "`yolo`: polygons are left out without an error",
        "only the boxes are there to read; export COCO",
        _polygons,
    ),
    Row(
        "datumaro",
        "`voc_detection`: decimals that count from 0; no file for an image without objects",
        "read from 0; those images are not part of the set",
        _datumaro_voc,
    ),
    Row(
        "datumaro",
        "`HLOps.merge` of COCO sets, exported as COCO: images and annotations keep their ids, which repeat",
        "images of one id are problems, each by its row: `coord-data prepare A B` joins the sets instead",
        _merged,
    ),
    Row("datumaro", "`label_me`: XML of polygons, boxes as well", "read as `voc`, the box around each", _labelme_xml),
    Row(
        "label-studio-sdk",
        "VOC: whole pixels that count from 0; no file for an image without objects",
        "read from 0, since the file names Label Studio",
        _labelstudio_voc,
    ),
    Row(
        "label-studio-sdk",
        "one rotated rectangle, three boxes: COCO turns it in percent, and the box is another one unless the image is "
        "square; YOLO and VOC have the unturned one without its angle; only YOLO OBB has its corners",
        "read as written, nothing tells the angle: export YOLO OBB",
        _turned,
    ),
    Row("label-studio-sdk", "JSON_MIN", "refused by name", _json_min),
    Row(
        "label-studio-sdk",
        "COCO: names on the server (`/data/upload/1/a.jpg`), no size for an image without objects",
        "the image of that name in `--images`, counted; the size of the file",
        _upload_names,
    ),
    Row(
        "labelformat",
        "YOLO from COCO: category ids are class numbers, and data.yaml names these numbers",
        "read by these names",
        _ids_with_names,
    ),
    Row(
        "sahi",
        "YOLO from COCO: category ids are class numbers, but data.yml lists the names from 0",
        "objects without a name are problems; `inspect` has `class_numbers` where one number is over",
        _ids_without_names("sahi_yolo", "train"),
    ),
    Row(
        "coco-to-yolo",
        "category ids less 1 are class numbers, but its YAML lists the names from 0: right for ids 1, 2, 3, ... alone",
        "the same",
        _ids_without_names(
            "cocotoyolo_yolo", "yolo", "converted", "labels", "train", first="2", file="yolo/converted.yaml"
        ),
    ),
    Row(
        "ultralytics",
        "`convert_coco(cls91to80=False)`: category ids less 1 are class numbers, and no file names them",
        "the same where you list the names from 0: write `names: {2: cat, 6: dog}`",
        _ids_without_names("ultralytics_yolo", "labels", first="2"),
    ),
    Row(
        "ultralytics",
        "`convert_coco(use_segments=True)`: all parts of an object become one outline, which repeats vertices",
        "the box around all; with `--geometry polygon` the largest part, counted",
        _parts,
    ),
    Row("pylabel", "YOLO from COCO: the same", "the same", _ids_without_names("pylabel_yolo", "labels")),
    Row(
        "pylabel",
        "COCO: an image without objects repeats the box of the one before it",
        "`inspect` has `duplicates`",
        _repeated,
    ),
    Row(
        "pylabel",
        "VOC: whole pixels that count from 0",
        "read from 0, by its empty elements",
        _read_as_given("pylabel_voc"),
    ),
    Row(
        "imgann",
        "from COCO: each box lies with its middle where its first corner was, also with `center=True`, the default",
        "boxes outside of their image are problems, the others look right: do not convert with it",
        _centres,
    ),
    Row(
        "imantics",
        "`Image.yolo()`: a corner where the centre belongs, and class numbers from 1",
        "boxes outside of their image are problems; `inspect` has `xywh`, with the order for `--read-as`",
        _corner_as_centre,
    ),
    Row(
        "pascal-voc-writer",
        "names as they are: `cat & dog` is no XML; corners as they are given",
        "such a file is a problem; corners are read from 1 where none is 0 or past the image",
        _names_that_are_no_xml,
    ),
    Row("darwin-py", "COCO: ids are checksums of names", "read", _checksums),
    Row("darwin-py", "YOLO: `a.jpg.txt` and `darknet.labels`", "read", _read_as_given("darwin_yolo")),
    Row(
        "darwin-py",
        "VOC: whole pixels that count from 0",
        "read from 0, since the file names darwin",
        _read_as_given("darwin_voc"),
    ),
    Row("globox", "Open Images: file names as `ImageID`", "read", _openimages),
    Row(
        "labelimg",
        "VOC: whole pixels that count from 0, but 1 for a first corner at 0, in its YOLO labels too",
        "VOC is read from 0, and 1 as 0, by its elements; YOLO as written",
        _labelimg,
    ),
    Row("kili-formats", "VOC: whole pixels that count from 0", "read from 0, by its name", _read_as_given("kili_voc")),
    Row("dtlpy", "VOC: pixels cut off, from 0", "read from 0, by its elements", _read_as_given("dtlpy_voc")),
    Row(
        "supervisely",
        "one box, three others: VOC from 0 with the last pixel, COCO a pixel too small beside its whole area, YOLO "
        "with the centre cut off to whole pixels",
        "read as the box, by its elements, areas and keys",
        _supervisely,
    ),
    Row("scalabel", "COCO: a pixel wider and higher than `box2d`", "read without it, by `scalabel_id`", _scalabel),
    Row("globox", "VOC: decimals that count from 0", "read so", _read_as_given("globox_voc")),
    Row("globox", "LabelMe and VIA", "read", _read_as_given("globox_via")),
    Row("labelme2coco", "names with the path of the folder", "read, the image of that name", _absolute),
    Row(
        "torchmetrics",
        "`tm_to_coco`: one category, named 0, whatever the labels are; no file names",
        "each object and image is a problem by name: write the names of your classes and images into the file",
        _one_category,
    ),
    Row(
        "torchmetrics",
        "`coco_to_tm` returns x, y, width, height, which the metric takes for corners, and no image without a true box",
        'no file is written; `MeanAveragePrecision(box_format="xywh")`',
        _widths,
    ),
    Row("kwcoco", "COCO", "read", _read_as_given("kwcoco_coco")),
)
"""Rows of what tools write."""

LOADED = (
    (
        "datumaro",
        "VOC: corners that count from 1 are taken as they are, a pixel inside",
        "the export counts from 1, as VOC",
    ),
    ("labelformat", "VOC: the same", "the same"),
    ("globox", "VOC: the same", "the same"),
    ("pylabel", "VOC: the same", "the same"),
    ("supervision", "VOC: 1 is subtracted from the first corner", "the box as exported"),
    ("labelformat", "CVAT: XML that declares its encoding, as CVAT writes it, is refused", "cvat.xml declares none"),
    ("datumaro", "CVAT: XML without `meta` is refused", "cvat.xml lists the labels there"),
)
"""Rows of what tools read of the exports of this product, which `test_foreign.py` checks."""


def table() -> str:
    """Return both tables in Markdown."""
    pinned = versions()
    lines = ["| tool | what it writes | here |", "|---|---|---|"]
    lines += [f"| {row.package} {pinned[row.package]} | {row.seen} | {row.here} |" for row in ROWS]
    lines += ["", "| tool | what it reads | exports here |", "|---|---|---|"]
    lines += [f"| {package} {pinned[package]} | {seen} | {here} |" for package, seen, here in LOADED]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
