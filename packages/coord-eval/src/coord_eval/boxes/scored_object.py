"""An object of an answer with its score, as the Python API takes and returns it."""

from __future__ import annotations

from typing import NamedTuple


class ScoredObject(NamedTuple):
    """One object of an answer.

    Attributes:
        desc: the description of the object
        box: `(x1, y1, x2, y2)` in [0, 1]
        score: in (0, 1]
        repairs: names of the repairs made, see `ParsedObject`
        points: the points in [0, 1] that draw a shape other than a box (`Geometry.outline`), else empty
        coordinates: the numbers in [0, 1] of a shape other than a box, else empty
    """

    desc: str
    box: tuple[float, float, float, float]
    score: float
    repairs: tuple[str, ...]
    points: tuple[tuple[float, float], ...] = ()
    coordinates: tuple[float, ...] = ()
