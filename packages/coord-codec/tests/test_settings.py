"""Frozen records of settings: each border is allowed, and what lies beyond it is named."""

from dataclasses import dataclass

import pytest

from coord_codec import InputError
from coord_codec.settings import SettingsRecord, setting, settings_table, takes_fields_of


@dataclass(frozen=True)
class Bounded(SettingsRecord):
    """A record with a limit on each side."""

    share: float | None = setting(None, "A share.", least=0, most=1)
    count: int = setting(3, "A number.", least=1)


@pytest.mark.parametrize("given", [{"share": 0.0}, {"share": 1.0}, {"share": None}, {"count": 1}, {"count": 10**9}])
def test_values_at_the_borders_are_allowed(given):
    made = Bounded(**given)
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.parametrize("given", [{"share": -0.001}, {"share": 1.001}, {"share": float("nan")}, {"count": 0}])
def test_values_beyond_the_borders_are_refused_by_name(given):
    with pytest.raises(InputError, match=next(iter(given))):
        Bounded(**given)


@dataclass(frozen=True)
class Drawing(SettingsRecord):
    """A record with settings of every kind, which act on different things."""

    order: str = setting("size", "Order of the boxes.", choices=("size", "given"))
    most: int = setting(10, "Most | boxes.", acts_on="pages")
    share: float = setting(0.0, "A share.", acts_on="draw()")
    names: tuple[str, ...] = setting(("a", "b"), "Names.")
    deep: bool = setting(False, "Whether it is deep.", flag="--deep -d")
    side: int | None = setting(None, "A side.")


@pytest.mark.parametrize(
    ("given", "acts_on", "changed"),
    [
        ({}, None, []),
        ({"most": 10, "names": ("a", "b")}, None, []),
        ({"most": 3, "order": "given", "side": 0}, None, ["order", "most", "side"]),
        ({"most": 3, "order": "given"}, "pages", ["most"]),
        ({"most": 3, "share": 0.5}, "draw()", ["share"]),
        ({"order": "given", "most": 3}, "", ["order"]),
    ],
)
def test_changed_fields_are_named_and_only_those_that_act_there(given, acts_on, changed):
    assert Drawing(**given).changed(acts_on) == changed


def test_field_that_acts_in_another_call_alone_is_refused_there():
    for record in (Drawing(), Drawing(most=3, order="given"), Drawing(share=0.0)):
        record.check_acts_in("other")
    Drawing(share=0.5).check_acts_in("draw")
    with pytest.raises(InputError, match=r"^share: it acts in draw\(\), and has no effect in other\(\)"):
        Drawing(share=0.5).check_acts_in("other")


def test_fields_as_keywords_are_told_and_change_the_record_that_is_given():
    @takes_fields_of(drawing=Drawing, bounded=Bounded)
    def draw(name, drawing=Drawing(), bounded=Bounded(), scale=1):
        return name, drawing, bounded, scale

    with pytest.warns(DeprecationWarning, match=r"draw\(\w+=\.\.\.\) is now draw\((drawing|bounded)=") as told:
        found = draw("a", drawing=Drawing(most=3), order="given", deep=True, count=7, scale=2)
    assert found == ("a", Drawing("given", 3, deep=True), Bounded(count=7), 2)
    assert [str(one.message).partition("=")[0] for one in told] == ["draw(order", "draw(deep", "draw(count"]


def test_table_shows_defaults_that_say_something_and_options_that_there_are():
    rows = [line.split(" | ") for line in settings_table({"drawing": Drawing}, ["--most", "--deep"]).splitlines()[2:]]
    assert [(row[1], row[2], row[3]) for row in rows] == [
        ("`order`", "", "`size`"),
        ("`most`", "`--most`", "`10`"),
        ("`share`", "", "`0`"),
        ("`names`", "", "`a`, `b`"),
        ("`deep`", "`--deep`", "`False`"),
        ("`side`", "", ""),
    ]
    assert rows[1][4:] == [r"Most \| boxes.", "pages |"]
