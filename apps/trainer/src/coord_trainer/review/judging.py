"""The likelihoods of all labels of a file of annotations, in batches, into a file that a later call continues."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from coord_codec import Instance
from coord_codec.files import read_json, read_json_lines, write_text
from coord_detect.answers.records import ImageSource, file_stamp
from coord_detect.answers.resumable_file import begin, discard, json_line
from coord_detect.console import is_first
from coord_eval import ImageError, decode_image
from coord_eval.review import LabelLikelihood
from coord_trainer.review.forcing import ForcedAnswer, Forcing

FORCED = "forced.jsonl"
"""A line for each image: the likelihoods of its labels, and of the end of the answer after them."""


@dataclass(frozen=True)
class JudgedRecord:
    """An annotated image; its id is its place in the annotations if they have no ids."""

    source: ImageSource
    instance: Instance
    image_id: int | str


@dataclass(frozen=True)
class Judged:
    """The likelihoods of labels, and how many labels and images were not judged.

    Labels `beyond` `data.max_objects` were never shown to the model, and images that are `unread` cannot be
    decoded.
    """

    likelihoods: tuple[LabelLikelihood, ...]
    beyond: int
    unread: int


def judge(forcing: Forcing, records: Sequence[JudgedRecord], folder: Path, depends_on: dict[str, Any]) -> Judged:
    """Write the likelihoods of the labels of all images to a folder, unless they are there already.

    With other values of `depends_on` beside the labels and the image files all are computed anew.
    """
    path, made_with = folder / FORCED, folder / f"{FORCED}.json"
    batch = forcing.config.evaluation.batch_size
    labels = [[record.image_id, file_stamp(record.source.path), _labels(record.instance)] for record in records]
    values = {**depends_on, "names": sorted(forcing.names), "labels": labels}
    text = json.dumps(values, ensure_ascii=True)
    if path.is_file() and made_with.is_file() and json.dumps(read_json(made_with)) == text:
        lines = [line for _, line in read_json_lines(path)]
    else:
        file = begin(path, values, key="image_id")

        def work(places: list[int]) -> Iterator[list[dict[str, Any]]]:
            for start in range(0, len(places), batch):
                yield _judge_batch(forcing, [records[place] for place in places[start : start + batch]])

        lines, _ = file.fill([record.image_id for record in records], work, "judging labels")
        if is_first():
            write_text(path, "".join(map(json_line, lines)))
            write_text(made_with, text)
            discard(file)
    return Judged(
        tuple(LabelLikelihood(**label) for line in lines for label in line["labels"]),
        sum(line["beyond"] for line in lines),
        sum("error" in line for line in lines),
    )


def _labels(instance: Instance) -> list[Any]:
    return [[o.desc, list(o.bbox), o.iscrowd] for o in instance.objects]


def _judge_batch(forcing: Forcing, records: Sequence[JudgedRecord]) -> list[dict[str, Any]]:
    """Return the line of each image; halves a batch that fails, so that only the image at fault has no likelihoods."""
    try:
        images = [decode_image(record.source.path) for record in records]
        instances, ids = [record.instance for record in records], [record.image_id for record in records]
        answers = forcing(images, instances, ids)
    except (ImageError, ValueError, torch.OutOfMemoryError) as error:
        if len(records) == 1:
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            return [_line(records[0], ForcedAnswer(())) | {"error": reason}]
        half = len(records) // 2
        return [*_judge_batch(forcing, records[:half]), *_judge_batch(forcing, records[half:])]
    return [_line(record, answer) for record, answer in zip(records, answers, strict=True)]


def _line(record: JudgedRecord, answer: ForcedAnswer) -> dict[str, Any]:
    labels = [label.to_dict() for label in answer.labels]
    ends = {"beyond": answer.beyond, "end_logprob": answer.end_logprob}
    return {"image_id": record.image_id, "labels": labels, **ends}


def of_fold(judged: Judged, fold: int) -> Judged:
    """Return the likelihoods with the number of the fold whose model gave them."""
    return replace(judged, likelihoods=tuple(replace(one, fold=fold) for one in judged.likelihoods))
