"""The public pieces of the report."""

import doctest
import re

import pytest

from coord_eval import html, score
from coord_eval.html import number, overlay, page, safe, section, table

TRUTH = {
    "images": [{"id": 5, "file_name": "a.jpg", "width": 200, "height": 100}],
    "categories": [{"id": 1, "name": "<cat>"}],
    "annotations": [{"id": 1, "image_id": 5, "category_id": 1, "bbox": [10, 10, 50, 50]}],
}
HIT = {"image_id": 5, "category_id": 1, "bbox": [10, 10, 50, 50], "score": 1.0}


def test_the_example_runs():
    assert doctest.testmod(html) == (0, 1)


def test_every_public_name_is_there_and_documented():
    assert all(getattr(html, name).__doc__ for name in html.__all__)


def test_a_page_runs_nothing_and_fetches_nothing():
    text = page("<script>x</script>", section("a & b", table(("", "n"), [("<i>", 3)])), style="i { top: 0 }")
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "a &amp; b" in text
    assert "&lt;i&gt;</td><td class=n>3" in text
    assert text.count("i { top: 0 }") == 1
    assert "{" not in re.sub(r"<style>.*</style>", "", text, flags=re.DOTALL)


def test_text_cannot_leave_its_place():
    assert safe('"><b>\u202e\x00') == "&quot;&gt;&lt;b&gt;\\u202e\\u0000"
    assert (number(-1.0), number(0.25)) == ("n/a", "0.250")


@pytest.mark.parametrize(
    ("results", "boxes"), [([], 0), ([HIT], 1), ([HIT, {**HIT, "bbox": [0, 0, 9, 9]}], 2)]
)
def test_an_overlay_holds_truth_and_answers_of_its_picture(results, boxes):
    svg, problem = overlay(score(TRUTH, results), 0)
    assert svg.count("<title>truth: &lt;cat&gt;") == 1
    assert svg.count("<title>answer: ") == boxes
    assert "a.jpg: not found" in problem
