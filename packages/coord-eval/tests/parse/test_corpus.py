"""Answers as models write them, at least five a family, each with its source and with boxes worked out by hand."""

import json
from pathlib import Path

import pytest

from coord_eval import parse_answer

CORPUS = {
    path.stem: [json.loads(line) for line in path.read_text().splitlines()]
    for path in sorted((Path(__file__).parent / "corpus").glob("*.jsonl"))
}


def test_corpus_has_five_answers_of_each_family():
    assert len(CORPUS) >= 19
    assert {family: len(rows) for family, rows in CORPUS.items() if len(rows) < 5} == {}
    assert all(row["source"] for rows in CORPUS.values() for row in rows)


def test_parse_answer_of_the_corpus():
    """A row with `wrong`, which says why, is not read right yet; one with `refused` is a drop or a marked object."""
    rows = [(family, row, fault_of(row)) for family, rows in CORPUS.items() for row in rows]
    marked = [(family, fault or row["text"]) for family, row, fault in rows if bool(fault) != is_marked(row)]
    assert marked == []


def is_marked(row):
    return "wrong" in row or "refused" in row


def test_row_that_is_refused_has_nothing_wrong_in_silence():
    for row in (row for rows in CORPUS.values() for row in rows if "refused" in row):
        answer = parse_answer(row["text"], scale=row.get("scale"), image_size=row.get("image_size"))
        right = [(label, pytest.approx(place, abs=1e-5)) for label, *place in row["objects"] if len(place) == 4]
        unmarked = [(item.desc, item.box) for item in answer if not item.repairs]
        assert all(item in right for item in unmarked), row["text"]
        assert answer.dropped or any(item.repairs for item in answer), row["text"]


def fault_of(row):
    try:
        check(row)
    except (AssertionError, ValueError) as error:
        return f"{row['text']}\n{error}"


def check(row):
    answer = parse_answer(
        row["text"], scale=row.get("scale"), image_size=row.get("image_size"), geometry=row.get("requested", "box")
    )
    assert answer.format == row["format"]
    for item, (label, *expected) in zip(answer, row["objects"], strict=True):
        if row.get("label") == "any":
            assert item.desc
        elif label is not None:  # null: where several words can be the label
            assert item.desc == label
        assert (item.points[0] if len(expected) == 2 else item.box) == pytest.approx(expected, abs=1e-5)
        assert row.get("geometry") in (item.geometry, "any") or item.geometry == "box"
    if "scores" in row:
        assert [item.score for item in answer] == row["scores"]
    if "dropped" in row:
        assert [drop.reason for drop in answer.dropped] == row["dropped"]
