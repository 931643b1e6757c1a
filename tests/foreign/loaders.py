"""Loads our exports with other tools; runs in their environment, and knows nothing of this project.

    python loaders.py FOLDER

FOLDER has `images` and one entry for each export. It prints the boxes of each pair of tool and export as JSON:
`{"tool export": {image: [[label, x1, y1, x2, y2], ...]}}` in pixels that count from 0, or the error as text.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

for widget in ("ipywidgets", "jupyter_bbox_widget", "IPython", "IPython.display"):
    sys.modules.setdefault(widget, MagicMock())  # pylabel imports them for a page that is not used

Boxes = dict[str, list[list]]


def tree(root: Path, files: dict[str, Path]) -> Path:
    """Copy files and folders to the places where a tool looks for them."""
    for name, source in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, place, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, place)
    return root


def of_supervision(dataset) -> Boxes:
    found: Boxes = {}
    for path, _, detections in dataset:
        rows = zip(detections.class_id.tolist(), detections.xyxy.tolist(), strict=True)
        found[Path(path).name] = [[dataset.classes[number], *box] for number, box in rows]
    return found


def of_datumaro(path: Path, format: str) -> Boxes:
    from datumaro import Dataset

    dataset = Dataset.import_from(str(path), format)
    labels = dataset.categories()[next(iter(dataset.categories()))]
    found: Boxes = {}
    for item in dataset:
        boxes = [row for row in item.annotations if row.type.name == "bbox"]
        rows = [[labels[row.label].name, *row.points] for row in boxes]
        found[f"{Path(item.id).name}.jpg"] = rows
    return found


def of_labelformat(reader) -> Boxes:
    found: Boxes = {}
    for row in reader.get_labels():
        boxes = [(o.category.name, o.box) for o in row.objects]
        found[Path(row.image.filename).name] = [[name, b.xmin, b.ymin, b.xmax, b.ymax] for name, b in boxes]
    return found


def of_globox(annotations, names: list[str] | None = None) -> Boxes:
    def name(label):
        return names[int(label)] if names else label

    return {
        Path(str(image.image_id)).name: [[name(b.label), b.xmin, b.ymin, b.xmax, b.ymax] for b in image.boxes]
        for image in annotations
    }


def of_coco_tables(dataset) -> Boxes:
    """Return the boxes of an object with the methods of pycocotools' COCO."""
    found: Boxes = {}
    for image in dataset.loadImgs(dataset.getImgIds()):
        found[image["file_name"]] = []
        for row in dataset.loadAnns(dataset.getAnnIds(imgIds=[image["id"]])):
            x, y, width, height = row["bbox"]
            label = dataset.loadCats([row["category_id"]])[0]["name"]
            found[image["file_name"]].append([label, x, y, x + width, y + height])
    return found


def of_pylabel(dataset) -> Boxes:
    found: Boxes = {}
    for row in dataset.df.to_dict("records"):
        boxes = found.setdefault(row["img_filename"], [])
        if row["cat_name"]:
            sides = ("ann_bbox_xmin", "ann_bbox_ymin", "ann_bbox_xmax", "ann_bbox_ymax")
            boxes.append([row["cat_name"], *(float(row[side]) for side in sides)])
    return found


def supervision_coco(root: Path) -> Boxes:
    import supervision

    return of_supervision(supervision.DetectionDataset.from_coco(str(root / "images"), str(root / "coco.json")))


def supervision_yolo(root: Path) -> Boxes:
    import supervision

    yolo = root / "yolo"
    places = str(root / "images"), str(yolo / "labels"), str(yolo / "data.yaml")
    return of_supervision(supervision.DetectionDataset.from_yolo(*places))


def supervision_voc(root: Path) -> Boxes:
    import supervision

    return of_supervision(supervision.DetectionDataset.from_pascal_voc(str(root / "images"), str(root / "voc")))


def datumaro_coco(root: Path) -> Boxes:
    place = tree(Path(tempfile.mkdtemp()), {"annotations/instances_a.json": root / "coco.json"})
    return of_datumaro(tree(place, {"images/a": root / "images"}), "coco_instances")


def datumaro_voc(root: Path) -> Boxes:
    place = tree(Path(tempfile.mkdtemp()), {"Annotations": root / "voc", "JPEGImages": root / "images"})
    (place / "ImageSets" / "Main").mkdir(parents=True)
    names = sorted(path.stem for path in (root / "voc").iterdir())
    (place / "ImageSets" / "Main" / "a.txt").write_text("\n".join(names))
    labels = ["background", *(root / "yolo" / "classes.txt").read_text().split()]
    (place / "labelmap.txt").write_text("".join(f"{label}:0,0,{n}::\n" for n, label in enumerate(labels)))
    return of_datumaro(place, "voc_detection")


def datumaro_yolo(root: Path) -> Boxes:
    place = tree(Path(tempfile.mkdtemp()), {".": root / "yolo", "images": root / "images"})
    return of_datumaro(place, "yolo")


def datumaro_cvat(root: Path) -> Boxes:
    place = tree(Path(tempfile.mkdtemp()), {"annotations.xml": root / "cvat.xml", "images": root / "images"})
    return of_datumaro(place, "cvat")


def labelformat_coco(root: Path) -> Boxes:
    from labelformat.formats import COCOObjectDetectionInput

    return of_labelformat(COCOObjectDetectionInput(root / "coco.json"))


def labelformat_yolo(root: Path) -> Boxes:
    from labelformat.formats import YOLOv8ObjectDetectionInput

    place = tree(Path(tempfile.mkdtemp()), {".": root / "yolo", "images": root / "images"})
    return of_labelformat(YOLOv8ObjectDetectionInput(place / "data.yaml", "train"))


