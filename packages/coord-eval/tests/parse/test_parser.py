"""No text of a model raises an error, and every answer keeps the rules."""

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_codec import MARKERS, WILDCARD_TOKEN, int_to_token, is_coord_token
from coord_eval import DROP_REASONS, FORMATS, parse_answer

START, END = MARKERS["obj"].tokens
COORDS = [int_to_token(k) for k in (0, 1, 7, 499, 500, 998, 999)]
WORDS = ["cat", " red car ", "猫", "👩‍👩‍👧", "\u202e", "\u200f", "\0", "\ud83d", "\n", "\t", "a<b", "|>", "<|", "<"]
BROKEN = [WILDCARD_TOKEN, "<|coord_1000|>", "<|coord_-1|>", "<|coord_007|>", "<|coord_12", "<|coord_", "<|im_end|>"]
JSON = [*list('{}[]:,"\\'), '"bbox_2d"', '"label"', '"poly"', "point_2d", "null", "1e999", "-5", "1004", "3.5", "12"]
LOCS = ["<loc0001>", "<loc1023>", "<loc1024>", "<loc_5>", "<loc_999>", "<loc_1000>", "<poly>", "</poly>", ";", "</s>"]
REST = ["<think>", "</think>", "```json", "(1,2)", "(12,34),(56,78)", "(1,", "9" * 5000]
PIECES = [*MARKERS["obj"].tokens, *MARKERS["qwen"].tokens, *COORDS, *WORDS, *BROKEN, *JSON, *LOCS, *REST]


# The pieces of each grammar come more often together than chance would have them.
GRAMMARS = [
    [START, END, *COORDS, *WORDS[:4], *BROKEN],
    [*MARKERS["qwen"].tokens, *COORDS, "cat", "(12,34),(56,78)", "(1,2)", WILDCARD_TOKEN],
    [*JSON, '{"bbox_2d": [1, 2, 30, 40], "label": "cat"}', *COORDS[:3]],
    [*LOCS, "cat"],
    PIECES,
]


def check(text, format="auto"):
    answer = parse_answer(text, format)
    assert answer.format in (*FORMATS, "none")
    assert answer.status in ("ok", "partial", "failed", "empty")
    last = -1
    for item in answer.objects:
        x1, y1, x2, y2 = item.box
        assert 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1
        assert 0 <= item.span[0] < item.span[1] <= len(text)
        assert item.completeness in ("complete", "repaired", "partial")
        assert item.desc == item.desc.strip()
        if item.first_coord_index is not None:
            assert item.first_coord_index > last
            last = item.coord_indices[-1]
        assert (item.geometry == "box") == (item.points == ())
    assert last < answer.coord_count
    for drop in answer.dropped:
        assert drop.reason in DROP_REASONS
        assert 0 <= drop.span[0] < drop.span[1] <= len(text)
    if answer.format in ("obj", "qwen", "json"):
        assert answer.coord_count == sum(is_coord_token(t) for t in re.findall(r"<\|[^|<>]*\|>", text)) or (
            "unclosed_thought" in {drop.reason for drop in answer.dropped}
        )
    assert (answer.status == "ok") == (bool(answer.objects) and not answer.dropped)
    return answer


def test_parse_answer_keeps_its_rules_on_mixtures_of_pieces(fuzz):
    draw = fuzz.draw
    for case in fuzz.times(100_000):
        grammar = GRAMMARS[case % len(GRAMMARS)]
        text = "".join(draw.choices(grammar, k=draw.randint(1, 14)))
        check(text, "auto" if case % 3 else draw.choice(list(FORMATS)))


@pytest.fixture
def corpus():
    files = (Path(__file__).parent / "corpus").glob("*.jsonl")
    return [json.loads(line)["text"] for path in sorted(files) for line in path.read_text().splitlines()]


def mutate(draw, text, other):
    """Return a text with pieces cut out, doubled, exchanged with those of another answer, or made up."""
    for _ in range(draw.randint(1, 5)):
        a, b = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        c, d = sorted(draw.randrange(len(other) + 1) for _ in range(2))
        made_up = (chr(draw.randrange(0x11000)), draw.choice(PIECES[:-1]), draw.choice('<>[]{}(),:"|;'))
        piece = draw.choice(["", text[a:b] * 2, other[c:d], *made_up])
        text = (text[:a] + piece + text[draw.choice([a, b]) :])[:2000]
    return text


@pytest.mark.slow
def test_parse_answer_keeps_its_rules_on_mutated_answers_of_all_families(corpus, fuzz):
    draw = fuzz.draw
    objects = 0
    for _ in fuzz.times(6_000):
        answer = check(mutate(draw, draw.choice(corpus), draw.choice(corpus)))
        assert answer.objects or answer.dropped or answer.status == "empty", answer
        objects += len(answer.objects)
    assert objects > len(fuzz.times(1_500))


@pytest.mark.slow
@settings(max_examples=3 * settings().max_examples)
@given(st.text(), st.sampled_from(["auto", *FORMATS]))
def test_parse_answer_of_any_text(text, format):
    check(text, format)


def split_reference(text):
    """The rules for our own markers once more, by splitting at the start marker instead of a state machine."""
    found = []
    for part in text.split(START)[1:]:
        body, end, _ = part.partition(END)
        tokens = list(re.finditer(r"<\|coord_[^|<>]{0,24}\|>", body))
        if len(tokens) != 4 or not all(is_coord_token(t.group()) for t in tokens):
            continue
        gaps = [body[a.end() : b.start()] for a, b in itertools.pairwise(tokens)]
        if "".join(gaps).strip() or (end and body[tokens[-1].end() :].strip()):
            continue
        bins = tuple(int(re.sub(r"\D", "", t.group())) for t in tokens)
        if bins[0] == bins[2] or bins[1] == bins[3]:
            continue
        found.append((body[: tokens[0].start()].strip(), bins, bool(end)))
    return found


@pytest.mark.slow
def test_parse_answer_equals_a_parser_by_splitting(fuzz):
    draw = fuzz.draw
    pieces = [START, START, END, END, "cat", " ", WILDCARD_TOKEN, "<|coord_1000|>", *COORDS, *COORDS, *COORDS]
    objects = 0
    for _ in fuzz.times(20_000):
        text = "".join(draw.choices(pieces, k=draw.randint(4, 24)))
        answer = parse_answer(text, "obj")
        found = [(o.desc, o.bins, o.completeness != "partial") for o in answer]
        assert found == split_reference(text)
        objects += len(found)
    assert objects > len(fuzz.times(400))
