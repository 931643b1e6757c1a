"""Every image-text-to-text family of the installed transformers, from expand-vocab to the merged checkpoint."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.importorskip("peft", reason="adapters")
import page
from path import walk
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
