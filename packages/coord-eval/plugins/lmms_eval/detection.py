"""Task for lmms-eval: reads instance JSON lines and scores the text of answers with coord_eval.

Environment: COORD_EVAL_IMAGES is the folder of the images; COORD_EVAL_SCALE is what plain numbers are divided by
(1000, `pixels` …), by default the scale that the format implies.
"""

import os
from pathlib import Path

from coord_eval import AnswerSettings, parse_answer, score, score_expressions

PROMPT = 'Locate every object. Answer with JSON only: [{"bbox_2d": [x1, y1, x2, y2], "label": "name"}], in thousandths.'
PHRASE = 'Locate "{}". Answer with JSON only: {{"bbox_2d": [x1, y1, x2, y2]}}, in thousandths of the image.'


def doc_to_visual(doc):
    """Open the image, turned upright by its EXIF orientation."""
    from PIL import Image, ImageOps

    path = Path(os.environ.get("COORD_EVAL_IMAGES", ".")) / doc["image"]
    return [ImageOps.exif_transpose(Image.open(path)).convert("RGB")]


def doc_to_text(doc, lmms_eval_specific_kwargs=None):
    """Return the prompt that asks for all objects."""
    return (lmms_eval_specific_kwargs or {}).get("prompt", PROMPT)


def phrase_to_text(doc, lmms_eval_specific_kwargs=None):
    """Return the prompt that asks for the object of a phrase."""
    return (lmms_eval_specific_kwargs or {}).get("prompt", PHRASE).format(doc["objects"][0]["desc"])


def doc_to_target(doc):
    """Return the descriptions of the objects, for display only: metrics use the boxes."""
    return ", ".join(item["desc"] for item in doc["objects"])


def process_results(doc, results):
    """Return the record that every metric gets: the document and the text of its answer."""
    record = {"doc": {key: value for key, value in doc.items() if value is not None}, "text": results[0]}
    return dict.fromkeys(("AP", "AP50", "F1", "mean_IoU", "Acc@0.5"), record)


def _scale():
    scale = os.environ.get("COORD_EVAL_SCALE")
    return float(scale) if scale and scale.replace(".", "").isdigit() else scale or None


def _evaluation(records):
    from coord_codec import Instance

    truth = [Instance(**{**record["doc"], "image_id": i}) for i, record in enumerate(records)]
    answers = [{"image_id": i, "text": record["text"]} for i, record in enumerate(records)]
    return score(truth, answers, answers=AnswerSettings(scale=_scale()))


def ap(records):
    """Return COCO's average precision over IoU .50:.95."""
    return _evaluation(records).coco["AP"]


def ap50(records):
    """Return the average precision at IoU .5."""
    return _evaluation(records).coco["AP50"]


def f1(records):
    """Return F1 at IoU .5, which does not depend on scores."""
    return _evaluation(records).detection["0.5"]["f1"]


def mean_iou(records):
    """Return the mean IoU over ground-truth objects; a missed object counts as 0."""
    return _evaluation(records).mean_iou


def accuracy(records):
    """Return RefCOCO's Acc@.5: the share of phrases whose first box has an IoU of at least .5 with the ground truth."""
    boxes = [tuple(record["doc"]["objects"][0]["bbox"]) for record in records]
    answers = [
        parse_answer(record["text"], scale=_scale(), image_size=(record["doc"]["width"], record["doc"]["height"]))
        if _scale() == "pixels"
        else parse_answer(record["text"], scale=_scale())
        for record in records
    ]
    return score_expressions(boxes, answers, resamples=0).accuracy["0.5"]
