"""All that is collected from a set of predictions, written out by hand: boxes, counts, notes, and what is left out."""

import json
from pathlib import Path

import pytest

from coord_codec import CoordGrid, Instance
from coord_eval import AnswerSettings, LabelSettings
from coord_eval.intake.collecting import collect
from coord_eval.intake.ground_truth import load_ground_truth
from coord_eval.intake.predictions import load_predictions

SETS = list(map(json.loads, (Path(__file__).parent / "whole_sets.jsonl").read_text().splitlines()))


def plain(values):
    return ",".join(f"{value:.6g}" for value in values)


def told(truth, predictions, answers=None, labels=None, score_source="auto"):
    """Return a line for each box, each note and each kind of count; what is 0 is left out."""
    if isinstance(truth, list) and "desc" in str(truth):
        truth = [Instance(**row) for row in truth]
    settings = {**(answers or {})}
    if "grid" in settings:
        settings["grid"] = CoordGrid(scale=settings["grid"])
    truth = load_ground_truth(truth, geometry=settings.get("geometry", "box"))
    found = collect(
        truth, load_predictions(predictions), AnswerSettings(**settings), LabelSettings(**(labels or {})), score_source
    )
    boxes, lines = found.detections, []
    for d, box in enumerate(boxes.boxes_D4.tolist()):
        place = f"{truth.image_ids[boxes.image_D[d]]} {boxes.table.labels[boxes.category_D[d]]!r} #{boxes.rank_D[d]}"
        more = [f"score {boxes.scores_D[d]:.6g}"]
        more += [f"part {boxes.part_D[d]}"] if boxes.part_D is not None else []
        more += [f"shape {plain(v for point in boxes.shapes[d] for v in point)}"] if boxes.shapes else []
        more += [] if found.spread_D4 is None else [f"spread {plain(found.spread_D4[d].tolist())}"]
        lines.append(" ".join([place, plain(box), *more]))
    counts = {**found.format, "labels": {name: n for name, n in found.labels.items() if n}}
    counts |= {"unknown_labels": found.unknown_labels, "asked": {k: str(v) for k, v in boxes.asked.items()}}
    counts |= {"answered": found.join.answered, "by_name": found.join.by_name, "images": found.join.unknown_examples}
    counts |= {"strangers": found.join.unknown, "ranked by": found.score_source}
    counts |= {"texts": {truth.image_ids[i]: [text, len(answer)] for i, (text, answer) in found.answers.items()}}
    return [*lines, *(f"{name}: {count}" for name, count in counts.items() if count), *truth.notes, *found.notes]


@pytest.mark.parametrize("row", SETS, ids=lambda row: row["about"])
def test_all_that_is_collected_from_a_set(row):
    assert told(*row["given"], **row.get("settings", {})) == row["told"]
