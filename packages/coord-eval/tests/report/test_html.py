"""The public pieces of the report."""

import base64
import hashlib
import re

import pytest

from coord_eval import html, score
from coord_eval.html import overlay, page, section, table

HIT = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 1.0}


def test_public_names_are_there_and_documented():
    assert all(getattr(html, name).__doc__ for name in html.__all__)


def test_page_runs_its_own_script_alone_and_fetches_nothing():
    text = page("<script>x</script>", section("a & b", table(("", "n"), [("<i>", 3)])), style="i { top: 0 }")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and "default-src 'none'" in text
    assert "a &amp; b" in text
    assert "&lt;i&gt;</td><td class=n>3" in text
    assert text.count("i { top: 0 }") == 1
    assert "{" not in re.sub(r"<style>.*</style>|<script>.*</script>", "", text, flags=re.DOTALL)


def test_page_lists_its_sections_under_names_of_their_own():
    text = page("", section("A b", "", "AP .5") + section("A b", "") + section("<i>", ""))
    links = re.findall(r'<li><a href="#([^"]+)">(.*?)</a>', text)
    assert links == [("a-b", "A b"), ("a-b-2", "A b"), ("i", "&lt;i&gt;")]
    assert all(text.count(f'<section id="{name}">') == 1 for name, _ in links)


@pytest.mark.parametrize(("results", "boxes"), [([], 0), ([HIT], 1), ([HIT, {**HIT, "bbox": [0, 0, 9, 9]}], 2)])
def test_overlay_holds_ground_truth_and_answers_of_its_image(one_cat, results, boxes):
    one_cat["categories"][0]["name"] = "<cat>"
    svg, problem = overlay(score(one_cat, results), 0)
    assert svg.count("<title>ground truth: &lt;cat&gt;") == 1
    assert svg.count("<title>answer: ") == boxes
    assert "1.jpg: not found" in problem
