"""Answers beside their ground truth, each judged alone: parsed and matched as `coord_eval.score` does.

Shapes: I answers, N objects, D boxes, T IoU thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from coord_codec import BoxFlag, BoxTable, CoordGrid, InputError, Instance, MarkerFamily, Object
from coord_codec.arguments import plain
from coord_codec.box_table import to_pixels
from coord_codec.counts import counted
from coord_codec.records import validated
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.pixels import boxes_in_pixels, from_corners
from coord_eval.intake.joining import LabelMatcher, LabelSettings
from coord_eval.match.matching import IOU_THRESHOLDS, Scored
from coord_eval.parse.answer import Answer, without_other_images
from coord_eval.parse.parser import parse_answer

Truth = str | Instance | Sequence[Object | Mapping[str, Any]]
"""The objects of one image: a target text in the format of the answers, a record, or its objects with `desc` and `bbox`
in [0, 1]."""


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """Parsed answers, each matched with the objects of its own image.

    Attributes:
        texts: the I answers as written
        answers: the same, parsed
        scored: boxes and objects of all answers, where the image of a box is the index of its answer; every label of
            an answer's ground truth is a category of its own, and all other labels share the last one
        repeated_D: whether a box repeats label and numbers of an earlier box of its answer
        objects_I: number of objects of each answer's ground truth, without crowd regions
        dropped_I: number of pieces of each answer that resemble an object and could not be read
        hits_IT: number of boxes of each answer that are matched at each of COCO's ten IoU thresholds
        stated_IT: number of objects that each answer states at these thresholds: boxes, but no misses in crowd
            regions, and dropped pieces
    """

    texts: tuple[str, ...]
    answers: tuple[Answer, ...]
    scored: Scored
    repeated_D: np.ndarray
    objects_I: np.ndarray
    dropped_I: np.ndarray
    hits_IT: np.ndarray
    stated_IT: np.ndarray


def judge(
    answers: Sequence[str],
    truths: Sequence[Truth],
    *,
    format: str | MarkerFamily = "auto",
    scale: float | Literal["pixels"] | None = None,
    image_sizes: Sequence[tuple[float, float]] | None = None,
    grid: CoordGrid = CoordGrid(),
    labels: LabelSettings = LabelSettings(),
) -> JudgedAnswers:
    """Parse answers and match their boxes; no answer affects another, unlike in `coord_eval.score`.

    Args:
        answers: the texts
        truths: the objects of the image of each answer
        format: format of the answers, see `coord_eval.parse_answer`
        scale: divisor of plain numbers, see there
        image_sizes: width and height of the model's input for each answer, for `scale="pixels"`
        grid: grid of the coordinate tokens
        labels: how labels are matched

    Raises:
        InputError: if there are more answers than truths or the reverse, an answer is no text, or a truth is faulty
    """
    if len(answers) != len(truths) or (image_sizes is not None and len(image_sizes) != len(answers)):
        sizes = "" if image_sizes is None else f" and {counted(len(image_sizes), 'image size')}"
        raise InputError(f"rewards: expected one truth for each answer, found {counted(len(answers), 'answer')}, "
                         f"{counted(len(truths), 'truth')}{sizes}")  # fmt: skip
    shapes = [None] * len(answers) if image_sizes is None else [plain(size) for size in image_sizes]

    def parse(text: Any, place: str, size: Any) -> Answer:
        if not isinstance(text, str):
            raise InputError(f"{place}: expected text, found {type(text).__name__}")
        return without_other_images(parse_answer(text, format, scale=scale, image_size=size, grid=grid))

    # Ground truth: the answers of one group share theirs, which is then read once
    known: dict[Any, _Objects] = {}
    objects: list[_Objects] = []
    for i, (truth, size) in enumerate(zip(truths, shapes, strict=True)):
        key = (truth if isinstance(truth, str) else id(truth), size and tuple(size))
        if key not in known:
            place = f"truths[{i}]"
            unit = size or (grid.scale, grid.scale)
            read = _of_text(parse(truth, place, size), place, unit) if isinstance(truth, str) else None
            rows = _of_records(truth, place, unit) if read is None else read
            known[key] = _Objects(rows, labels, sum(len(other.names) for other in known.values()))
        objects.append(known[key])
    names = tuple(f"{k}" for k in range(sum(len(other.names) for other in known.values())))
    rows_N8 = np.array([(i, *row) for i, own in enumerate(objects) for row in own.rows], np.float64).reshape(-1, 8)
    low_N2, sides_N2 = rows_N8[:, 2:4], rows_N8[:, 4:6]
    table = BoxTable.of(
        rows_N8[:, 0],
        rows_N8[:, 1],
        np.concatenate([low_N2, low_N2 + sides_N2], axis=1),
        sides_N2=sides_N2,
        area_N=rows_N8[:, 6],
        flags_N=rows_N8[:, 7] * BoxFlag.CROWD,
        image_ids=tuple(range(len(answers))),
        sizes_I2=np.ones((len(answers), 2)),
        labels=names,
    )

    # Answers
    sized = enumerate(zip(answers, shapes, strict=True))
    parsed = tuple(parse(text, f"answers[{i}]", size) for i, (text, size) in sized)
    repeated: list[bool] = []
    labels_D: list[int] = []
    for answer, own in zip(parsed, objects, strict=True):
        seen: set[Any] = set()
        for item in answer.objects:
            labels_D.append(own.category(item.desc, len(names)))
            key = (item.desc, item.bins)
            repeated.append(key in seen)
            seen.add(key)
    counts_I = [len(answer) for answer in parsed]
    units_I2 = np.array([size or (grid.scale, grid.scale) for size in shapes], np.float64).reshape(-1, 2)
    boxes_D4 = boxes_in_pixels([item for answer in parsed for item in answer], np.repeat(units_I2, counts_I, axis=0))
    known_objects = GroundTruth.of(table, range(len(names)), sizes_known=False)
    scored = Scored(
        truth=known_objects,
        detections=Detections.of(
            known_objects,
            image_D=np.repeat(np.arange(len(parsed)), counts_I),
            category_D=np.array(labels_D, np.int64),
            boxes_D4=boxes_D4,
            scores_D=np.ones(len(boxes_D4)),
            rank_D=np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts_I)]),
            unknown=("(unknown)",),
        ),
        score_source="constant",
        bins=grid.scale,
    )

    # Counts
    dropped_I = np.array([len(answer.dropped) for answer in parsed], np.int64)
    by_threshold = [[scored.sum_detections(chosen_D) for chosen_D in scored.matches.at(t)] for t in IOU_THRESHOLDS]
    hits_IT, counted_IT = np.array(by_threshold, np.int64).transpose(1, 2, 0)
    return JudgedAnswers(
        texts=tuple(answers),
        answers=parsed,
        scored=scored,
        repeated_D=np.array(repeated, bool),
        objects_I=scored.objects_per_image,
        dropped_I=dropped_I,
        hits_IT=hits_IT,
        stated_IT=counted_IT + dropped_I[:, None],
    )


class _Objects:
    """The objects of one image, with labels as categories from `first` on."""

    def __init__(self, rows: Iterable[tuple[str, Sequence[float], bool]], labels: LabelSettings, first: int) -> None:
        listed = list(rows)
        self.names = tuple(dict.fromkeys(desc for desc, _, _ in listed))
        self._first = first
        # Synonyms of categories that this image does not have play no part in it.
        synonyms = {name: other for name, other in (labels.synonyms or {}).items() if name in self.names}
        self._matcher = LabelMatcher(self.names, replace(labels, synonyms=synonyms))
        index = {name: first + k for k, name in enumerate(self.names)}
        self.rows = [(index[desc], *box, box[2] * box[3], crowd) for desc, box, crowd in listed]

    def category(self, label: str, unknown: int) -> int:
        """Return the category of a label, or `unknown`."""
        found, _ = self._matcher.match(label)
        return unknown if found is None else self._first + found


def _of_text(answer: Answer, place: str, unit: Sequence[float]) -> list[tuple[str, Sequence[float], bool]]:
    """Return label, `x, y, width, height` and crowd of the objects of a target text, which has to be read whole."""
    if answer.dropped or answer.status == "failed" or answer.truncated:
        reasons = ", ".join(sorted({drop.reason for drop in answer.dropped})) or answer.status
        raise InputError(
            f"{place}: the target text cannot be read whole ({reasons}) as format {answer.format}: name its format and "
            "scale, or give its objects as a list of {desc, bbox}"
        )
    boxes = boxes_in_pixels(answer.objects, np.tile(np.array(unit, np.float64), (len(answer), 1))).tolist()
    return [(item.desc, box, False) for item, box in zip(answer.objects, boxes, strict=True)]


def _of_records(truth: Any, place: str, unit: Sequence[float]) -> list[tuple[str, Sequence[float], bool]]:
    """Return the same of a record, or of a list of objects, in which a table may have filled gaps with None."""
    if isinstance(truth, Instance):
        objects: Any = truth.objects
    else:
        objects = truth.get("objects") if isinstance(truth, Mapping) else plain(truth)
    if not isinstance(objects, Sequence):
        found = type(truth).__name__
        raise InputError(f"{place}: expected a target text, a record or a list of objects, found {found}")
    known = [
        {key: plain(value) for key, value in item.items() if value is not None} if isinstance(item, Mapping) else item
        for item in objects
    ]
    read = validated(tuple[Object, ...], known, place)
    corners_N4 = to_pixels(np.array([item.bbox for item in read], np.float64).reshape(-1, 4), np.tile(unit, 2), 1)
    boxes = from_corners(corners_N4).tolist()
    return [(item.desc, box, item.iscrowd) for item, box in zip(read, boxes, strict=True)]
