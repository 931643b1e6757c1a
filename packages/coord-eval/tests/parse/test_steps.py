"""Parsing is linear in the text: calls, counted over repetitions of the pieces of which every form consists."""

import re
import sys

import pytest

from coord_eval import parse_answer
from coord_eval.parse.formats import REGISTRY

TOKEN = re.compile(r"<[^<>]*>|[\w.]+\W|\W+")
PUBLISHED = [published.text for row in REGISTRY.values() for published in row.published]
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


@pytest.mark.parametrize("unit", sorted(set(UNITS)))
def test_parse_answer_takes_twice_the_calls_for_twice_the_text(unit):
    once, twice = calls(unit * 40), calls(unit * 80)
    assert twice <= 2.2 * once + 200
