"""Answers beside their ground truth, each judged alone: parsed and matched as `coord_eval.score` does.

Shapes: I answers, N objects, D boxes, T IoU thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import Any, Literal

import numpy as np

from coord_codec import BoxFlag, BoxTable, CoordGrid, InputError, Instance, MarkerFamily, Object
from coord_codec.arguments import plain
from coord_codec.box_table import to_pixels
from coord_codec.box_transforms import LAYOUTS
from coord_codec.counts import counted
from coord_codec.records import validated
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.boxes.pixels import boxes_in_pixels, from_corners
from coord_eval.intake.joining import LabelMatcher
from coord_eval.match.matching import Scored
from coord_eval.parse.answer import Answer, without_other_images
from coord_eval.parse.parser import parse_answer
from coord_eval.settings import IOU_THRESHOLDS, LabelSettings

Truth = str | Instance | Sequence[Object | Mapping[str, Any]]
"""The objects of one image: a target text in the format of the answers, a record, or its objects with `desc` and `bbox`
in [0, 1]."""
_Row = tuple[str, Sequence[float], bool]
"""An object of a ground truth: its label, `x, y, width, height`, and whether it is a crowd region."""


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

    The arguments are those of `coord_eval.rewards.box_reward`.

    Raises:
        InputError: if there are more answers than truths or the reverse, an answer is no text, or a truth is faulty
    """
    if len(answers) != len(truths) or (image_sizes is not None and len(image_sizes) != len(answers)):
        sizes = "" if image_sizes is None else f" and {counted(len(image_sizes), 'image size')}"
        raise InputError(f"rewards: expected one truth for each answer, found {counted(len(answers), 'answer')}, "
                         f"{counted(len(truths), 'truth')}{sizes}")  # fmt: skip
    shapes = [None] * len(answers) if image_sizes is None else [plain(size) for size in image_sizes]
    units = [size or (grid.scale, grid.scale) for size in shapes]
    parse = partial(_parsed, format=format, scale=scale, grid=grid)
    objects = _read_truths(truths, shapes, units, parse, labels)
    sized = enumerate(zip(answers, shapes, strict=True))
    parsed = tuple(parse(text, f"answers[{i}]", image_size=size) for i, (text, size) in sized)
    scored = _matched(parsed, objects, units, grid)
    dropped_I = np.array([len(answer.dropped) for answer in parsed], np.int64)
    sums = [list(map(scored.sum_detections, scored.matches.at(threshold))) for threshold in IOU_THRESHOLDS]
    hits_IT, counted_IT = np.array(sums, np.int64).transpose(1, 2, 0)
    return JudgedAnswers(
        texts=tuple(answers),
        answers=parsed,
        scored=scored,
        repeated_D=_repeated(parsed),
        objects_I=scored.objects_per_image,
        dropped_I=dropped_I,
        hits_IT=hits_IT,
        stated_IT=counted_IT + dropped_I[:, None],
    )


def _parsed(text: Any, place: str, **settings: Any) -> Answer:
    if not isinstance(text, str):
        raise InputError(f"{place}: expected text, found {type(text).__name__}")
    return without_other_images(parse_answer(text, **settings))


class _Objects:
    """The objects of one image, with labels as categories from `first` on; rows are category, box and crowd."""

    def __init__(self, listed: Sequence[_Row], labels: LabelSettings, first: int) -> None:
        self.names = tuple(dict.fromkeys(desc for desc, _, _ in listed))
        self._first = first
        # Synonyms of categories that this image does not have play no part in it.
        synonyms = {name: other for name, other in labels.other_names.items() if name in self.names}
        self._matcher = LabelMatcher(self.names, replace(labels, synonyms=synonyms))
        index = {name: first + k for k, name in enumerate(self.names)}
        self.rows = [(index[desc], *box, crowd) for desc, box, crowd in listed]

    def category(self, label: str, unknown: int) -> int:
        """Return the category of a label, or `unknown`."""
        found, _ = self._matcher.match(label)
        return unknown if found is None else self._first + found


def _read_truths(
    truths: Sequence[Truth], shapes: list[Any], units: list[Any], parse: Any, labels: LabelSettings
) -> list[_Objects]:
    """Return the objects of each answer's image; those that a group of answers shares are read once."""
    known: dict[Any, _Objects] = {}
    objects: list[_Objects] = []
    categories = 0
    for i, (truth, size, unit) in enumerate(zip(truths, shapes, units, strict=True)):
        key = (truth if isinstance(truth, str) else id(truth), size and tuple(size))
        if key not in known:
            place = f"truths[{i}]"
            whole = parse(truth, place, image_size=size) if isinstance(truth, str) else None
            rows = _of_records(truth, place, unit) if whole is None else _of_text(whole, place, unit)
            known[key] = _Objects(rows, labels, categories)
            categories += len(known[key].names)
        objects.append(known[key])
    return objects


