"""The table of tools and data sets by what identifies their files.

Some are read, by the paths of their keys; the others are refused by their own name, with what to do instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coord_data.formats import text_labels
from coord_data.formats.annotation_format import AnnotationFormat, Example
from coord_data.formats.qwen import MARKS
from coord_data.formats.tool_records import Fields
from coord_data.sources.source import Source

_LABEL_STUDIO = "export the project from it as COCO or YOLO, with images"
_INSTANCES = (
    'write {"image": ..., "objects": [{"desc": ..., "bbox": [x1, y1, x2, y2]}]} a line, in fractions of the image'
)
_EXPORT = "export the project from it as COCO, Pascal VOC or YOLO"
_CONVERT = "convert it to COCO or instance JSONL"
_NUSCENES = "convert its 2D boxes to COCO JSON: `category`, `sample_data` and `object_ann` belong together"
_FIFTYONE = "export the data set from it as fiftyone.types.COCODetectionDataset or YOLOv5Dataset"
_ANSWERS = "write its answers as conversations of Qwen3-VL (`messages` and `images`), or as instance JSONL"
_PREFERENCES = "its rejected answers are no ground truth: remove them, or train on them with ms-swift itself"
_SCREEN = "write a row for each element, with `img_filename`, `instruction` and `bbox`, or instance JSONL"


@dataclass(frozen=True)
class Tool:
    """A row of the table: a tool or data set.

    Attributes:
        title: its name
        keys: keys that a record, a document or its first image has; several sets where forms differ
        line: how the first line of a table begins, a regular expression; empty for JSON
        advice: what to do with its files; empty if they are read
        format: the row of the format that reads them
        writers: the packages whose files are read in the tests of other tools; empty if none can be run
    """

    title: str
    keys: tuple[frozenset[str], ...] = ()
    line: str = ""
    advice: str = ""
    format: AnnotationFormat | None = None
    writers: str = ""

    def fits(self, source: Source) -> int:
        """Return how many keys of a file identify the tool; 1 for a line, 0 for a file of another."""
        if source.is_dir:
            return 0
        if self.line:
            return int(re.match(self.line, source.head.partition("\n")[0].replace('"', "")) is not None)
        found = _keys_of(source)
        return max((len(keys) for keys in self.keys if any(keys <= own for own in found)), default=0)


def _keys_of(source: Source) -> list[frozenset[str]]:
    """Return the keys of the first record, or of a document, its first value and its first image."""
    if source.head[:1] not in ("{", "["):
        return []
    if source.record is not None:
        return [frozenset(source.record)]
    keys, below = source.keys
    image = source.first_image
    if isinstance(image, Mapping):
        return [keys, frozenset(image)]
    return [keys] if keys & {"images", "annotations"} else [keys, below]


def _refused(title: str, advice: str, *keys: str) -> Tool:
    return Tool(title, tuple(frozenset(own.split()) for own in keys), advice=advice)


def _table(title: str, advice: str, line: str) -> Tool:
    return Tool(title, line=line, advice=advice)


def _read(
    name: str,
    title: str,
    about: str,
    keys: Sequence[str],
    fields: Fields,
    example: Any,
    file: str = "a.json",
    writers: str = "",
) -> Tool:
    """Return a tool whose records are read; `example` has a cat from (20, 10) to (60, 40) in `a.jpg`."""
    text = json.dumps(example) + "\n"
    row = AnnotationFormat(name, title, about, {"box": Example({file: text}, file)}, read=fields.read)
    tool = Tool(title, tuple(frozenset(own.split()) for own in keys), format=row, writers=writers)
    return replace(tool, format=replace(row, recognise=lambda source: bool(tool.fits(source))))


_BOX = [20, 10, 60, 40]
_SIZED = {"left": 20, "top": 10, "width": 40, "height": 30}
_LABELBOX = {"name": "cat", "bounding_box": _SIZED}
_SCREENSHOTS = ("img_filename", "image", "image_path", "img_url", "file_name")
READ = (
    _read(
        "scalabel",
        "Scalabel and BDD100K",
        "a list, or `frames`, with `name` and `labels` of `category` and `box2d`, or closed outlines (`poly2d`)",
        ("name labels", "frames config", "frames groups"),
        Fields(
            ("name",),
            ("category",),
            records="frames",
            objects=("labels",),
            size=("size.width", "size.height"),
            boxes=("box2d",),
            outlines=("poly2d.*",),
            ignored=("attributes.crowd", "attributes.ignored"),
        ),
        [{"name": "a.jpg", "labels": [{"category": "cat", "box2d": {"x1": 20, "y1": 10, "x2": 60, "y2": 40}}]}],
        writers="scalabel 0.3.1",
    ),
    _read(
        "megadetector",
        "MegaDetector",
        "`detection_categories` and `images` of `file` and `detections`: answers of a detector, with confidences",
        ("images detection_categories", "file detections", "file failure"),
        Fields(
            ("file",),
            ("category",),
            records="images",
            objects=("detections",),
            order="xywh",
            unit="fractions",
            names="detection_categories",
            fault="failure",
        ),
        {
            "images": [{"file": "a.jpg", "detections": [{"category": "1", "conf": 0.9, "bbox": [0.2, 0.2, 0.4, 0.6]}]}],
            "detection_categories": {"1": "cat"},
        },
        writers="megadetector 10.0.28",
    ),
    _read(
        "odvg",
        "ODVG of Grounding DINO and MMDetection",
        "`filename` with `detection.instances`, or `grounding.regions` of phrases, a line, in pixels",
        ("filename detection", "filename grounding"),
        Fields(
            ("filename",),
            ("category", "phrase", "label"),
            objects=("detection.instances", "grounding.regions"),
            name_file="*label_map*.json",
        ),
        {"filename": "a.jpg", "detection": {"instances": [{"bbox": _BOX, "label": 0, "category": "cat"}]}},
        "a.jsonl",
        "mmdet 3.3.0 (coco2odvg, goldg2odvg)",
    ),
    _read(
        "labelbox",
        "Labelbox",
        "a line an image, with `data_row` and `projects`, and the older JSON with `Labeled Data`",
        ("data_row projects", "Label ID"),
        Fields(
            ("data_row.external_id", "data_row.global_key", "data_row.row_data", "External ID", "Labeled Data"),
            ("name", "title", "value"),
            objects=("projects.*.labels.*.annotations.objects", "Label.objects"),
            size=("media_attributes.width", "media_attributes.height"),
            image_id="data_row.id",
            boxes=("bounding_box", "bbox"),
            outlines=("polygon",),
        ),
        {
            "data_row": {"external_id": "a.jpg"},
            "projects": {"p": {"labels": [{"annotations": {"objects": [_LABELBOX]}}]}},
        },
        "a.ndjson",
    ),
    _read(
        "screenspot-pro",
        "ScreenSpot-Pro",
        "rows of screen elements with `img_filename`, `instruction`, `ui_type` and `bbox`, corners in pixels",
        ("img_filename bbox ui_type",),
        Fields(("img_filename",), ("instruction",), size=("img_size.0", "img_size.1")),
        [{"img_filename": "a.jpg", "bbox": _BOX, "instruction": "cat", "ui_type": "icon"}],
    ),
    _read(
        "screenspot",
        "ScreenSpot and other rows of screen elements",
        "rows with an image, an `instruction` and a `bbox`, in the order and unit that the numbers allow",
        (
            *(
                f"{image} {box} instruction"
                for image in _SCREENSHOTS
                for box in ("bbox", "x y w h", "x y width height")
            ),
            "img_path bbox expression",
        ),
        Fields((*_SCREENSHOTS, "img_path"), ("instruction", "expression"), boxes=("bbox", ""), order=None),
        [{"img_filename": "a.jpg", "bbox": [20, 10, 40, 30], "instruction": "cat", "data_type": "icon"}],
    ),
    Tool("DOTA", format=text_labels.DOTA, writers="datumaro 1.13.12"),
    Tool("KITTI", format=text_labels.KITTI, writers="datumaro 1.13.12, labelformat 0.1.17"),
)
"""The tools whose files are read."""
REFUSED = (
    _table("a table of Label Studio", _LABEL_STUDIO, r"(?:.*,)?(?:annotator|annotation_id)(?:,|\s*$)"),
    _table("a table of VGG Image Annotator", "export its annotations as JSON", r".*\bregion_shape_attributes\b"),
    _table("a table of Vertex AI", _CONVERT, r"(?:TRAIN(?:ING)?|VALIDATION|TEST|UNASSIGNED),[^,]+,"),
    _refused("Label Studio", _LABEL_STUDIO, "data annotations", "data completions", "data predictions"),
    _refused("Label Studio (JSON_MIN)", _LABEL_STUDIO, "annotator image", "annotation_id lead_time"),
    _refused("Labelbox (an import)", "export the project from it as NDJSON", "dataRow name", "dataRow uuid"),
    _refused("Create ML", _EXPORT, "image annotations", "imagefilename annotation"),
    _refused("Supervisely", _EXPORT, "tags objects size"),
    _refused("Datumaro", _EXPORT, "items categories"),
    _refused("VoTT", _EXPORT, "asset regions", "assets visitedAssets", "videoSettings tags"),
    _refused("VGG Image Annotator 3", "export the project from VIA 2, or as COCO", "project metadata file"),
    _refused("FiftyOne", _FIFTYONE, "samples", "classes labels"),
    _refused("MMDetection", _CONVERT, "metainfo data_list", "filename ann", "img_path instances"),
    _refused("Detectron2 (dataset dicts)", _CONVERT, "file_name annotations"),
    _refused("BDD100K (a file an image)", "name the labels that are one file (det_20/det_train.json)", "name frames"),
    _refused("Scale", _CONVERT, "task_id response", "task_id params", "callback_url params"),
    _refused("SageMaker Ground Truth", _CONVERT, "source-ref"),
    _refused("CrowdHuman (odgt)", _CONVERT, "ID gtboxes"),
    _refused("VLM-R1", _CONVERT, "image solution"),
    _refused("Rex-Omni", _CONVERT, "image_name annotation"),
    _refused("PaliGemma or Florence-2", _CONVERT, "prefix suffix"),
    _refused("Hugging Face's ImageFolder", _INSTANCES, "file_name objects"),
    _refused("nuImages", _NUSCENES, "sample_data_token category_token", "sample_annotation_token sample_data_token"),
    _refused("nuScenes", _NUSCENES, "sample_token instance_token", "token sample_token ego_pose_token"),
    _refused("Encord", "export the project from it as COCO", "label_hash data_units", "data_hash data_units"),
    _refused("Kili", _EXPORT, "externalId labels", "externalId jsonResponse", "external_id json_response"),
    _refused("Hasty", "export the project from it as COCO", "label_classes images", "image_name labels"),
    _refused("Segments.ai", "export the release with segments-ai as coco-instance or yolo", "created_at dataset name"),
    _refused("SuperAnnotate", "export the project from it as COCO", "metadata instances", "___objects"),
    _refused("V7 Darwin", "export the data set as COCO", "item annotations", "dataset image annotations"),
    _refused(
        "Dataloop",
        "export the data set with dtlpy as COCO or YOLO",
        "_id filename annotations",
        "filename annotations annotationsCount",
        "annotationsCount",
    ),
    _refused("Supervisely (project)", _EXPORT, "classes tags projectType"),
    _refused("Azure Machine Learning", _CONVERT, "image_url label", "image_url image_details"),
    _refused("Azure Custom Vision", _CONVERT, "originalImageUri regions", "imageUrl regions"),
    _refused("Vertex AI", _CONVERT, "imageGcsUri boundingBoxAnnotations", "imageGcsUri"),
    _refused("Prodigy", _CONVERT, "image spans", "_input_hash _task_hash"),
    _refused("Diffgram", _EXPORT, "readme label_map"),
    _refused("Toloka or Yandex", _CONVERT, "inputValues outputValues"),
    _refused("Picsellia", _EXPORT, "picture_id external_picture_url"),
    _refused("Sama", _EXPORT, "id answers data", "task_id answers"),
    _refused("CVAT (a backup of a task)", "export the task as COCO", "tags shapes tracks"),
    _refused("SeeClick and OS-Atlas", _SCREEN, "img_filename elements"),
    _refused("ShowUI", _SCREEN, "img_url element", "img_url elements"),
    _refused("OSWorld-G", _SCREEN, "box_type box_coordinates"),
    _refused("Cityscapes or CityPersons", _CONVERT, "imgHeight imgWidth objects"),
    _refused("FUNSD", _CONVERT, "form"),
    _refused("XFUND", _CONVERT, "lang documents"),
    _refused("CORD", _CONVERT, "valid_line"),
    _refused("Mapillary's traffic signs", _CONVERT, "ispano objects"),
    _refused("TextOCR", _CONVERT, "imgs anns imgToAnns", "imgs anns"),
    _refused("COCO-Text", _CONVERT, "cats imgs anns"),
    _refused("TT100K", _CONVERT, "imgs types"),
    _refused("LSVT, ArT or another set of text in images", _CONVERT, "gt_0", "gt_1"),
    _refused("DeepFashion2", _CONVERT, "source pair_id"),
    _refused("HICO-DET", _CONVERT, "hoi_annotation"),
    _refused("GQA scene graphs", _CONVERT, "objects location weather"),
    _refused("GRIT of Kosmos-2", _CONVERT, "noun_chunks ref_exps"),
    _refused("PhraseCut", _CONVERT, "task_id instance_boxes"),
    _refused("Argoverse or Waymo", _CONVERT, "context_name laser_labels"),
    _refused("DPO records of ms-swift", _PREFERENCES, "messages rejected_response", "messages rejected_messages"),
    _refused("preferences of TRL", _PREFERENCES, "chosen rejected"),
    _refused("prompts of TRL", _ANSWERS, "prompt completion"),
    _refused("LLaMA-Factory's alpaca form", _ANSWERS, "instruction output"),
    _refused("questions and answers", _ANSWERS, "question answer", "question answers"),
    _refused("boxes and labels in two lists", _INSTANCES, "labels boxes", "labels bboxes", "boxes classes"),
)
"""The tools whose files are refused by their name."""
TOOLS = (*READ, *REFUSED)


def tool_table() -> str:
    """Return the table in Markdown: what identifies a file, and how it is read or what to do with it."""
    rows = ["| tool or data set | what identifies it | here |", "|---|---|---|"]
    for tool in TOOLS:
        signs = " or ".join(", ".join(f"`{key}`" for key in sorted(keys)) for keys in tool.keys)
        sign = signs or ("its first line" if tool.line else "its lines")
        what = tool.advice.replace("|", "\\|")
        if tool.format is not None:
            tried = (
                f"files of {tool.writers} in the tests" if tool.writers else "after its documentation, no writer run"
            )
            what = f"read as `{tool.format.name}`: {tried}"
        rows.append(f"| {tool.title} | {sign} | {what} |")
    return "\n".join(rows) + "\n"


_BOX_KEYS = re.compile(r'"(\w*(?:box|bbox|quad|obb|polygon|point)\w*)\\*"\s*:|<\|?(quad_start|poly|quad)\|?>')
"""Keys and marks of shapes in the answers of conversations."""


def advice(source: Source) -> str:
    """Return what to do with a file of a tool that is not supported; empty if no tool is recognised.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.json"
        >>> _ = path.write_text('{"description": "", "tags": [], "size": {}, "objects": []}')
        >>> advice(Source(path))
        'JSON of Supervisely, which is not read; export the project from it as COCO, Pascal VOC or YOLO'
    """
    fitting = {tool.title: fits for tool in TOOLS if (fits := tool.fits(source))}
    found = next((tool for tool in TOOLS if fitting and tool.title == max(fitting, key=fitting.__getitem__)), None)
    if source.record is not None and {"image", "objects"} <= source.record.keys():
        if isinstance(source.record["objects"], Mapping) and "bbox" in source.record["objects"]:
            return f"records with the objects of Hugging Face's datasets, which are not read; {_INSTANCES}"
        return ""  # instance JSONL, whatever further keys it has
    record = source.record or {}
    is_conversation = any(isinstance(record.get(key), list) for key in ("messages", "conversations"))
    if is_conversation and "objects" not in record and not any(mark in source.head for mark in MARKS):
        named = dict.fromkeys(match[1] or match[2] for match in _BOX_KEYS.finditer(source.head))
        found_keys = f", but with {', '.join(named)}" if named else ""
        return (
            f"conversations without boxes that are read ({', '.join(MARKS)}, or <bbox> with `objects`){found_keys}; "
            "write instance JSONL, or train on their text alone"
        )
    if found is None or found.format is not None:
        return ""
    return f"{'' if found.line else 'JSON of '}{found.title}, which is not read; {found.advice}"
