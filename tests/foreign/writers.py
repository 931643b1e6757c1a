"""Writes one small truth with other tools; runs in their environment, and knows nothing of this project.

    python writers.py FOLDER

FOLDER has `images`, `truth.json` (COCO) and `tasks.json` (Label Studio). Each writer gets a folder of its own below
`written`. It prints `{writer: error}`, with an empty text for those that wrote.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import traceback
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np

UNUSED = {
    "pylabel": "ipywidgets jupyter_bbox_widget IPython",
    "labelimg": "PyQt5",
    "labelme": "imgviz loguru onnxruntime tifffile",
    "megadetector": "clipboard humanfriendly jsonpickle pytest send2trash torch torchvision",
    "scalabel": "boto3 botocore motmetrics nanoid plyfile skimage toml",
    "dtlpy": "aiohttp bson dictdiffer diskcache filelock fuzzyfinder inquirer pathspec redis requests_toolbelt "
    "tabulate validators webvtt",
    "supervisely": "aiofiles bidict httpx magic nrrd prettytable pydicom pythonjsonlogger SimpleITK trimesh numerize "
    "supervisely.app supervisely.api supervisely.nn supervisely.volume supervisely.cli",
}
"""Modules that tools import for windows, servers and other formats, none of which their writers use."""


class Unused(MetaPathFinder, Loader):
    """Finds these modules, which do nothing, so that their packages need not be installed."""

    names = frozenset(" ".join(UNUSED.values()).split())

    def find_spec(self, fullname, path=None, target=None):
        parts = fullname.split(".")
        is_unused = not self.names.isdisjoint(".".join(parts[:n]) for n in range(1, len(parts) + 1))
        return ModuleSpec(fullname, self, is_package=True) if is_unused else None

    def create_module(self, spec):
        return MagicMock(__path__=[], __name__=spec.name, __spec__=spec)

    def exec_module(self, module):
        """Do nothing."""


sys.meta_path.insert(0, Unused())

SIZE = (100, 80)
MASK = np.zeros((80, 100), bool)
"""A dog from (10, 20) to (40, 60) with a hole."""
MASK[20:60, 10:40] = True
MASK[30:50, 20:30] = False
LABELS = (
    '<View><Image name="image" value="$image"/><RectangleLabels name="label" toName="image">'
    '<Label value="cat"/><Label value="dog"/></RectangleLabels></View>'
)
OUTLINE = [10, 20, 40, 20, 40, 60, 10, 60]


def supervision_set(root: Path, mask: bool = False):
    import supervision

    if not mask:
        return supervision.DetectionDataset.from_coco(str(root / "images"), str(root / "truth.json"))
    found = supervision.Detections(
        np.array([[10.0, 20, 40, 60]]), mask=MASK[None], class_id=np.array([0]), confidence=None
    )
    name = str(root / "images" / "a.jpg")
    return supervision.DetectionDataset(["dog"], [name], {name: found})


def supervision_coco(root: Path, out: Path) -> None:
    supervision_set(root).as_coco(annotations_path=str(out / "a.json"))


def supervision_yolo(root: Path, out: Path) -> None:
    places = {"annotations_directory_path": str(out / "labels"), "data_yaml_path": str(out / "data.yaml")}
    supervision_set(root).as_yolo(images_directory_path=str(out / "images"), **places)


def supervision_voc(root: Path, out: Path) -> None:
    supervision_set(root).as_pascal_voc(annotations_directory_path=str(out / "Annotations"))


def supervision_hole(root: Path, out: Path) -> None:
    supervision_set(root, mask=True).as_coco(annotations_path=str(out / "a.json"))


def supervision_outline(root: Path, out: Path) -> None:
    places = {"annotations_directory_path": str(out / "labels"), "data_yaml_path": str(out / "data.yaml")}
    supervision_set(root, mask=True).as_yolo(images_directory_path=str(out / "images"), **places)


def supervision_mask_box(root: Path, out: Path) -> None:
    import supervision

    box = supervision.mask_to_xyxy(MASK[None])[0].tolist()
    (out / "box.json").write_text(json.dumps(box))


def datumaro_set(root: Path):
    import shutil

    from datumaro import Dataset

    place = root / "datumaro"
    if not place.is_dir():
        (place / "annotations").mkdir(parents=True)
        shutil.copy(root / "truth.json", place / "annotations" / "instances_train.json")
        shutil.copytree(root / "images", place / "images" / "train")
    return Dataset.import_from(str(place), "coco_instances")


def datumaro_coco(root: Path, out: Path) -> None:
    datumaro_set(root).export(str(out), "coco_instances", save_media=True)


def datumaro_yolo(root: Path, out: Path) -> None:
    datumaro_set(root).export(str(out), "yolo", save_media=True)


def datumaro_voc(root: Path, out: Path) -> None:
    datumaro_set(root).export(str(out), "voc_detection", save_media=True)


def datumaro_labelme(root: Path, out: Path) -> None:
    datumaro_set(root).export(str(out), "label_me", save_media=True)


def datumaro_kitti(root: Path, out: Path) -> None:
    datumaro_set(root).export(str(out), "kitti_detection", save_media=True)


def datumaro_dota(root: Path, out: Path) -> None:
    from datumaro import Dataset, DatasetItem, Image
    from datumaro.components.annotation import RotatedBbox

    items = [
        DatasetItem(
            Path(name).stem,
            subset="train",
            media=Image.from_file(str(root / "images" / name)),
            annotations=[
                RotatedBbox((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, 0, label=("cat", "dog").index(label))
                for label, x1, y1, x2, y2 in boxes
            ],
        )
        for name, boxes in each_image(root)
    ]
    Dataset.from_iterable(items, categories=["cat", "dog"]).export(str(out), "dota", save_media=True)


def datumaro_polygons(root: Path, out: Path) -> None:
    from datumaro import Bbox, Dataset, DatasetItem, Image, Polygon

    shapes = [Polygon(OUTLINE, label=0), Bbox(70, 60, 30, 20, label=1)]
    item = DatasetItem("a", subset="train", media=Image.from_file(str(root / "images" / "a.jpg")), annotations=shapes)
    Dataset.from_iterable([item], categories=["cat", "dog"]).export(str(out), "yolo", save_media=True)


def datumaro_merged(root: Path, out: Path) -> None:
    import shutil

    from datumaro import Dataset, HLOps

    document = json.loads((root / "truth.json").read_text())
    sets = []
    for image in document["images"][:2]:  # each a set of its own, whose ids begin with 1
        place = out / image["file_name"]
        (place / "annotations").mkdir(parents=True)
        (place / "images" / "train").mkdir(parents=True)
        shutil.copy(root / "images" / image["file_name"], place / "images" / "train")
        rows = [row for row in document["annotations"] if row["image_id"] == image["id"]]
        own = [{**row, "id": n, "image_id": 1} for n, row in enumerate(rows, 1)]
        part = {**document, "images": [{**image, "id": 1}], "annotations": own}
        (place / "annotations" / "instances_train.json").write_text(json.dumps(part))
        sets.append(Dataset.import_from(str(place), "coco_instances"))
    HLOps.merge(*sets, merge_policy="union").export(str(out / "both"), "coco_instances")


def labelformat_reader(root: Path):
    from labelformat.formats import COCOObjectDetectionInput

    return COCOObjectDetectionInput(root / "truth.json")


def labelformat_coco(root: Path, out: Path) -> None:
    from labelformat.formats import COCOObjectDetectionOutput

    COCOObjectDetectionOutput(out / "a.json").save(labelformat_reader(root))


def labelformat_yolo(root: Path, out: Path) -> None:
    from labelformat.formats import YOLOv8ObjectDetectionOutput

    YOLOv8ObjectDetectionOutput(out / "data.yaml", "train").save(labelformat_reader(root))


def labelformat_voc(root: Path, out: Path) -> None:
    from labelformat.formats import PascalVOCObjectDetectionOutput

    PascalVOCObjectDetectionOutput(out / "Annotations").save(labelformat_reader(root))


def globox_set(root: Path):
    from globox import AnnotationSet

    return AnnotationSet.from_coco(root / "truth.json")


def globox_coco(root: Path, out: Path) -> None:
    globox_set(root).save_coco(out / "a.json", auto_ids=True)


def globox_yolo(root: Path, out: Path) -> None:
    numbers = {"cat": 0, "dog": 1}
    globox_set(root).save_yolo_v5(out / "labels", label_to_id=numbers)
    (out / "data.yaml").write_text("names: [cat, dog]\ntrain: images\n")


def globox_voc(root: Path, out: Path) -> None:
    globox_set(root).save_pascal_voc(out / "Annotations")


def globox_labelme(root: Path, out: Path) -> None:
    globox_set(root).save_labelme(out / "labelme")


def globox_via(root: Path, out: Path) -> None:
    globox_set(root).save_via_json(out / "a.json", image_folder=root / "images", label_key="label")


def globox_openimages(root: Path, out: Path) -> None:
    globox_set(root).save_openimage(out / "a.csv")


def sahi_yolo(root: Path, out: Path) -> None:
    from sahi.utils.coco import Coco

    dataset = Coco.from_coco_dict_or_path(str(root / "truth.json"), image_dir=str(root / "images"))
    dataset.export_as_yolo(output_dir=str(out), train_split_rate=1.0)


def sahi_coco(root: Path, out: Path) -> None:
    from sahi.utils.coco import Coco

    dataset = Coco.from_coco_dict_or_path(str(root / "truth.json"))
    (out / "a.json").write_text(json.dumps(dataset.json))


def pylabel_set(root: Path):
    from pylabel import importer

    return importer.ImportCoco(str(root / "truth.json"), path_to_images=str(root / "images"))


def pylabel_coco(root: Path, out: Path) -> None:
    pylabel_set(root).export.ExportToCoco(str(out / "a.json"))


def pylabel_yolo(root: Path, out: Path) -> None:
    pylabel_set(root).export.ExportToYoloV5(str(out / "labels"), yaml_file="data.yaml")


def pylabel_voc(root: Path, out: Path) -> None:
    (out / "Annotations").mkdir()
    pylabel_set(root).export.ExportToVoc(str(out / "Annotations"))


def imgann_voc(root: Path, out: Path) -> None:
    import imgann

    (out / "Annotations").mkdir()
    imgann.Convertor.coco2voc(str(root / "images"), str(root / "truth.json"), str(out / "Annotations"))


def imgann_csv(root: Path, out: Path) -> None:
    import imgann

    imgann.Convertor.coco2csv(str(root / "images"), str(root / "truth.json"), str(out / "a.csv"))


def labelstudio(root: Path, out: Path, form: str, tasks: str = "tasks.json") -> None:
    from label_studio_sdk.converter import Converter

    converter = Converter(LABELS, str(out), download_resources=False)
    write = getattr(converter, f"convert_to_{form}")
    write(str(root / tasks), str(out), is_dir=False)


def labelstudio_coco(root: Path, out: Path) -> None:
    labelstudio(root, out, "coco")


def labelstudio_yolo(root: Path, out: Path) -> None:
    labelstudio(root, out, "yolo")


def labelstudio_voc(root: Path, out: Path) -> None:
    labelstudio(root, out, "voc")


def labelstudio_json_min(root: Path, out: Path) -> None:
    from label_studio_sdk.converter import Converter

    Converter(LABELS, str(out)).convert_to_json_min(str(root / "tasks.json"), str(out), is_dir=False)


def labelstudio_turned_coco(root: Path, out: Path) -> None:
    labelstudio(root, out, "coco", "turned.json")


def labelstudio_turned_yolo(root: Path, out: Path) -> None:
    labelstudio(root, out, "yolo", "turned.json")


def labelstudio_turned_obb(root: Path, out: Path) -> None:
    from label_studio_sdk.converter import Converter

    Converter(LABELS, str(out), download_resources=False).convert_to_yolo(
        str(root / "turned.json"), str(out), is_dir=False, is_obb=True
    )


def labelstudio_turned_voc(root: Path, out: Path) -> None:
    labelstudio(root, out, "voc", "turned.json")


def darwin_files(root: Path):
    from darwin.datatypes import AnnotationFile, make_bounding_box

    document = json.loads((root / "truth.json").read_text())
    names = {row["id"]: row["name"] for row in document["categories"]}
    for number, image in enumerate(document["images"]):
        rows = [row for row in document["annotations"] if row["image_id"] == image["id"]]
        boxes = [make_bounding_box(names[row["category_id"]], *row["bbox"]) for row in rows]
        classes = {box.annotation_class for box in boxes}
        yield AnnotationFile(
            path=root / f"{image['file_name']}.json",
            filename=image["file_name"],
            annotation_classes=classes,
            annotations=boxes,
            image_width=image["width"],
            image_height=image["height"],
            dataset_name="set",
            seq=number,
        )


def darwin_coco(root: Path, out: Path) -> None:
    from darwin.exporter.formats import coco

    coco.export(darwin_files(root), out)


def darwin_yolo(root: Path, out: Path) -> None:
    from darwin.exporter.formats import yolo

    yolo.export(darwin_files(root), out)


def darwin_voc(root: Path, out: Path) -> None:
    from darwin.exporter.formats import pascalvoc

    pascalvoc.export(darwin_files(root), out)


def labelme2coco_coco(root: Path, out: Path) -> None:
    import labelme2coco

    globox_set(root).save_labelme(out / "labelme")
    for path in (out / "labelme").glob("*.json"):
        record = json.loads(path.read_text())
        record["imagePath"] = f"{path.stem}.jpg"
        path.write_text(json.dumps(record))
        (out / "labelme" / f"{path.stem}.jpg").write_bytes((root / "images" / f"{path.stem}.jpg").read_bytes())
    labelme2coco.convert(str(out / "labelme"), str(out))


def imantics_yolo(root: Path, out: Path) -> None:
    import shutil

    import imantics

    image = imantics.Image(np.zeros((80, 100, 3), np.uint8))
    image.add(imantics.BBox((10, 20, 40, 60)), imantics.Category("cat"))
    (out / "labels").mkdir()
    (out / "labels" / "a.txt").write_text("".join(f"{row}\n" for row in image.yolo()))
    shutil.copytree(root / "images", out / "images")
    (out / "data.yaml").write_text("train: images\nnames: [none, cat]\n")


def pascalvocwriter_voc(root: Path, out: Path) -> None:
    from pascal_voc_writer import Writer

    (out / "Annotations").mkdir()
    for image, name in (("a.jpg", "cat"), ("b.jpg", "cat & dog")):
        writer = Writer(str(root / "images" / image), *SIZE)
        writer.addObject(name, 11, 21, 40, 60)
        writer.save(str(out / "Annotations" / image.replace(".jpg", ".xml")))


def each_image(root: Path):
    """Yield the name of each image of the truth, and its labels with their corners."""
    document = json.loads((root / "truth.json").read_text())
    names = {row["id"]: row["name"] for row in document["categories"]}
    for image in document["images"]:
        rows = [row for row in document["annotations"] if row["image_id"] == image["id"]]
        corners = [(x, y, x + w, y + h) for x, y, w, h in (row["bbox"] for row in rows)]
        yield image["file_name"], [(names[row["category_id"]], *box) for row, box in zip(rows, corners, strict=True)]


def labelimg_shapes(root: Path, out: Path, write: str, suffix: str, *further) -> None:
    from types import SimpleNamespace

    from libs import labelFile

    class Picture(SimpleNamespace):
        """What is asked of the image that Qt has loaded."""

    labelFile.QImage = Picture
    picture = Picture(height=lambda: SIZE[1], width=lambda: SIZE[0], isGrayscale=lambda: False)
    for name, boxes in each_image(root):
        shapes = [
            {"label": label, "difficult": False, "points": [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]}
            for label, x1, y1, x2, y2 in boxes
        ]
        place = out / Path(name).with_suffix(suffix)
        getattr(labelFile.LabelFile(), write)(str(place), shapes, str(root / "images" / name), picture, *further)


def labelimg_voc(root: Path, out: Path) -> None:
    labelimg_shapes(root, out, "save_pascal_voc_format", ".xml")


def labelimg_yolo(root: Path, out: Path) -> None:
    labelimg_shapes(root, out, "save_yolo_format", ".txt", ["cat", "dog"])


def kili_voc(root: Path, out: Path) -> None:
    from kili_formats.format.voc import convert_from_kili_to_voc_format

    for name, boxes in each_image(root):
        rows = []
        for label, x1, y1, x2, y2 in boxes:
            corners = [{"x": x / SIZE[0], "y": y / SIZE[1]} for x, y in ((x1, y2), (x1, y1), (x2, y1), (x2, y2))]
            rows.append({"boundingPoly": [{"normalizedVertices": corners}], "categories": [{"name": label}]})
        text = convert_from_kili_to_voc_format({"JOB": {"annotations": rows}}, *SIZE, {"filename": name}, None)
        (out / Path(name).with_suffix(".xml")).write_text(text)


def dtlpy_voc(root: Path, out: Path) -> None:
    from types import SimpleNamespace

    from dtlpy.utilities.annotations.annotation_converters import DtlpyToVoc

    for name, boxes in each_image(root):
        item = SimpleNamespace(filename=f"/{name}", width=SIZE[0], height=SIZE[1], metadata={"system": {}})
        annotations = [
            {"type": "box", "label": label, "coordinates": [{"x": x1, "y": y1}, {"x": x2, "y": y2}]}
            for label, x1, y1, x2, y2 in boxes
        ]
        converter = DtlpyToVoc(project_name="", dataset_name="", output_directory=str(out), remote_path="")
        converter.convert_single_file(item, annotations, str(out), converter.params)


def supervisely_annotations(root: Path):
    """Return the meta data of a project, and the name and the annotation of each image."""
    from supervisely import Annotation, Label, ObjClass, ProjectMeta, Rectangle

    classes = {name: ObjClass(name, Rectangle) for name in ("cat", "dog")}
    annotations = {
        name: Annotation(
            (SIZE[1], SIZE[0]),
            [Label(Rectangle(y1, x1, y2 - 1, x2 - 1), classes[label]) for label, x1, y1, x2, y2 in boxes],
        )  # the last pixel, and not the edge, as a mask has it
        for name, boxes in each_image(root)
    }
    return ProjectMeta(list(classes.values())), annotations


def supervisely_voc(root: Path, out: Path) -> None:
    from supervisely.convert.image.pascal_voc.pascal_voc_helper import sly_ann_to_pascal_voc

    _, annotations = supervisely_annotations(root)
    for name, annotation in annotations.items():
        sly_ann_to_pascal_voc(annotation, name)[0].write(str(out / Path(name).with_suffix(".xml")), pretty_print=True)


def supervisely_coco(root: Path, out: Path) -> None:
    from supervisely.convert.image.coco.coco_helper import sly_ann_to_coco

    meta, annotations = supervisely_annotations(root)
    numbers = {item.name: number for number, item in enumerate(meta.obj_classes, start=1)}
    rows, images = [], []
    for number, (name, annotation) in enumerate(annotations.items(), start=1):
        images.append({"id": number, "file_name": name, "width": SIZE[0], "height": SIZE[1]})
        sly_ann_to_coco(annotation, number, numbers, coco_ann=rows, last_label_id=len(rows))
    categories = [{"id": number, "name": name} for name, number in numbers.items()]
    (out / "a.json").write_text(json.dumps({"images": images, "categories": categories, "annotations": rows}))


def supervisely_yolo(root: Path, out: Path) -> None:
    import shutil

    from supervisely.convert.image.yolo.yolo_helper import save_yolo_config, sly_ann_to_yolo

    meta, annotations = supervisely_annotations(root)
    shutil.copytree(root / "images", out / "images" / "train")
    (out / "labels" / "train").mkdir(parents=True)
    logging.disable(logging.INFO)
    names = [item.name for item in meta.obj_classes]
    for name, annotation in annotations.items():
        lines = sly_ann_to_yolo(annotation, names)
        (out / "labels" / "train" / Path(name).with_suffix(".txt")).write_text("\n".join(lines))
    save_yolo_config(meta, str(out))


def scalabel_frames(root: Path):
    from scalabel.label.typing import Box2D, Frame, Label

    none = dict.fromkeys(("box3d", "poly2d", "rle", "graph"))
    for name, boxes in each_image(root):
        labels = [
            Label(id=str(n), category=label, box2d=Box2D(x1=x1, y1=y1, x2=x2, y2=y2), **none)
            for n, (label, x1, y1, x2, y2) in enumerate(boxes)
        ]
        yield Frame(name=name, url=None, labels=labels)


def scalabel_coco(root: Path, out: Path) -> None:
    from scalabel.label.to_coco import scalabel2coco_detection
    from scalabel.label.typing import Category, Config, ImageSize

    categories = [Category(name=name, subcategories=None, color=None) for name in ("cat", "dog")]
    config = Config.model_construct(imageSize=ImageSize(width=SIZE[0], height=SIZE[1]), categories=categories)
    (out / "a.json").write_text(json.dumps(scalabel2coco_detection(list(scalabel_frames(root)), config)))


def scalabel_json(root: Path, out: Path) -> None:
    from scalabel.label.io import save
    from scalabel.label.typing import Dataset

    save(str(out / "a.json"), Dataset(frames=list(scalabel_frames(root)), groups=None, config=None))


def labelformat_kitti(root: Path, out: Path) -> None:
    from labelformat.formats import KittiObjectDetectionOutput

    KittiObjectDetectionOutput(out / "labels").save(labelformat_reader(root))


def megadetector_json(root: Path, out: Path) -> None:
    from megadetector.detection.run_detector_batch import write_results_to_file

    results = [
        {
            "file": name,
            "detections": [
                {"category": "1", "conf": 0.9, "bbox": [x1 / 100, y1 / 80, (x2 - x1) / 100, (y2 - y1) / 80]}
                for _, x1, y1, x2, y2 in boxes
            ],
        }
        for name, boxes in each_image(root)
    ]
    write_results_to_file([*results, {"file": "d.jpg", "failure": "image access failure"}], str(out / "a.json"))


def mmdet_tool(name: str, *words: str) -> None:
    """Run a converter that MMDetection's wheel has beside its package, which need not be imported."""
    import subprocess
    from importlib.metadata import distribution

    script = distribution("mmdet").locate_file(f"mmdet/.mim/tools/dataset_converters/{name}.py")
    subprocess.run([sys.executable, str(script), *words], check=True, capture_output=True)


