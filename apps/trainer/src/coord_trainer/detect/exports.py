"""Answers as annotations for the tools that people label with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from coord_codec import InputError
from coord_codec.files import write_text

Records = Sequence[Mapping[str, Any]]


def write_export(name: str, records: Records, folder: Path) -> Path:
    """Write answered records in the form of a labelling tool; returns the file or folder.

    Args:
        name: one of `EXPORTS`
        records: of predictions.jsonl, with `objects`
        folder: that it is written to

    Raises:
        InputError: there is no such form
    """
    if name not in EXPORTS:
        raise InputError(f"--export: expected one of {', '.join(EXPORTS)}, found {name!r}")
    return EXPORTS[name]([record for record in records if "objects" in record], folder)


def coco_results(records: Records, categories: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """Return a COCO results list; labels without a category are left out where categories are given."""
    known = categories if categories is not None else _categories(records)
    return [
        {
            "image_id": record["image_id"],
            "category_id": known[item["desc"]],
            "bbox": _xywh(item["bbox_xyxy"]),
            "score": item["score"],
        }
        for record in records
        for item in record.get("objects", ())
        if item["desc"] in known
    ]


def _categories(records: Records) -> dict[str, int]:
    names = sorted({item["desc"] for record in records for item in record.get("objects", ())})
    return {name: number for number, name in enumerate(names, start=1)}


def _xywh(box: Sequence[float]) -> list[float]:
    x1, y1, x2, y2 = box
    return [x1, y1, x2 - x1, y2 - y1]


def _coco(records: Records, folder: Path) -> Path:
    """One file of images, categories and annotations, as COCO has it, with a score beside each box."""
    categories = _categories(records)
    images, annotations = [], []
    for number, record in enumerate(records, start=1):
        size = {"width": record["width"], "height": record["height"]}
        images.append({"id": number, "file_name": record["image"], **size})
        for item in record["objects"]:
            box = _xywh(item["bbox_xyxy"])
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": categories[item["desc"]],
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                    "score": item["score"],
                }
            )
    named = [{"id": number, "name": name} for name, number in categories.items()]
    return _json(folder / "coco.json", {"images": images, "categories": named, "annotations": annotations})


def _yolo(records: Records, folder: Path) -> Path:
    """A text file for each image, `class x y width height` relative to the image, centre first; classes.txt."""
    place, categories = folder / "yolo", _categories(records)
    for record in records:
        lines = []
        for item in record["objects"]:
            x, y, w, h = _xywh(item["bbox_xyxy"])
            unit = (
                (x + w / 2) / record["width"],
                (y + h / 2) / record["height"],
                w / record["width"],
                h / record["height"],
            )
            lines.append(f"{categories[item['desc']] - 1} " + " ".join(f"{side:.6f}" for side in unit))
        write_text(_beside(place / "labels", record["image"], ".txt"), "".join(f"{line}\n" for line in lines))
    write_text(place / "classes.txt", "".join(f"{name}\n" for name in categories))
    return place


def _voc(records: Records, folder: Path) -> Path:
    """An XML file for each image; VOC counts pixels from 1 and includes the last one."""
    for record in records:
        root = ElementTree.Element("annotation")
        ElementTree.SubElement(root, "filename").text = record["image"]
        size = ElementTree.SubElement(root, "size")
        for name, value in (("width", record["width"]), ("height", record["height"]), ("depth", 3)):
            ElementTree.SubElement(size, name).text = str(value)
        for item in record["objects"]:
            entry = ElementTree.SubElement(root, "object")
            ElementTree.SubElement(entry, "name").text = item["desc"]
            ElementTree.SubElement(entry, "score").text = f"{item['score']:.4f}"
            box = ElementTree.SubElement(entry, "bndbox")
            x1, y1, x2, y2 = map(round, item["bbox_xyxy"])
            corners = {"xmin": x1 + 1, "ymin": y1 + 1, "xmax": max(x2, x1 + 1), "ymax": max(y2, y1 + 1)}
            for name, value in corners.items():
                ElementTree.SubElement(box, name).text = str(value)
        ElementTree.indent(root)
        text = ElementTree.tostring(root, encoding="unicode") + "\n"
        write_text(_beside(folder / "voc", record["image"], ".xml"), text)
    return folder / "voc"


def _labelstudio(records: Records, folder: Path) -> Path:
    """Tasks with predictions, for Label Studio's import; values are per cent of the image."""
    tasks = []
    for record in records:
        size = (record["width"], record["height"])
        result = []
        for number, item in enumerate(record["objects"]):
            x, y, w, h = _xywh(item["bbox_xyxy"])
            value = {
                "x": 100 * x / size[0],
                "y": 100 * y / size[1],
                "width": 100 * w / size[0],
                "height": 100 * h / size[1],
                "rotation": 0,
                "rectanglelabels": [item["desc"]],
            }
            result.append(
                {
                    "id": str(number),
                    "type": "rectanglelabels",
                    "from_name": "label",
                    "to_name": "image",
                    "original_width": size[0],
                    "original_height": size[1],
                    "image_rotation": 0,
                    "score": item["score"],
                    "value": value,
                }
            )
        scores = [item["score"] for item in record["objects"]]
        prediction = {"model_version": "coordexp", "score": min(scores, default=0.0), "result": result}
        tasks.append({"data": {"image": record["image"]}, "predictions": [prediction]})
    return _json(folder / "labelstudio.json", tasks)


def _fiftyone(records: Records, folder: Path) -> Path:
    """A record for each image: `fo.Detection(**item)` takes each item as it is."""
    samples = []
    for record in records:
        w, h = record["width"], record["height"]
        items = [
            {
                "label": item["desc"],
                "bounding_box": [a / b for a, b in zip(_xywh(item["bbox_xyxy"]), (w, h, w, h), strict=True)],
                "confidence": item["score"],
            }
            for item in record["objects"]
        ]
        samples.append({"filepath": record["image"], "detections": items})
    return _json(folder / "fiftyone.json", samples)


def _json(path: Path, content: Any) -> Path:
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return path


def _beside(folder: Path, image: str, suffix: str) -> Path:
    path = (folder / image).with_suffix(suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


EXPORTS: Mapping[str, Callable[[Records, Path], Path]] = {
    "coco": _coco,
    "yolo": _yolo,
    "voc": _voc,
    "labelstudio": _labelstudio,
    "fiftyone": _fiftyone,
}
"""Forms by name."""
