"""Typing errors among class names: rare names that are one letter away from a frequent one."""

import pytest

from coord_data.inspection.names import typing_errors


@pytest.mark.parametrize(
    "name", ["truvk", "trck", "truckk", "turck", "Trucl", "rtuck", "ruck", "trucx", "truc", "trukc"]
)
def test_name_one_letter_away_from_a_frequent_one_is_found(name):
    assert typing_errors({"truck": 40, name: 2, "person": 900}) == {name: "truck"}


@pytest.mark.parametrize(
    "counts",
    [
        {"truck": 39, "truvk": 2},  # not rare
        {"truck": 500, "tvuvk": 1},  # two letters
        {"car": 500, "cat": 1},  # two short words
        {"size 10": 500, "size 11": 1},
        {"truck": 500, "Truck": 1},  # spellings of one name are another finding
        {"truck": 500, "truck stop": 1},
        {},
    ],
)
def test_other_names_are_no_typing_errors(counts):
    assert typing_errors(counts) == {}


def test_most_frequent_name_is_meant():
    assert typing_errors({"boat": 20, "boet": 1}) == {"boet": "boat"}
    assert typing_errors({"boats": 100, "boots": 900, "bo ts": 1, "boets": 1}) == {"boets": "boots", "bo ts": "boots"}