def labelformat_voc(root: Path) -> Boxes:
    from labelformat.formats import PascalVOCObjectDetectionInput

    names = ",".join((root / "yolo" / "classes.txt").read_text().split("\n")[:-1])
    return of_labelformat(PascalVOCObjectDetectionInput(root / "voc", names))


def labelformat_cvat(root: Path) -> Boxes:
    from labelformat.formats import CVATObjectDetectionInput

    return of_labelformat(CVATObjectDetectionInput(root / "cvat.xml"))


def globox_coco(root: Path) -> Boxes:
    from globox import AnnotationSet

    return of_globox(AnnotationSet.from_coco(root / "coco.json"))


def globox_yolo(root: Path) -> Boxes:
    from globox import AnnotationSet

    names = (root / "yolo" / "classes.txt").read_text().splitlines()
    return of_globox(AnnotationSet.from_yolo_v5(root / "yolo" / "labels", image_folder=root / "images"), names)


def globox_voc(root: Path) -> Boxes:
    from globox import AnnotationSet

    return of_globox(AnnotationSet.from_pascal_voc(root / "voc"))


def globox_cvat(root: Path) -> Boxes:
    from globox import AnnotationSet

    return of_globox(AnnotationSet.from_cvat(root / "cvat.xml"))


def pycocotools_coco(root: Path) -> Boxes:
    from pycocotools.coco import COCO

    return of_coco_tables(COCO(str(root / "coco.json")))


def hotcoco_coco(root: Path) -> Boxes:
    from hotcoco import COCO

    return of_coco_tables(COCO(str(root / "coco.json")))


def lvis_coco(root: Path) -> Boxes:
    from lvis import LVIS

    dataset = LVIS(str(root / "coco.json"))
    found: Boxes = {image["file_name"]: [] for image in dataset.load_imgs(dataset.get_img_ids())}
    for row in dataset.load_anns(dataset.get_ann_ids()):
        x, y, width, height = row["bbox"]
        label = dataset.load_cats([row["category_id"]])[0]["name"]
        found[dataset.load_imgs([row["image_id"]])[0]["file_name"]].append([label, x, y, x + width, y + height])
    return found


def kwcoco_coco(root: Path) -> Boxes:
    from kwcoco import CocoDataset

    dataset = CocoDataset(str(root / "coco.json"))
    found: Boxes = {image["file_name"]: [] for image in dataset.imgs.values()}
    for row in dataset.anns.values():
        x, y, width, height = row["bbox"]
        label = dataset.cats[row["category_id"]]["name"]
        found[dataset.imgs[row["image_id"]]["file_name"]].append([label, x, y, x + width, y + height])
    return found


def sahi_coco(root: Path) -> Boxes:
    from sahi.utils.coco import Coco

    dataset = Coco.from_coco_dict_or_path(str(root / "coco.json"))
    found: Boxes = {}
    for image in dataset.images:
        boxes = [(row.category_name, row.bbox) for row in image.annotations]
        found[image.file_name] = [[name, x, y, x + w, y + h] for name, (x, y, w, h) in boxes]
    return found


def pylabel_coco(root: Path) -> Boxes:
    from pylabel import importer

    return of_pylabel(importer.ImportCoco(str(root / "coco.json"), path_to_images=str(root / "images")))


def pylabel_yolo(root: Path) -> Boxes:
    from pylabel import importer

    names = (root / "yolo" / "classes.txt").read_text().splitlines()
    labels = root / "yolo" / "labels"
    return of_pylabel(importer.ImportYoloV5(str(labels), cat_names=names, path_to_images="../../images"))


def pylabel_voc(root: Path) -> Boxes:
    from pylabel import importer

    return of_pylabel(importer.ImportVOC(str(root / "voc"), path_to_images=str(root / "images")))


def labelstudio_tasks(root: Path) -> Boxes:
    from label_studio_sdk.label_interface import LabelInterface

    tasks = json.loads((root / "labelstudio.json").read_text())
    labels = (root / "yolo" / "classes.txt").read_text().splitlines()
    rows = "".join(f'<Label value="{label}"/>' for label in labels)
    interface = LabelInterface(
        f'<View><Image name="image" value="$image"/><RectangleLabels name="label" toName="image">{rows}'
        "</RectangleLabels></View>"
    )
    found: Boxes = {}
    for task in tasks:
        boxes = found.setdefault(Path(task["data"]["image"]).name, [])
        for prediction in task["predictions"]:
            assert interface.validate_prediction(prediction)
            for region in prediction["result"]:
                value, width, height = region["value"], region["original_width"], region["original_height"]
                x, y = value["x"] * width / 100, value["y"] * height / 100
                corner = [x + value["width"] * width / 100, y + value["height"] * height / 100]
                boxes.append([value["rectanglelabels"][0], x, y, *corner])
    return found


LOADERS: dict[str, Callable[[Path], Boxes]] = {
    f"{tool} {form}": function
    for name, function in list(globals().items())
    if callable(function) and (tool := name.partition("_")[0]) and (form := name.partition("_")[2])
    if form in ("coco", "yolo", "voc", "cvat", "tasks") and tool != "of"
}


def main() -> None:
    """Print the boxes of all pairs."""
    root = Path(sys.argv[1])
    found: dict[str, Boxes | str] = {}
    for name, load in LOADERS.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found[name] = load(root)
        except Exception:  # noqa: PERF203 - of a tool of others, which is reported
            found[name] = traceback.format_exc(limit=-2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