def mmdet_detection(root: Path, out: Path) -> None:
    (out / "truth.json").write_bytes((root / "truth.json").read_bytes())
    mmdet_tool("coco2odvg", str(out / "truth.json"), "--output", str(out / "a.jsonl"), "--dataset", "coco")


def mmdet_grounding(root: Path, out: Path) -> None:
    """A phrase of two parts, and one with two boxes."""
    caption = "a cat asleep by a dog"
    rows = [([[2, 5], [18, 21]], [10, 20, 30, 40]), ([[18, 21]], [70, 60, 30, 20]), ([[18, 21]], [0, 0, 20, 30])]
    annotations = [
        {"id": n, "image_id": 1, "bbox": box, "area": 600, "iscrowd": 0, "category_id": 1, "tokens_positive": spans}
        for n, (spans, box) in enumerate(rows)
    ]
    image = {"id": 1, "file_name": "a.jpg", "caption": caption, "width": SIZE[0], "height": SIZE[1]}
    document = {"images": [image], "annotations": annotations, "categories": [{"id": 1, "name": "object"}]}
    (out / "mdetr.json").write_text(json.dumps(document))
    mmdet_tool("goldg2odvg", str(out / "mdetr.json"), "--out-ann", str(out / "a.jsonl"))


def labelme_shape(label: str, points: list[tuple[float, float]], kind: str = "rectangle", group: int | None = None):
    rows = [list(map(float, point)) for point in points]
    return {"label": label, "points": rows, "group_id": group, "shape_type": kind, "flags": {}, "mask": None}


