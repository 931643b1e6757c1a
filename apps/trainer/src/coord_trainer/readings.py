"""The ways in which answers are generated and boxes read off them; one contract for all groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True)
class Reading:
    """One way of reading a model.

    Attributes:
        name: what configs and reports call it.
        grammar: whether the grammar rules out everything that is no well-formed answer.
        feed_expectation: whether the bin nearest to the expectation is said instead of the likeliest one. It
            then stands in the context of the next side; a bin that was never trained can derail what follows.
        boxes: `"tokens"`: the bins that were said; `"expected"`: the expectation at the same places, unrounded.
        meaning: a line for people.
        known_names: whether descriptions are held to those that occur in the pictures' annotations. A model that
            was never taught where a name ends, as under two markers without cross-entropy on coordinates, then
            stops where it is complete.
    """

    name: str
    grammar: bool
    feed_expectation: bool
    boxes: str
    meaning: str
    known_names: bool = False

    def folder(self, run: Path, first: bool) -> Path:
        """Where its files lie: the run's first reading in the run folder itself."""
        return run if first else run / "readings" / self.name


READINGS: Mapping[str, Reading] = MappingProxyType(
    {
        reading.name: reading
        for reading in (
            Reading("greedy", False, False, "tokens", "free: the likeliest token of all, boxes as said"),
            Reading("grammar", True, False, "tokens", "the likeliest token that the grammar allows"),
            Reading(
                "grammar-expectation",
                True,
                False,
                "expected",
                "the same answers; each side read as the expectation over the coordinate tokens",
            ),
            Reading(
                "grammar-feedback",
                True,
                True,
                "expected",
                "as before, with the rounded expectation said and fed back instead of the likeliest bin",
            ),
            Reading(
                "names",
                True,
                False,
                "tokens",
                "the grammar, and none but the names that the annotations hold",
                known_names=True,
            ),
            Reading(
                "names-feedback",
                True,
                True,
                "expected",
                "the same, with the rounded expectation said and fed back",
                known_names=True,
            ),
        )
    }
)
