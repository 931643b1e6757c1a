"""What the tests of coord-data share: `helpers/` on the path, a folder with an image, and `prepare` with words."""

import argparse
import sys
from pathlib import Path

import pytest
from PIL import Image

from coord_data import ReadingRules, prepare

sys.path.insert(0, str(Path(__file__).parent / "helpers"))


@pytest.fixture
def place(tmp_path):
    """A folder with `images/a.png` of 64 x 48 pixels."""
    (tmp_path / "images").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "images" / "a.png")
    return tmp_path


@pytest.fixture
def prepared(tmp_path, monkeypatch, caplog):
    """Call `prepare` in the folder of the test with the words of its command: exit code, and all that is said."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", "coord_data")
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--split", type=float)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--format", default="auto")
    parser.add_argument("--on-bad-box", default="drop_image")
    parser.add_argument("--allow-outside", action="store_true")
    parser.add_argument("--strict", action="store_true")

    def call(*words):
        given = vars(parser.parse_args(list(map(str, words))))
        sources, out, split = given.pop("sources"), given.pop("out"), given.pop("split")
        caplog.clear()
        try:
            prepare(sources, out, ReadingRules(**given), split)
        except ValueError as error:  # an InputError, or a setting that pydantic refuses
            return 2, f"{error}\n"
        return 0, caplog.text

    return call