def labelme_files(root: Path, out: Path, shapes: dict[str, list]) -> None:
    from labelme import LabelFile

    for name, own in shapes.items():
        picture = {"image_height": SIZE[1], "image_width": SIZE[0], "image_data": (root / "images" / name).read_bytes()}
        LabelFile().save(str(out / Path(name).with_suffix(".json")), shapes=own, image_path=name, **picture)


def labelme_json(root: Path, out: Path) -> None:
    truth = each_image(root)
    labelme_files(root, out, {n: [labelme_shape(r[0], [r[1:3], r[3:]]) for r in boxes] for n, boxes in truth})


def labelme_groups(root: Path, out: Path) -> None:
    """Objects of several parts, and shapes of all kinds that have a box, with what the converter makes of them."""
    from labelme import LabelFile, utils

    shapes = [
        labelme_shape("cat", [(10, 20), (30, 60)], group=1),
        labelme_shape("cat", [(40, 30), (35, 40)], group=1),
        labelme_shape("dog", [(70, 60), (99, 79)], group=1),
        labelme_shape("__ignore__", [(0, 0), (5, 5)]),
        labelme_shape("cat", [(80, 5), (95, 5), (90, 15)], "polygon"),
        labelme_shape("dog", [(50, 20), (50, 26)], "circle"),
        labelme_shape("dog", [(20, 65), (30, 70), (25, 78), (15, 73)], "oriented_rectangle"),
    ]
    labelme_files(root, out, {"a.jpg": shapes})
    classes = {"__ignore__": -1, "_background_": 0, "cat": 1, "dog": 2}
    labels, parts = utils.shapes_to_label((SIZE[1], SIZE[0]), LabelFile(str(out / "a.json")).shapes, classes)
    found = []
    for number in range(1, parts.max() + 1):
        rows, columns = np.nonzero((parts == number) & (labels > 0))
        if len(rows):
            corners = columns.min(), rows.min(), columns.max(), rows.max()
            found.append([list(classes)[labels[rows[0], columns[0]] + 1], *map(int, corners)])
    (root / "labelme_objects.json").write_text(json.dumps(found))


