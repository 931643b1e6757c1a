"""The public pieces of the report."""

import re

import pytest

from coord_eval import html, score
from coord_eval.html import number, overlay, page, safe, section, table

HIT = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 1.0}


def test_public_names_are_there_and_documented():
    assert all(getattr(html, name).__doc__ for name in html.__all__)


def test_page_runs_nothing_and_fetches_nothing():
    text = page("<script>x</script>", section("a & b", table(("", "n"), [("<i>", 3)])), style="i { top: 0 }")
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "a &amp; b" in text
    assert "&lt;i&gt;</td><td class=n>3" in text
    assert text.count("i { top: 0 }") == 1
    assert "{" not in re.sub(r"<style>.*</style>", "", text, flags=re.DOTALL)


def test_page_fits_a_narrow_screen():
    text = page("", "")
    assert all(int(pixels) <= 300 for pixels in re.findall(r"minmax\((\d+)px", text))  # no grid is wider than the page
    assert re.search(r"@media \(max-width: \d+px\) {[^}]*td:first-child { min-width", text)  # no letter a line


def test_safe_text_cannot_leave_its_place():
    assert safe('"><b>\u202e\x00') == "&quot;&gt;&lt;b&gt;\\u202e\\u0000"
    assert (number(-1.0), number(0.25)) == ("n/a", "0.250")


@pytest.mark.parametrize(("results", "boxes"), [([], 0), ([HIT], 1), ([HIT, {**HIT, "bbox": [0, 0, 9, 9]}], 2)])
def test_overlay_holds_ground_truth_and_answers_of_its_image(one_cat, results, boxes):
    one_cat["categories"][0]["name"] = "<cat>"
    svg, problem = overlay(score(one_cat, results), 0)
    assert svg.count("<title>ground truth: &lt;cat&gt;") == 1
    assert svg.count("<title>answer: ") == boxes
    assert "1.jpg: not found" in problem
