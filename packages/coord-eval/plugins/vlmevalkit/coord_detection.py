"""Datasets for VLMEvalKit: read COCO JSON or instance JSON lines and score the text of answers with coord_eval.

Put this file beside `vlmeval/dataset/image_base.py`, add `CoordDetection` to `IMAGE_DATASET` in
`vlmeval/dataset/__init__.py`, and run `run.py --data CoordDetection`. Environment: COORD_EVAL_GROUND_TRUTH
is the annotation file, COORD_EVAL_IMAGES the folder of the images, COORD_EVAL_SCALE what plain numbers are divided by.
`CoordExpressions` is for referring expressions such as RefCOCO: one object per line, whose description is the phrase.
"""

import os
from pathlib import Path

import pandas as pd
from vlmeval.dataset.image_base import ImageBaseDataset
from vlmeval.smp import dump, load
from vlmeval.smp.file import get_intermediate_file_path

from coord_codec import read_annotations, read_instances
from coord_eval import AnswerSettings, score, score_expression_files

PROMPT = 'Locate every object. Answer with JSON only: [{"bbox_2d": [x1, y1, x2, y2], "label": "name"}], in thousandths.'
PHRASE = 'Locate "{}". Answer with JSON only: {{"bbox_2d": [x1, y1, x2, y2]}}, in thousandths of the image.'


def _scale():
    scale = os.environ.get("COORD_EVAL_SCALE")
    return float(scale) if scale and scale.replace(".", "").isdigit() else scale or None


class CoordDetection(ImageBaseDataset):
    """Detection of all objects of each image, scored by COCO's metrics."""

    TYPE = "VQA"
    MODALITY = "IMAGE"
    NAMES = ("CoordDetection",)

    @classmethod
    def supported_datasets(cls):
        """Return the valid names for `--data`."""
        return list(cls.NAMES)

    def load_data(self, dataset):
        """Read the annotations into a table with one row for each image."""
        truth = Path(os.environ["COORD_EVAL_GROUND_TRUTH"])
        images = Path(os.environ.get("COORD_EVAL_IMAGES", truth.parent))
        rows = [
            {
                "index": i,
                "image_path": str(images / instance.image),
                "image_id": instance.image_id,
                "question": self.question(instance),
            }
            for i, instance in enumerate(self.instances(truth))
        ]
        return pd.DataFrame(rows)

    def instances(self, truth):
        """Return the instances of the annotations, one for each image."""
        return read_annotations(truth).instances

    def question(self, instance):
        """Return the prompt of an image."""
        return PROMPT

    def build_prompt(self, line):
        """Return image and prompt in the message format of VLMEvalKit."""
        line = self.data.iloc[line] if isinstance(line, int) else line
        return [{"type": "image", "value": line["image_path"]}, {"type": "text", "value": line["question"]}]

    def evaluate(self, eval_file, **judge_kwargs):
        """Score the answers; writes evaluation.json and the report next to the answers."""
        answers = load(eval_file)
        predictions = [
            {"image_id": image_id, "text": str(text)}
            for image_id, text in zip(answers["image_id"].tolist(), answers["prediction"], strict=True)
        ]
        evaluation = score(os.environ["COORD_EVAL_GROUND_TRUTH"], predictions, answers=AnswerSettings(scale=_scale()))
        evaluation.write_report(Path(eval_file).with_suffix(""))
        return self.keep(eval_file, {**evaluation.coco, "F1": evaluation.detection["0.5"]["f1"]})

    def keep(self, eval_file, values):
        """Write the metrics to the file in which VLMEvalKit expects them, and return them."""
        metrics = pd.DataFrame([values])
        dump(metrics, get_intermediate_file_path(eval_file, "_acc", "csv"))
        return metrics


class CoordExpressions(CoordDetection):
    """Detection of the object of each phrase, scored by RefCOCO's Acc@.5."""

    NAMES = ("CoordExpressions",)

    def instances(self, truth):
        """Return the instances of the annotations, one for each phrase: an image with several has several lines."""
        return read_instances(truth, strict=True).instances

    def question(self, instance):
        """Return the prompt of a phrase."""
        return PHRASE.format(instance.objects[0].desc)

    def evaluate(self, eval_file, **judge_kwargs):
        """Score the answers, sorted by the order of the phrases."""
        answers = load(eval_file).sort_values("index")
        phrases = self.instances(os.environ["COORD_EVAL_GROUND_TRUTH"])
        predictions = [
            {"image": phrase.image, "text": str(text)}
            for phrase, text in zip(phrases, answers["prediction"], strict=True)
        ]
        scores = score_expression_files(phrases, predictions, answers=AnswerSettings(scale=_scale()))
        return self.keep(eval_file, {f"Acc@{iou}": value for iou, value in scores.accuracy.items()})