def cocotoyolo_yolo(root: Path, out: Path) -> None:
    import shutil
    import subprocess

    (out / "set" / "annotations").mkdir(parents=True)
    shutil.copy(root / "truth.json", out / "set" / "annotations" / "annotations.json")
    shutil.copytree(root / "images", out / "set" / "images")
    program = Path(sys.executable).with_name("coco_to_yolo")
    words = [str(program), str(out / "set"), str(out / "yolo"), "--test_ratio", "0", "--val_ratio", "0"]
    subprocess.run(words, check=True, capture_output=True)


def kwcoco_coco(root: Path, out: Path) -> None:
    from kwcoco import CocoDataset

    CocoDataset(str(root / "truth.json")).dump(str(out / "a.json"))


_HELPERS = {"supervision_set", "datumaro_set", "globox_set", "pylabel_set", "darwin_files", "labelformat_reader"}
_HELPERS |= {
    "mmdet_tool",
    "scalabel_frames",
    "labelme_shape",
    "labelme_files",
    "each_image",
    "labelimg_shapes",
    "supervisely_annotations",
}


def writers() -> dict[str, Callable[[Path, Path], None]]:
    """Return the writers of this module by name: the tool and what it writes."""
    own = {name: value for name, value in globals().items() if getattr(value, "__module__", "") == __name__}
    return {name: value for name, value in own.items() if "_" in name and name not in _HELPERS}


def main() -> None:
    """Run each writer in a folder of its own."""
    root = Path(sys.argv[1]).resolve()
    errors: dict[str, str] = {}
    for name, write in writers().items():
        out = root / "written" / name
        out.mkdir(parents=True)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(out):
                write(root, out)
            errors[name] = ""
        except Exception:
            errors[name] = traceback.format_exc(limit=-3)
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
