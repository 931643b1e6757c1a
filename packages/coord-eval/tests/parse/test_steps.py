"""Parsing is linear in the text: calls, counted over repetitions of the pieces of which every form consists."""

import json
import re
import sys
from pathlib import Path

import pytest

from coord_eval import parse_answer

TOKEN = re.compile(r"<[^<>]*>|[\w.]+\W|\W+")
PUBLISHED = [json.loads(line)["text"] for line in (Path(__file__).parent / "published.jsonl").read_text().splitlines()]
LINES = ["x1: 10\n", "name: dog\n", "<xmin>1</xmin>", "(1,2)", "x: 1\ny: 2\n", "top-left: (1,2)\n", "x=1 ", "- 1\n"]
LINES += [
    '"',
    '{"a": ',
    '"a": [1,2',
    "user: a\nassistant: ",
    "a dog at [1, 2, 3, 4]. ",
    "1 to 2 ",
    "<a>1,2,3,4",
    "|a|b|\n",
]
UNITS = [*LINES, *PUBLISHED, *{token for text in PUBLISHED for token in TOKEN.findall(text)[:3]}]

AFTER_A_HEAD = {
    "repeated geometry keys": ("{", '"bbox_2d": [1, 2, 3, 4], '),
    "juxtaposed strings": ('{"bbox_2d": ', '"1 2"'),
    "juxtaposed labels": ('{"label": ', '"a"'),
    "open records": ("", "{"),
    "open boxes": ("", '{"bbox_2d": ['),
    "open lists": ('{"bbox_2d": ', "["),
    "numbers": ('{"bbox_2d": [', "1,"),
    "florence boxes": ("", "a<loc_1><loc_2><loc_3><loc_4>"),
    "florence tokens": ("", "a<loc_1>"),
    "paligemma boxes": ("", "<loc0001><loc0002><loc0003><loc0004>a;"),
    "polygons": ("", "a<poly><loc_1>"),
    "markers": ("", "<obj_start>a(1,2),(3,4)"),
    "pairs": ("<obj_start>", "(1,2),"),
    "qwen boxes": ("<|object_ref_start|>a", "<|box_start|>"),
    "stray tokens": ("", "<|coord_1|> "),
    "thoughts": ("", "<think>a</think>"),
    "internvl references": ("", "<ref>a"),
    "internvl boxes": ("<ref>a</ref>", "<box>[[1,2,3,4]]"),
    "internvl numbers": ("<ref>a</ref><box>[[", "1,"),
    "rex tokens": ("<|object_ref_start|>a<|object_ref_end|><|box_start|>", "<1>"),
    "kosmos patches": ("<object>", "<patch_index_0001>"),
    "molmo points": ("<points", ' x1="1" y1="2"'),
    "molmo 2 points": ('<points coords="1', " 1 123 456"),
    "open lists alone": ("", "[1,"),
    "list numbers": ("[", "1, "),
    "lists by label": ("{", '"a": [1, 2, 3, 4], '),
    "labels": ('{"labels": [', '"a",'),
    "sides": ("{", '"x1": 1, "y1": 2, '),
    "nested labels": ("", '{"a": '),
    "lines": ("", "cat: [1, 2, 3, 4]\n"),
    "fields of one line": ("", "label: cat, bbox: [1, 2, 3, 4], "),
    "named sides": ("", "x=1, y=2, "),
    "rows": ("label,x1,y1,x2,y2\n", "cat,1,2,3,4\n"),
    "items": ("bbox:\n", "- 1\n"),
    "per cent": ("", "1%, "),
    "named elements": ("", "<a>1,2,3,4"),
}


def calls(text):
    """Return the number of Python and C functions that parsing a text calls."""
    count = 0

    def profile(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        parse_answer(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.slow
def test_parse_answer_takes_twice_the_calls_for_twice_the_text(fuzz):
    texts = [*(("", unit) for unit in sorted(set(UNITS))), *AFTER_A_HEAD.values()]
    for head, unit in fuzz.draw.sample(texts, len(fuzz.times(6 * len(texts))) or len(texts)):
        once, twice = calls(head + unit * 40), calls(head + unit * 80)
        assert twice <= 2.2 * once + 200, (head, unit)
