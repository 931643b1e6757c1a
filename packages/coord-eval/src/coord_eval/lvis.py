"""Average precision of the federated data set LVIS (Gupta et al. 2019, https://arxiv.org/abs/1908.03195).

LVIS annotates only some labels in each picture. A box counts only where its label was looked for: labels with objects
in the picture, and those stated to be absent (``neg_category_ids``); where a label's objects are not all annotated
(``not_exhaustive_category_ids``), a box that finds none is neither right nor wrong. At most 300 boxes a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import CoordGrid, MarkerFamily
from coord_eval.ap_table import ApTable
from coord_eval.collector import collector_paused
from coord_eval.detection_metrics import IOU_THRESHOLDS
from coord_eval.detections import Detections
from coord_eval.errors import InputError
from coord_eval.intake import PredictionSource, Progress, Reading, Scale, silent, take_in
from coord_eval.joining import JoinReport
from coord_eval.labels import LabelMatcher
from coord_eval.ranked import mean_present, ranked_matches_by_area
from coord_eval.reading import read_json
from coord_eval.truth import GroundTruth, from_coco

MAX_DETECTIONS = 300
_DEFAULT_GRID = CoordGrid()
_FREQUENCIES = "rcf"


@dataclass(frozen=True)
class LvisScores:
    """The LVIS numbers of one set of answers or results.

    Attributes:
        summary: ``AP``, ``AP50``, ``AP75``; ``APs``, ``APm``, ``APl`` over small, medium and large objects; ``APr``,
            ``APc``, ``APf`` over rare, common and frequent labels; ``AR@300`` and ``ARs@300``, ``ARm@300``,
            ``ARl@300``: recall of the 300 best boxes. -1 where there is no object of that kind.
        detections: Boxes given for pictures of the data set.
        beyond_limit: Boxes beyond the 300 best of a picture, left out.
        unverified: Boxes with a label nobody looked for in that picture, left out.
        unknown: Boxes with a label that the data set doesn't have, left out as unverified ones are.
        join: How answers or boxes and pictures met.
        score_source: What boxes are ranked by.
        format: Format health of answers in words.
        notes: What a reader of the numbers has to know.
    """

    summary: dict[str, float]
    detections: int
    beyond_limit: int
    unverified: int
    unknown: int
    join: JoinReport
    score_source: str
    format: dict[str, Any]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, values unrounded."""
        return asdict(self)


@collector_paused()
def score_lvis(
    ground_truth: str | Path | Mapping[str, Any],
    predictions: PredictionSource,
    score_source: str = "auto",
    *,
    boxes: str = "tokens",
    format: str | MarkerFamily = "auto",
    scale: Scale = None,
    grid: CoordGrid = _DEFAULT_GRID,
    synonyms: Mapping[str, Sequence[str]] | None = None,
    label_callback: Callable[[str], str | None] | None = None,
    progress: Progress | None = None,
) -> LvisScores:
    """Score answers, or a COCO results list, by the rules of LVIS.

    Args:
        ground_truth: LVIS annotations, a path or the dictionary.
        predictions: ``predictions.jsonl``, a COCO results list, or the records of either.
        score_source: As for :func:`coord_eval.score`, as all that follow.
        boxes: What boxes are read from.
        format: Format of the answers.
        scale: What plain numbers are divided by.
        grid: Grid of the coordinate tokens.
        synonyms: Further names of categories; LVIS names its own in ``categories[].synonyms``, which are not taken
            by themselves, since several stand for two categories.
        label_callback: Asked last for the category of a label.
        progress: Called with a stage's name, what is done and what there is to do.

    Raises:
        InputError: When a file is not LVIS, or the predictions cannot be scored.
    """
    report = progress or silent
    reading = Reading(boxes=boxes, format=format, scale=scale, grid=grid)
    data = read_json(Path(ground_truth)) if isinstance(ground_truth, str | Path) else ground_truth
    if not isinstance(data, Mapping):
        raise InputError(f"{ground_truth}: expected LVIS annotations, found a {type(data).__name__}")
    truth = from_coco(data, "LVIS annotations")
    frequency_K = _frequencies(data, truth)
    collected, _ = take_in(
        truth,
        predictions,
        reading,
        labels=lambda: LabelMatcher(truth.categories, synonyms or {}, label_callback),
        score_source=score_source,
        progress=report,
    )
    limited = _best_of_each_image(collected.detections)
    federated = _Federation(data, truth)
    kept = federated.verified(limited)
    open_D = federated.open(kept)
    tables = [
        ApTable(truth, kept, replace(found, ignored_TD=found.ignored_TD | (~found.hit_TD & open_D)))
        for found in ranked_matches_by_area(truth, kept, IOU_THRESHOLDS, limit=MAX_DETECTIONS)
    ]
    unknown = int((limited.category_D >= len(truth.categories)).sum())
    return LvisScores(
        summary=_summarize(tables, frequency_K),
        detections=len(collected.detections),
        beyond_limit=len(collected.detections) - len(limited),
        unverified=len(limited) - len(kept) - unknown,
        unknown=unknown,
        join=collected.join,
        score_source=collected.score_source,
        format=collected.format,
        notes=(*truth.notes, *collected.notes),
    )


