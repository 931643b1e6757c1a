"""Every image-text-to-text family of the installed transformers, from expand-vocab to the merged checkpoint."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.importorskip("peft", reason="adapters")
import page
from path import WORKS, walk
from tiny_zoo import CLASSES


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("family", CLASSES)
def test_family_goes_the_whole_way_or_says_why_not(family, tmp_path):
    outcome = walk(family, tmp_path)
    if page.is_of_this_transformers():
        assert page.read()[family] == page.row(family, outcome)


def test_page_lists_every_family_of_its_transformers():
    if not page.is_of_this_transformers():
        pytest.skip("another transformers is installed than the page is of")
    assert page.read().keys() == CLASSES.keys()


PUBLISHED = {
    "either place": ["llava_onevision", "qwen2_5_vl"],
    "the top, absent is false": ["qwen3_vl", "smolvlm"],
    "the top, absent is true": ["gemma3", "internvl", "paligemma"],
}
"""Families by the rule after which transformers ties embedding and head."""
TIED = {
    "either place": [(False, True), (True, None)],  # LLaVA-OneVision is published as the first
    "the top, absent is false": [(True, None), (True, False)],
    "the top, absent is true": [(None, None), (True, False)],
}
"""Values of `tie_word_embeddings` at the top and in text_config that tie under each rule."""


@pytest.mark.slow
@pytest.mark.parametrize("ties", [0, 1])
@pytest.mark.parametrize(("rule", "family"), [(rule, family) for rule in PUBLISHED for family in PUBLISHED[rule]])
def test_keys_of_every_rule_go_the_whole_way(rule, family, ties, tmp_path):
    outcome = walk(family, tmp_path, TIED[rule][ties])
    assert outcome.kind == WORKS, outcome.reason
