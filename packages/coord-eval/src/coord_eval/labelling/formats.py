"""Exports predictions as pre-annotations for labelling tools.

Other shapes than boxes are written in each tool's own form: outlines as polygons, points and keypoints as keypoints.
VOC knows only boxes, and gets the bounding boxes of the shapes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from coord_codec.coco.reader import numbered
from coord_codec.files import write_text
from coord_eval.boxes.pixels import from_corners
from coord_eval.labelling.file_names import places_of
from coord_eval.labelling.objects import DetectedObject, one_line

Records = Sequence[Mapping[str, Any]]


def coco_results(records: Records, categories: Mapping[str, int | str] | None = None) -> list[dict[str, Any]]:
    """Return a COCO results list; with `categories`, objects of other labels are left out.

    In addition to the fields of COCO, `file_name` names the image and `category_name` the category; `score` joins by
    them where the ids are those of another file.
    """
    category_ids = categories if categories is not None else _categories(records)
    return [
        {
            "image_id": record["image_id"],
            "file_name": record["image"],
            "category_id": category_ids[item.label],
            "category_name": item.label,
            "bbox": _xywh(item.box),
            "score": item.score,
            **_coco_shape(item),
        }
        for record in records
        for item in _objects(record)
        if item.label in category_ids
    ]


def _objects(record: Mapping[str, Any]) -> list[DetectedObject]:
    objects = map(DetectedObject.from_record, record.get("objects", ()))
    return [replace(item, label=one_line(item.label) or "unnamed") for item in objects]


def _coco_shape(item: DetectedObject) -> dict[str, Any]:
    """Return the COCO fields of a shape other than a box; empty for a box."""
    if not item.points:
        return {}
    if item.outlined:
        return {"segmentation": [[value for point in item.points for value in point]]}
    visibilities = [2 if point in item.placed else 0 for point in item.points]
    values = [value for (x, y), v in zip(item.points, visibilities, strict=True) for value in (x, y, v)]
    return {"keypoints": values, "num_keypoints": len(item.placed)}


def _area(item: DetectedObject) -> float:
    """Return the area in square pixels: of the outline by the shoelace formula, else of the box."""
    if not item.outlined:
        x1, y1, x2, y2 = item.box
        return (x2 - x1) * (y2 - y1)
    edges = zip(item.points, (*item.points[1:], item.points[0]), strict=True)
    return abs(sum(xa * yb - xb * ya for (xa, ya), (xb, yb) in edges)) / 2


def _categories(records: Records) -> dict[str, int]:
    names = sorted({item.label for record in records for item in _objects(record)})
    return {name: number for number, name in enumerate(names, start=1)}


def _xywh(box: Sequence[float]) -> list[float]:
    return list(from_corners(np.array([box], np.float64))[0].tolist())


def coco_annotations(records: Records, folder: Path, categories: Mapping[str, int | str] | None = None) -> Path:
    """Write a COCO annotation file in which each annotation also has a `score`.

    Labels that `categories` does not have get the numbers above its ids, of which text of digits is one.
    """
    category_ids = dict(categories or {})
    for name in _categories(records):
        numbers = (number for number in map(numbered, category_ids.values()) if isinstance(number, int))
        category_ids.setdefault(name, max(numbers, default=0) + 1)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for record in records:
        size = {"width": record["width"], "height": record["height"]}
        images.append({"id": record["image_id"], "file_name": record["image"], **size})
        for item in _objects(record):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": record["image_id"],
                    "category_id": category_ids[item.label],
                    "bbox": _xywh(item.box),
                    "area": _area(item),
                    "iscrowd": 0,
                    "score": item.score,
                    **_coco_shape(item),
                }
            )
    entries: list[dict[str, Any]] = [{"id": number, "name": name} for name, number in category_ids.items()]
    if count := max((len(row["keypoints"]) // 3 for row in annotations if "keypoints" in row), default=0):
        points = {"keypoints": [f"point {n + 1}" for n in range(count)], "skeleton": []}
        entries = [entry | points for entry in entries]
    return _json(folder / "coco.json", {"images": images, "categories": entries, "annotations": annotations})


def _yolo(records: Records, folder: Path) -> Path:
    """Write data.yaml, classes.txt and a label file for each image: `class x y width height`, centre first, in [0, 1].

    The images belong into the folder `images`, which data.yaml names. An outline is `class x1 y1 x2 y2 ...` as in
    segmentation labels; points follow their box as x, y, visibility.
    """
    root, categories, counts_of_points = folder / "yolo", _categories(records), set[int]()
    places = places_of((record["image"] for record in records), root / "labels", ".txt")
    for record in records:
        lines = []
        width, height = record["width"], record["height"]
        for item in _objects(record):
            x, y, w, h = _xywh(item.box)
            numbers = [(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]
            if item.outlined:
                numbers = [value for x, y in item.points for value in (x / width, y / height)]
            words = [str(categories[item.label] - 1), *(f"{value:.6f}" for value in numbers)]
            if item.points and not item.outlined:
                counts_of_points.add(len(item.points))
                for x, y in item.points:
                    words += [f"{x / width:.6f}", f"{y / height:.6f}", "2" if (x, y) in item.placed else "0"]
            lines.append(" ".join(words))
        _write(places[record["image"]], "".join(f"{line}\n" for line in lines))
    write_text(root / "classes.txt", "".join(f"{name}\n" for name in categories))
    names = "".join(f"  {number}: {json.dumps(name)}\n" for number, name in enumerate(categories))
    shape = f"kpt_shape: [{counts_of_points.pop()}, 3]\n" if len(counts_of_points) == 1 else ""
    splits = "# Put the images into the folder images, beside labels.\ntrain: images\nval: images\n"
    write_text(root / "data.yaml", f"{splits}{shape}nc: {len(categories)}\nnames:{' {}' if not names else ''}\n{names}")
    return root


def _voc(records: Records, folder: Path) -> Path:
    """Write an XML file for each image; VOC counts pixels from 1 and includes the last one."""
    places = places_of((record["image"] for record in records), folder / "voc", ".xml")
    for record in records:
        parts = [
            ("filename", _printable(record["image"])),
            ("size", [("width", record["width"]), ("height", record["height"]), ("depth", 3)]),
        ]
        for item in _objects(record):
            x1, y1, x2, y2 = map(round, item.box)
            x1, y1 = min(x1, record["width"] - 1), min(y1, record["height"] - 1)  # at least the last pixel
            box = [("xmin", x1 + 1), ("ymin", y1 + 1), ("xmax", max(x2, x1 + 1)), ("ymax", max(y2, y1 + 1))]
            parts.append(("object", [("name", item.label), ("score", f"{item.score:.4f}"), ("bndbox", box)]))
        _xml(places[record["image"]], _element("annotation", parts))
    (folder / "voc").mkdir(exist_ok=True)  # when there are no images
    return folder / "voc"


def labelstudio_tasks(records: Records, folder: Path, prefix: str = "") -> Path:
    """Write tasks with predictions for the import of Label Studio.

    Args:
        records: records of predictions.jsonl with `objects`
        folder: the folder of `labelstudio.json`
        prefix: what stands before the path of each image, such as `/data/local-files/?d=photos/`, from which Label
            Studio loads it: it knows no paths of this machine
    """
    tasks = [
        {"data": {"image": f"{prefix}{record['image']}"}, "predictions": [labelstudio_prediction(record, "coordexp")]}
        for record in records
    ]
    return _json(folder / "labelstudio.json", tasks)


def labelstudio_prediction(
    record: Mapping[str, Any], version: str, from_name: str = "label", to_name: str = "image"
) -> dict[str, Any]:
    """Return a record as a prediction of Label Studio, whose values are percentages of the image.

    Args:
        record: a record of predictions.jsonl with `objects`, `width` and `height`
        version: the model's version
        from_name: name of the control in the labelling configuration
        to_name: name of its image
    """
    size = (record["width"], record["height"])
    objects = _objects(record)
    regions = [(item, *region) for item in objects for region in _labelstudio_values(item, size)]
    result = [
        {
            "id": str(number),
            "type": kind,
            "from_name": from_name,
            "to_name": to_name,
            "original_width": size[0],
            "original_height": size[1],
            "image_rotation": 0,
            "score": item.score,
            "value": value | {kind: [item.label]},
        }
        for number, (item, kind, value) in enumerate(regions)
    ]
    return {"model_version": version, "score": min((item.score for item in objects), default=0.0), "result": result}


def _labelstudio_values(item: DetectedObject, size: tuple[int, int]) -> list[tuple[str, dict[str, Any]]]:
    """Return the regions of an object with their types: one region, or one for each point."""
    points = [(100 * x / size[0], 100 * y / size[1]) for x, y in item.placed]
    if item.outlined:
        return [("polygonlabels", {"points": [list(point) for point in points]})]
    if item.points:
        return [("keypointlabels", {"x": x, "y": y, "width": 0.5}) for x, y in points]
    x, y, w, h = _xywh(item.box)
    corner = {"x": 100 * x / size[0], "y": 100 * y / size[1]}
    return [("rectanglelabels", corner | {"width": 100 * w / size[0], "height": 100 * h / size[1], "rotation": 0})]


def fiftyone_samples(records: Records) -> list[dict[str, Any]]:
    """Return a record for each image whose items are arguments of `fo.Detection`, `fo.Polyline` or `fo.Keypoint`.

    The coordinates of an unplaced keypoint are NaN, as FiftyOne expects and Python's json reads.
    """
    samples = []
    for record in records:
        w, h = record["width"], record["height"]
        sample: dict[str, Any] = {"filepath": record["image"], "detections": []}
        for item in _objects(record):
            points = [[x / w, y / h] if (x, y) in item.placed else [math.nan, math.nan] for x, y in item.points]
            if not item.points:
                box = [a / b for a, b in zip(_xywh(item.box), (w, h, w, h), strict=True)]
                kind, fields = "detections", {"bounding_box": box, "confidence": item.score}
            elif item.outlined:
                outline = {"points": [points], "closed": True, "filled": True}
                kind, fields = "polylines", {**outline, "confidence": item.score}
            else:
                kind, fields = "keypoints", {"points": points, "confidence": [item.score] * len(points)}
            sample.setdefault(kind, []).append({"label": item.label, **fields})
        samples.append(sample)
    return samples


def _cvat(records: Records, folder: Path) -> Path:
    """Write `cvat.xml` in the form "CVAT for images 1.1", whose corners are in pixels.

    Other tools than CVAT need the labels in `meta`, and some take no declaration of the encoding, which is UTF-8.
    """
    task = [("name", "coordexp"), ("size", len(records)), ("mode", "annotation"), ("overlap", 0)]
    labels = [("label", [("name", name), ("attributes", [])]) for name in _categories(records)]
    root = _element("annotations", [("version", "1.1"), ("meta", [("task", [*task, ("labels", labels)])])])
    for number, record in enumerate(records):
        size = {"width": str(record["width"]), "height": str(record["height"])}
        name = _printable(record["image"])
        image = ElementTree.SubElement(root, "image", {"id": str(number), "name": name, **size})
        for item in _objects(record):
            kind = "polygon" if item.outlined else "points" if item.points else "box"
            place = {"points": ";".join(f"{x:.2f},{y:.2f}" for x, y in item.placed)}
            if kind == "box":
                corners = (f"{value:.2f}" for value in item.box)
                place = dict(zip(("xtl", "ytl", "xbr", "ybr"), corners, strict=True))
            common = {"label": item.label, "source": "auto", "occluded": "0", "z_order": "0"}
            ElementTree.SubElement(image, kind, common | place)
    return _xml(folder / "cvat.xml", root)


def _printable(name: str) -> str:
    return name if name.isprintable() else one_line(name)


def _element(name: str, content: Any) -> ElementTree.Element:
    """Return an element of a text, or of pairs of name and content."""
    element = ElementTree.Element(name)
    if isinstance(content, list):
        element.extend(_element(*part) for part in content)
    else:
        element.text = str(content)
    return element


def _xml(path: Path, root: ElementTree.Element) -> Path:
    ElementTree.indent(root)
    return _write(path, ElementTree.tostring(root, encoding="unicode") + "\n")


def _json(path: Path, content: Any) -> Path:
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return path


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


EXPORTS: Mapping[str, Callable[[Records, Path], Path]] = {
    "coco": coco_annotations,
    "yolo": _yolo,
    "voc": _voc,
    "labelstudio": labelstudio_tasks,
    "fiftyone": lambda records, folder: _json(folder / "fiftyone.json", fiftyone_samples(records)),
    "cvat": _cvat,
}
"""Export functions by format."""
