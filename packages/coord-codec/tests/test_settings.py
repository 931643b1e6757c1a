"""Frozen records of settings: each border is allowed, and what lies beyond it is named."""

from dataclasses import dataclass

import pytest

from coord_codec import InputError
from coord_codec.settings import SettingsRecord, setting


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