def _summarize(tables: Sequence[ApTable], frequency_K: np.ndarray) -> dict[str, float]:
    """Return the thirteen numbers of LVIS from the tables of all, small, medium and large objects."""
    every, *sized = (table.average_precision()[0] for table in tables)
    summary = {"AP": mean_present(every), "AP50": mean_present(every[0]), "AP75": mean_present(every[5])}
    summary |= {f"AP{a}": mean_present(ap_TK) for a, ap_TK in zip("sml", sized, strict=True)}
    summary |= {f"AP{f}": mean_present(every[:, frequency_K == f]) for f in _FREQUENCIES}
    recall = (mean_present(table.average_recall(MAX_DETECTIONS)) for table in tables)
    return summary | {f"AR{a}@{MAX_DETECTIONS}": r for a, r in zip(("", *"sml"), recall, strict=True)}


class _Federation:
    """Which labels were looked for in which picture."""

    def __init__(self, data: Mapping[str, Any], truth: GroundTruth) -> None:
        self.names = len(truth.categories)
        index = {category_id: k for k, category_id in enumerate(truth.category_ids)}
        place = {image_id: i for i, image_id in enumerate(truth.image_ids)}
        self.looked_for = np.zeros((len(truth), self.names), bool)
        self.not_exhaustive = np.zeros_like(self.looked_for)
        for image in data["images"]:
            for key, target in (
                ("neg_category_ids", self.looked_for),
                ("not_exhaustive_category_ids", self.not_exhaustive),
            ):
                if not isinstance(image.get(key), list):
                    raise InputError(
                        f"LVIS annotations, images[id={image['id']}].{key}: expected a list; is this an LVIS file?"
                    )
                target[place[image["id"]], [index[k] for k in image[key] if k in index]] = True
        self.looked_for[truth.image_N, truth.category_N] = True

    def verified(self, detections: Detections) -> Detections:
        """Keep the boxes whose label was looked for in their picture."""
        known = np.nonzero(detections.category_D < self.names)[0]
        looked_for = self.looked_for[detections.image_D[known], detections.category_D[known]]
        return detections.take(known[looked_for])

    def open(self, detections: Detections) -> np.ndarray:
        """Tell for each box whether its label is not annotated exhaustively in its picture."""
        open_D: np.ndarray = self.not_exhaustive[detections.image_D, detections.category_D]
        return open_D


def _best_of_each_image(detections: Detections) -> Detections:
    """Keep the 300 best boxes of each picture, in their order."""
    order = np.lexsort((-detections.scores_D, detections.image_D))
    first = np.searchsorted(detections.image_D[order], detections.image_D[order], side="left")
    return detections.take(np.sort(order[np.arange(len(order)) - first < MAX_DETECTIONS]))


def _frequencies(data: Mapping[str, Any], truth: GroundTruth) -> np.ndarray:
    """Return r, c or f for each category, in the order of the truth."""
    by_id = {category["id"]: category.get("frequency") for category in data["categories"]}
    for category_id, letter in by_id.items():
        if letter not in tuple(_FREQUENCIES):
            raise InputError(
                f"LVIS annotations, categories[id={category_id}].frequency: expected r, c or f, found {letter!r}"
            )
    return np.array([by_id[category_id] for category_id in truth.category_ids])
