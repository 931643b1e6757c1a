"""Average precision of the federated data set LVIS (Gupta et al. 2019, https://arxiv.org/abs/1908.03195).

LVIS annotates only some categories in each image. A box counts only if its category was verified in the image, which
holds for categories with objects in it and those stated to be absent (`neg_category_ids`). If not all objects of a
category are annotated (`not_exhaustive_category_ids`), an unmatched box is neither a hit nor a false positive. At most
300 boxes per image count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coord_codec import InputError
from coord_codec.files import identifier, read_json
from coord_codec.settings import takes_fields_of
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.ground_truth import GroundTruth
from coord_eval.intake.collecting import collect, collector_paused
from coord_eval.intake.ground_truth import load_ground_truth
from coord_eval.intake.joining import JoinReport
from coord_eval.intake.predictions import PredictionSource, load_predictions
from coord_eval.match.matching import ranked_matches_by_area
from coord_eval.metrics.coco import ApTable, mean_present
from coord_eval.settings import AnswerSettings, LabelSettings, Progress, silent

MAX_DETECTIONS = 300
_FREQUENCIES = "rcf"


@dataclass(frozen=True)
class LvisScores:
    """The LVIS metrics of one set of answers or results.

    Attributes:
        summary: `AP`, `AP50`, `AP75`; `APs`, `APm`, `APl` over small, medium and large objects; `APr`,
            `APc`, `APf` over rare, common and frequent categories; `AR@300` and `ARs@300`, `ARm@300`,
            `ARl@300`: recall of the 300 best boxes; -1 where there is no object of that kind
        detections: number of boxes for images of the data set
        beyond_limit: number of boxes beyond the 300 best of an image, left out
        unverified: number of boxes whose category was not verified in that image, left out
        unknown: number of boxes with a label that the data set does not have, left out
        join: how answers or boxes were assigned to images
        score_source: source of the scores by which boxes are sorted
        format: counts of parsed and dropped text answers and objects
        notes: conditions that matter when interpreting the metrics
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
        """Return the metrics as plain types, unrounded."""
        return asdict(self)


@takes_fields_of(answers=AnswerSettings, labels=LabelSettings)
@collector_paused()
def score_lvis(
    ground_truth: str | Path | Mapping[str, Any],
    predictions: PredictionSource,
    score_source: str = "auto",
    *,
    answers: AnswerSettings = AnswerSettings(),
    labels: LabelSettings = LabelSettings(),
    progress: Progress | None = None,
) -> LvisScores:
    """Score answers, or a COCO results list, by the rules of LVIS.

    Args:
        ground_truth: LVIS annotations, as a path or a dictionary
        predictions: `predictions.jsonl`, a COCO results list, or the records of either
        score_source: as for `coord_eval.score`
        answers: how answers become boxes
        labels: how labels are matched with categories; the synonyms of the file (`categories[].synonyms`) are not used
            automatically, since several of them belong to two categories
        progress: called with the name of a stage, the number of steps done and their total

    Raises:
        InputError: if the ground truth is not LVIS, or the predictions cannot be scored
    """
    answers.check_acts_in("score_lvis")
    labels.check_acts_in("score_lvis")
    where, data = "LVIS annotations", ground_truth
    if isinstance(ground_truth, str | Path):
        where, data = str(ground_truth), read_json(ground_truth)
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: expected LVIS annotations, found a {type(data).__name__}")
    if missing := [key for key in ("images", "categories", "annotations") if key not in data]:
        raise InputError(f"{where}: expected LVIS annotations, found an object without {missing[0]}")
    truth = load_ground_truth(data)
    frequency_K = _frequencies(data, truth, where)
    loaded = load_predictions(predictions)
    collected = collect(truth, loaded, answers, labels, score_source, progress or silent)
    limited = _best_of_each_image(collected.detections)
    verified_IK, not_exhaustive_IK = _federation(data, truth, where)
    known = limited.take(np.nonzero(limited.category_D < len(truth.categories))[0])
    verified = known.take(np.nonzero(verified_IK[known.image_D, known.category_D])[0])
    not_exhaustive_D = not_exhaustive_IK[verified.image_D, verified.category_D]
    tables = [
        ApTable(truth, verified, replace(matches, ignored_TD=matches.ignored_TD | (~matches.hit_TD & not_exhaustive_D)))
        for matches in ranked_matches_by_area(truth, verified, limit=MAX_DETECTIONS)
    ]
    return LvisScores(
        summary=_summarize(tables, frequency_K),
        detections=len(collected.detections),
        beyond_limit=len(collected.detections) - len(limited),
        unverified=len(known) - len(verified),
        unknown=len(limited) - len(known),
        join=collected.join,
        score_source=collected.score_source,
        format=collected.format,
        notes=(*truth.notes, *collected.notes),
    )


def _summarize(tables: Sequence[ApTable], frequency_K: np.ndarray) -> dict[str, float]:
    """Return the thirteen metrics of LVIS from the tables of all, small, medium and large objects."""
    all_sizes, *by_size = (table.average_precision()[0] for table in tables)
    summary = {"AP": mean_present(all_sizes), "AP50": mean_present(all_sizes[0]), "AP75": mean_present(all_sizes[5])}
    summary |= {f"AP{a}": mean_present(ap_TK) for a, ap_TK in zip("sml", by_size, strict=True)}
    summary |= {f"AP{f}": mean_present(all_sizes[:, frequency_K == f]) for f in _FREQUENCIES}
    recall = (mean_present(table.average_recall(MAX_DETECTIONS)) for table in tables)
    return summary | {f"AR{a}@{MAX_DETECTIONS}": r for a, r in zip(("", *"sml"), recall, strict=True)}


def _federation(data: Mapping[str, Any], ground_truth: GroundTruth, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return masks [I, K] of the categories verified in an image, and of those not annotated exhaustively in it."""
    index = {category_id: k for k, category_id in enumerate(ground_truth.category_ids)}
    image_index = {image_id: i for i, image_id in enumerate(ground_truth.image_ids)}
    verified_IK, not_exhaustive_IK = np.zeros((2, len(ground_truth), len(ground_truth.categories)), bool)
    for image in data["images"]:
        for key, target in (("neg_category_ids", verified_IK), ("not_exhaustive_category_ids", not_exhaustive_IK)):
            field = f"{where}, images[id={image['id']}].{key}"
            if not isinstance(image.get(key), list):
                raise InputError(f"{field}: expected a list; is this an LVIS file?")
            ids = [identifier(k, field) for k in image[key]]
            target[image_index[image["id"]], [index[k] for k in ids if k in index]] = True
    verified_IK[ground_truth.image_N, ground_truth.category_N] = True
    return verified_IK, not_exhaustive_IK


def _best_of_each_image(detections: Detections) -> Detections:
    """Return the 300 boxes of each image with the highest scores, in their original order."""
    order = np.lexsort((-detections.scores_D, detections.image_D))
    first = np.searchsorted(detections.image_D[order], detections.image_D[order], side="left")
    return detections.take(np.sort(order[np.arange(len(order)) - first < MAX_DETECTIONS]))


def _frequencies(data: Mapping[str, Any], ground_truth: GroundTruth, where: str) -> np.ndarray:
    """Return the frequency, r, c or f, of each category in the order of the ground truth."""
    by_id = {category["id"]: category.get("frequency") for category in data["categories"]}
    for category_id, letter in by_id.items():
        if letter not in tuple(_FREQUENCIES):
            raise InputError(f"{where}, categories[id={category_id}].frequency: expected r, c or f, found {letter!r}")
    return np.array([by_id[category_id] for category_id in ground_truth.category_ids])
