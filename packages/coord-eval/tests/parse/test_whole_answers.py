"""All that is told of an answer, its objects, drops and counts, written out by hand for one answer after the other."""

import json
from pathlib import Path

import pytest

from coord_eval import parse_answer

ANSWERS = list(map(json.loads, (Path(__file__).parent / "whole_answers.jsonl").read_text().splitlines()))


def told(text, **options):
    """Return a line for each object, drop and box of zeros, and one for the whole answer; what is usual is left out."""
    answer = parse_answer(text, **options)
    lines = []
    for item in answer:
        numbers, sides = (",".join(f"{n:.6g}" for n in row) for row in (item.bins, item.box))
        more = [name for name, usual in ((item.geometry, "box"), (item.order, "xyxy")) if name != usual]
        more += [] if item.start_index is None else [f"#{item.start_index}"]
        more += [] if item.first_coord_index is None else [f"token {item.first_coord_index}"]
        more += [item.completeness] * (item.completeness != "complete") + [*item.repairs]
        more += [] if item.score is None else [f"score {item.score:g}"]
        lines.append(" ".join([f"{item.desc}: {numbers} = {sides}", *more, *[f"in {item.place}"] * bool(item.place)]))
    lines += [f"{drop.reason} | {text[slice(*drop.span)]}" for drop in answer.dropped]
    lines += [f"zeros | {text[slice(*span)]}" for span in answer.zeros]
    counts = {"tokens": answer.coord_count, "starts": answer.start_count, "repeats": answer.repeats}
    more = [f"{name} {count}" for name, count in counts.items() if count]
    more += [] if answer.scale is None else ["by {:g},{:g}".format(*answer.scale) + " assumed" * answer.scale_assumed]
    return [*lines, " ".join([answer.status, answer.format, *more, *["cut"] * answer.truncated, *answer.label_keys])]


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row["text"][:60])
def test_all_that_is_told_of_an_answer(row):
    options = row.get("options", {})
    if "image_size" in options:
        options = options | {"image_size": tuple(options["image_size"])}
    assert told(row["text"], **options) == row["told"]
