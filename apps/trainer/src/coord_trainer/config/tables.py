"""Reads the tables of ms-swift's arguments that lie in this folder, tab-separated under a line of column names."""

from __future__ import annotations

import csv
from importlib.resources import files


def read_table(name: str) -> list[list[str]]:
    """Return the rows of a table."""
    lines = (files(__package__) / name).read_text(encoding="utf-8").splitlines()
    return list(csv.reader(lines[1:], delimiter="\t", quoting=csv.QUOTE_NONE))
