"""Answers as the models' authors show them, those of each row of the table of formats."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from coord_eval.parse.formats import FORMATS, TextFormat


class Published(NamedTuple):
    """One published answer, its row, and the objects in it: label and coordinates in [0, 1] of a box or a point."""

    row: TextFormat
    text: str
    objects: list[list[str | float]]


_LINES = map(json.loads, (Path(__file__).parent / "published.jsonl").read_text().splitlines())
PUBLISHED = [Published(FORMATS[line["row"]], line["text"], line["objects"]) for line in _LINES]


@pytest.fixture
def all_published():
    return PUBLISHED


@pytest.fixture
def registry():
    """Leaves the table of formats as it was before the test."""
    before = dict(FORMATS)
    yield
    FORMATS.clear()
    FORMATS.update(before)
