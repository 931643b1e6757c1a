"""Answers as models write them, at least five a family, each with its source and with boxes worked out by hand."""

import json
from pathlib import Path

import pytest

from coord_eval import DROP_REASONS, parse_answer

CORPUS = {
    path.stem: [json.loads(line) for line in path.read_text().splitlines()]
    for path in sorted((Path(__file__).parent / "corpus").glob("*.jsonl"))
}


def test_corpus_has_five_answers_of_each_family():
    assert len(CORPUS) >= 19
    assert {family: len(rows) for family, rows in CORPUS.items() if len(rows) < 5} == {}
    assert all(row["source"] for rows in CORPUS.values() for row in rows)


@pytest.mark.parametrize("family", CORPUS)
def test_parse_answer_of_the_corpus(family):
    """A row with `wrong`, which says why, is not read right yet: its objects and format are those that are right."""
    faults = {number: fault_of(row) for number, row in enumerate(CORPUS[family])}
    wrong = {number: fault for number, fault in faults.items() if fault}
    assert wrong.keys() == {number for number, row in enumerate(CORPUS[family]) if "wrong" in row}, wrong


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


def mutate(draw, text, other):
    """Return a text with pieces cut out, doubled, exchanged with those of another answer, or made up."""
    for _ in range(draw.randint(1, 5)):
        a, b = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        c, d = sorted(draw.randrange(len(other) + 1) for _ in range(2))
        piece = draw.choice(["", text[a:b] * 2, other[c:d], chr(draw.randrange(0x11000)), draw.choice('<>[]{}(),:"|;')])
        text = (text[:a] + piece + text[draw.choice([a, b]) :])[:2000]
    return text


def test_parse_answer_keeps_its_rules_on_mutated_answers_of_all_families(fuzz):
    draw = fuzz.draw
    texts = [row["text"] for rows in CORPUS.values() for row in rows]
    objects = 0
    for _ in fuzz.times(4_000):
        text = mutate(draw, draw.choice(texts), draw.choice(texts))
        answer = parse_answer(text)
        for item in answer:
            x1, y1, x2, y2 = item.box
            assert 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1, text
            assert 0 <= item.span[0] < item.span[1] <= len(text), text
        for drop in answer.dropped:
            assert drop.reason in DROP_REASONS and 0 <= drop.span[0] < drop.span[1] <= len(text), text
        objects += len(answer)
        assert answer.objects or answer.dropped or answer.status == "empty", text
    assert objects > len(fuzz.times(1_000))
