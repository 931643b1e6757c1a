"""Thirty mistakes that a new user makes with data, and what is said about each; a run never ends in a traceback."""

import json
import random

import pytest
from one_image import COCO, VOC, coco
from PIL import Image

RECORD = {
    "image": "images/a.png",
    "width": 64,
    "height": 48,
    "objects": [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}],
}

LABELME = json.dumps(
    {
        "imagePath": "a.png",
        "imageHeight": 48,
        "shapes": [{"label": "cat", "points": [[4, 4], [36, 36]], "shape_type": "rectangle"}],
    }
)
HEADER = "filename,class,xmin,ymin,xmax,ymax\n"


def record(**fields):
    return json.dumps(RECORD | fields) + "\n"


def box(*corners, desc="cat"):
    return record(objects=[{"desc": desc, "bbox": corners}])


def yolo(label="0 .5 .5 .2 .2", image="a.png", content=None, names="cat\n"):
    files = {f"y/images/{image}": content, "y/labels/a.txt": label, "y/classes.txt": names}
    return {name: content for name, content in files.items() if content != ""}


# What is written (name -> content), the words after `prepare`, and what must be told.
A = ["a.json", "images"]

MISTAKES = {
    "a path with a typo": ({}, ["anotations.json"], "anotations.json: expected annotations, found nothing there"),
    "images instead of annotations": ({}, ["images"], "1 image and no annotations; name the annotations first"),
    "an image instead of annotations": ({}, ["images/a.png"], "an image; expected annotations"),
    "an empty folder": ({"empty/": ""}, ["empty"], "expected annotations in this folder, found nothing"),
    "several files in a folder": (
        {"d/x.json": coco(), "d/y.json": coco()},
        ["d"],
        "found x.json, y.json; name one of the files",
    ),
    "two formats in a folder": (
        {"d/a.png": None, "d/a.xml": VOC, "d/a.txt": "0 .5 .5 .2 .2", "d/classes.txt": "cat"},
        ["d"],
        "holds Pascal VOC XML and YOLO labels; choose one of them",
    ),
    "COCO and YOLO in a folder": (
        {"d/images/a.png": None, "d/labels/a.txt": "0 .5 .5 .2 .2", "d/classes.txt": "cat", "d/instances.json": coco()},
        ["d"],
        "holds COCO JSON (instances.json) and YOLO labels; choose one of them with --format coco or",
    ),
    "YOLO and a COCO file in annotations": (
        {
            "d/images/a.png": None,
            "d/labels/a.txt": "0 .5 .5 .2 .2",
            "d/classes.txt": "cat",
            "d/annotations/b.json": coco(),
        },
        ["d"],
        "holds COCO JSON (b.json) and YOLO labels; choose one of them with --format coco or yolo",
    ),
    "Pascal VOC and a COCO file of any name in a folder": (
        {"d/a.png": None, "d/a.xml": VOC, "d/labels_v2.json": coco()},
        ["d"],
        "holds COCO JSON (labels_v2.json) and Pascal VOC XML; choose one of them with --format coco or voc",
    ),
    "LabelMe and a table in a folder": (
        {"d/a.png": None, "d/a.json": LABELME, "d/all.csv": HEADER + "a.png,cat,4,4,36,36"},
        ["d"],
        "holds CSV (all.csv) and LabelMe JSON; choose one of them with --format csv or labelme",
    ),
    "LabelMe and a COCO file, of which one is chosen": (
        {"d/a.png": None, "d/a.json": LABELME, "d/coco.json": coco()},
        ["d", "--format", "labelme"],
        "1 record, 1 box",
    ),
    "a table beside Pascal VOC that is chosen": (
        {"d/a.png": None, "d/a.xml": VOC, "d/all.csv": HEADER + "a.png,cat,4,4,36,36"},
        ["d", "--format", "csv"],
        "1 record, 1 box",
    ),
    "a table of something else beside Pascal VOC": (
        {"d/a.png": None, "d/a.xml": VOC, "d/results.csv": "epoch,loss\n1,0.5\n", "d/meta.json": '{"made": "today"}'},
        ["d"],
        "1 record, 1 box",
    ),
    "one of two formats in a folder": (
        {"d/a.png": None, "d/a.txt": "0 .5 .5 .2 .2", "d/classes.txt": "cat", "d/instances.json": coco()},
        ["d", "--format", "coco"],
        "1 record, 1 box",
    ),
    "annotations beside images": ({"d/images/a.png": None, "d/annotations/a.xml": VOC}, ["d"], "1 record, 1 box"),
    "one table among images": ({"d/a.png": None, "d/b.csv": HEADER + "a.png,cat,4,4,36,36"}, ["d"], "1 record, 1 box"),
    "the folder of images has a typo": ({"a.json": coco()}, ["a.json", "--images", "imgs"], "at imgs"),
    "images elsewhere": ({"a.json": coco()}, ["a.json"], "(--images) names the folder that its paths are relative to"),
    "a list of detections": (
        {"a.json": '[{"image_id": 1, "bbox": [1, 2, 3, 4], "category_id": 1, "score": 0.5}]'},
        A,
        "a list of detections has no images and can be no ground truth",
    ),
    "COCO without categories": ({"a.json": '{"images": [], "annotations": []}'}, A, "and categories)"),
    "JSON cut off by a full disk": ({"a.json": coco()[:-9]}, A, "not JSON"),
    "x, y, x, y called x, y, width, height": (
        {"a.json": coco({"bbox": [40, 30, 60, 44]})},
        A,
        "lies outside its image",
    ),
    "fractions called pixels": ({"a.json": coco({"bbox": [0.1, 0.1, 0.4, 0.4]})}, A, "1 record"),
    "boxes as text": ({"a.json": coco({"bbox": ["4", "4", "9", "9"]})}, A, "expected finite numbers, found '4'"),
    "an id of no image": ({"a.json": coco({"image_id": 7})}, A, "7 is not the id of an image"),
    "an id of no category": ({"a.json": coco({"category_id": 0})}, A, "0 is not the id of a category"),
    "sizes of the resized images": (
        {"a.json": coco(images=[COCO["images"][0] | {"width": 128, "height": 96}])},
        A,
        "the annotations say 128 x 96 pixels, the file has 64 x 48",
    ),
    "pixels in instance JSONL": ({"a.jsonl": box(4, 4, 36, 36)}, ["a.jsonl"], "is outside [0, 1]"),
    "swapped corners": ({"a.jsonl": box(0.5, 0.5, 0.1, 0.1)}, ["a.jsonl"], "no area or swapped corners"),
    "no description": ({"a.jsonl": box(0.1, 0.1, 0.5, 0.5, desc="")}, ["a.jsonl"], "found an empty one"),
    "a marker as description": (
        {"a.jsonl": box(0.1, 0.1, 0.5, 0.5, desc="<|box_end|>")},
        ["a.jsonl"],
        "control token <|box_end|>",
    ),
    "Python's dictionaries instead of JSON": ({"a.jsonl": str(RECORD)}, ["a.jsonl"], "not JSON"),
    "YOLO without names": (yolo(names=""), ["y"], "add data.yaml with `names`, or classes.txt"),
    "a YOLO class beyond the names": (yolo("3 .5 .5 .2 .2"), ["y"], "class 3 has no name: there are 1, counted from 0"),
    "YOLO in pixels": (
        yolo("0 30 30 20 20"),
        ["y"],
        "expected fractions of the image, found [30.0, 30.0, 20.0, 20.0]: pixels?",
    ),
    "YOLO with photographs of a telephone": (
        yolo(image="a.HEIC", content=b"ftypheic"),
        ["y"],
        "no images found there; 1 such as a.HEIC have a format that is not read: convert them to JPEG",
    ),
    "an address as the path of an image": (
        {"a.json": coco(images=[COCO["images"][0] | {"file_name": "https://x.org/not-here.png"}])},
        A,
        "an address is not fetched: download the image",
    ),
    "VOC XML cut off": ({"v/Annotations/a.xml": VOC[:99]}, ["v", "images"], "text that is not XML"),
    "a CSV without a box": (
        {"a.csv": "filename,class\na.png,cat\n"},
        ["a.csv"],
        "expected a header with an image column",
    ),
    "a CSV with words for numbers": (
        {"a.csv": HEADER + "a.png,cat,left,4,36,36\n"},
        ["a.csv"],
        "a.csv:2: expected a number, found 'left'",
    ),
    "a YAML without names": ({"data.yaml": "train: images\n"}, ["data.yaml"], "expected annotations (Pascal VOC XML, "),
    "the wrong --format": ({"a.json": coco()}, [*A, "--format", "voc"], "text that is not XML"),
    **{
        f"--format {name} for a folder without it": ({"d/": ""}, ["d", "--format", name], f"d: expected {told}")
        for name, told in {
            "vg": "objects.json or region_descriptions.json in this folder, found neither",
            "refcoco": "refs*.json in this folder, found none",
            "swift": "a file of records, found a folder",
            "qwen": "a file of records, found a folder",
        }.items()
    },
    "a format that there is not": ({"a.json": coco()}, [*A, "--format", "pascal"], "expected auto or one of voc, "),
    "a path out of the folder": (
        {"d/a.jsonl": record(image="../images/a.png")},
        ["d/a.jsonl"],
        "allow that (--allow-outside)",
    ),
    "conversations without boxes": (
        {"a.jsonl": '{"messages": [{"role": "user", "content": "hi"}], "objects": {}}\n'},
        ["a.jsonl"],
        "a conversation without boxes: there is nothing to detect in it",
    ),
    "a file that is no text": ({"a.json": b"\x93NUMPY\x01\x00"}, A, "not UTF-8 text"),
    "a split of all": ({"a.json": coco()}, [*A, "--split", "1"], "no image was assigned to train.jsonl"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_with_data_is_told(place, prepared, mistake):
    files, words, told = MISTAKES[mistake]
    code = 0 if told.startswith("1 record") else 2
    for name, content in files.items():
        path = place / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if content is None:
            Image.new("RGB", (64, 48)).save(path)
        elif not name.endswith("/"):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found, said = prepared(*words, "--out", "out")
    assert told in said
    assert found == code
    assert "Traceback" not in said
    assert (place / "out").exists() == (code == 0)
    assert not list(place.glob(".*"))


def test_photo_turned_by_exif_is_told_when_its_boxes_are_not(place, prepared):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (64, 48)).save(place / "images" / "a.png", exif=exif)
    (place / "a.json").write_text(coco())
    code, said = prepared("a.json", "images", "--out", "out")
    assert code == 2
    assert "the file has 48 x 64; that is its size before the EXIF orientation is applied, which training does" in said
    assert "remove the orientation from the file" in said


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2", "xz", "tar", "tar.gz", "csv.gz"])
def test_archive_is_to_be_unpacked(place, prepared, kind):
    import bz2
    import gzip
    import io
    import lzma
    import tarfile
    import zipfile

    data = coco().encode() if kind != "csv.gz" else random.Random(0).randbytes(9999) + b",\r;\n" * 99
    if kind == "zip":
        with zipfile.ZipFile(place / "a.zip", "w") as archive:
            archive.writestr("a.json", data)
    else:
        if "tar" in kind:
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                archive.addfile(tarfile.TarInfo("data, of mine/a.json"), io.BytesIO())
            data = packed.getvalue()
        pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.get(kind.rsplit(".", 1)[-1], bytes)
        (place / f"a.{kind}").write_bytes(pack(data))
    code, said = prepared(f"a.{kind}", "images", "--out", "out")
    assert code == 2 and f"a.{kind}: an archive; unpack it" in said


def test_table_that_no_reader_can_read_is_told_with_its_line(place, prepared):
    rows = ["image,label,xmin,ymin,xmax,ymax", "a.png,cat,1,1,9,9", f"a.png,{'x' * 200_000},1,1,9,9"]
    (place / "a.csv").write_text("\n".join(rows))
    code, said = prepared("a.csv", "images", "--out", "out")
    assert code == 2 and "a.csv:3: expected a row of a table" in said and "Traceback" not in said


def test_damaged_parquet_is_named(place, prepared):
    (place / "a.parquet").write_bytes(b"PAR1\x15\x04")
    code, said = prepared("a.parquet", "--out", "out")
    assert code == 2 and "a.parquet: cannot be read" in said and "Traceback" not in said