def _ground_truth(objects: Sequence[_Objects]) -> GroundTruth:
    """Return the objects of all answers, each answer an image of its own."""
    labels = tuple(map(str, range(sum(len(own.names) for own in dict.fromkeys(objects)))))
    rows_N6 = np.array(list(chain.from_iterable(own.rows for own in objects)), np.float64).reshape(-1, 6)
    table = BoxTable.of(
        np.repeat(np.arange(len(objects)), [len(own.rows) for own in objects]),
        rows_N6[:, 0],
        LAYOUTS["xywh"](rows_N6[:, 1:5]),
        sides_N2=rows_N6[:, 3:5],
        flags_N=rows_N6[:, 5] * BoxFlag.CROWD,
        image_ids=range(len(objects)),
        sizes_I2=np.ones((len(objects), 2)),
        labels=labels,
    )
    return GroundTruth.of(table, range(len(labels)), sizes_known=False)


def _matched(
    answers: Sequence[Answer], objects: Sequence[_Objects], units: Sequence[Sequence[float]], grid: CoordGrid
) -> Scored:
    """Return the boxes of all answers beside their objects, placed in images of the sizes `units`."""
    truth = _ground_truth(objects)
    counts_I = [len(answer) for answer in answers]
    units_D2 = np.repeat(np.array(units, np.float64).reshape(-1, 2), counts_I, axis=0)
    items = list(chain.from_iterable(answers))
    unknown = len(truth.categories)
    owners = chain.from_iterable(map(repeat, objects, counts_I))
    detections = Detections.of(
        truth,
        image_D=np.repeat(np.arange(len(answers)), counts_I),
        category_D=[own.category(item.desc, unknown) for own, item in zip(owners, items, strict=True)],
        boxes_D4=boxes_in_pixels(items, units_D2),
        scores_D=np.ones(len(items)),
        rank_D=list(chain.from_iterable(map(range, counts_I))),
        unknown=("(unknown)",),
    )
    return Scored(truth=truth, detections=detections, score_source="constant", bins=grid.scale)


def _repeated(answers: Sequence[Answer]) -> np.ndarray:
    """Return a mask [D] of the boxes that repeat label and numbers of an earlier one of their answer."""
    first: dict[Any, int] = {}
    keys = [(i, item.desc, item.bins) for i, answer in enumerate(answers) for item in answer]
    return np.array([first.setdefault(key, d) < d for d, key in enumerate(keys)], bool)


def _of_text(answer: Answer, place: str, unit: Sequence[float]) -> list[_Row]:
    """Return the objects of a target text, which has to be read whole."""
    if answer.dropped or answer.status == "failed" or answer.truncated:
        reasons = ", ".join(sorted({drop.reason for drop in answer.dropped})) or answer.status
        raise InputError(
            f"{place}: the target text cannot be read whole ({reasons}) as format {answer.format}: name its format and "
            "scale, or give its objects as a list of {desc, bbox}"
        )
    boxes = boxes_in_pixels(answer.objects, np.tile(np.array(unit, np.float64), (len(answer), 1))).tolist()
    return [(item.desc, box, False) for item, box in zip(answer.objects, boxes, strict=True)]


def _of_records(truth: Any, place: str, unit: Sequence[float]) -> list[_Row]:
    """Return the same of a record, or of a list of objects, in which a table may have filled gaps with None."""
    if isinstance(truth, Instance):
        objects: Any = truth.objects
    else:
        objects = truth.get("objects") if isinstance(truth, Mapping) else plain(truth)
    if not isinstance(objects, Sequence):
        found = type(truth).__name__
        raise InputError(f"{place}: expected a target text, a record or a list of objects, found {found}")

    def without_gaps(item: Any) -> Any:
        if not isinstance(item, Mapping):
            return item
        return {key: plain(value) for key, value in item.items() if value is not None}

    read = validated(tuple[Object, ...], list(map(without_gaps, objects)), place)
    shares_N4 = np.array([item.bbox for item in read], np.float64).reshape(-1, 4)
    boxes = from_corners(to_pixels(shares_N4, np.tile(unit, 2), 1)).tolist()
    return [(item.desc, box, item.iscrowd) for item, box in zip(read, boxes, strict=True)]
