"""What the sequence parser finds, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class ObjectLayout:
    """Where one object stands in a sequence.

    Attributes:
        coord_positions: positions of its coordinate tokens, x and y in turn.
        desc_positions: positions of its description; empty in JSON text.
        bins: the bins at `coord_positions`.
    """

    coord_positions: tuple[int, ...]
    desc_positions: tuple[int, ...]
    bins: tuple[int, ...]

    @property
    def logit_positions(self) -> tuple[int, ...]:
        """The positions whose logits predict the coordinates: a causal model's position p predicts p + 1."""
        return tuple(p - 1 for p in self.coord_positions)


class Reason(str, Enum):
    """Why something is not an object."""

    NESTED_START = "nested_start"  # a start marker inside an object: the inner one counts
    NO_DESCRIPTION = "no_description"
    ARITY = "arity"  # not an even number of coordinates from four up (exactly four without markers)
    UNEXPECTED_TOKEN = "unexpected_token"  # another token than the one that had to follow
    MASKED = "masked"  # a negative id inside an object
    UNFINISHED = "unfinished"  # the sequence ends inside an object
    STRAY_MARKER = "stray_marker"  # a marker other than start outside an object
    STRAY_COORDINATE = "stray_coordinate"  # coordinates outside an object
    NO_LOGITS = "no_logits"  # a coordinate at position 0, which no logits predict


@dataclass(frozen=True)
class Omission:
    """Something left out of the objects.

    Attributes:
        start: position where it begins.
        position: position at which it stopped being an object; the sequence's length where that is its end.
        reason: why.
    """

    start: int
    position: int
    reason: Reason
