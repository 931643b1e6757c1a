"""The table that all extensible tables are: rows are added once, first or last, and only added ones are removed."""

import pytest

from coord_codec import InputError
from coord_codec.registry import Registry


@pytest.fixture
def table():
    return Registry("shape", [("box", 4), ("point", 2)])


def test_rows_stand_in_the_order_of_trying(table):
    table.add("line", 4)
    table.add("ring", 3, first=True)
    assert list(table) == ["ring", "box", "point", "line"]
    assert table.added == {"ring", "line"}
    assert table.add("line", 7, first=True, replace=True) == 7
    assert dict(table) == {"line": 7, "ring": 3, "box": 4, "point": 2} and next(iter(table)) == "line"


def test_equal_row_is_added_again_and_another_one_refused(table):
    table.add("line", 4)
    table.add("line", 4)
    with pytest.raises(InputError, match="shape 'line'"):
        table.add("line", 5)
    assert table.add("line", 5, replace=True) == table["line"] == 5


@pytest.mark.parametrize("name", ["box", "blob"])
def test_built_in_and_unknown_rows_are_not_removed(table, name):
    with pytest.raises(InputError, match=name):
        table.remove(name)
    assert list(table) == ["box", "point"]
