"""What the parser hands back: objects, drops and the state of one answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Completeness = Literal["complete", "repaired", "partial"]
Geometry = Literal["box", "point", "polygon"]
Status = Literal["ok", "partial", "failed", "empty"]


@dataclass(frozen=True, slots=True)
class ParsedObject:
    """One object that a model wrote down.

    Attributes:
        desc: The description as written, outer white space removed.
        box: ``(x1, y1, x2, y2)`` in [0, 1] with ``x1 < x2`` and ``y1 < y2``.
        bins: The numbers as written, in the order of the text (whole for tokens, not for pixels).
        span: Characters ``[start, end)`` of the object in the text.
        completeness: ``complete``; ``repaired`` (swapped corners or bent syntax, see ``repairs``);
            ``partial`` (all coordinates, but no end marker).
        first_coord_index: Ordinal of the object's first coordinate token among all coordinate tokens of the
            text, the index into ``coord_logprobs``; None in formats without coordinate tokens.
        start_index: Ordinal of the object's start marker (or JSON record) in the text, the index into a
            nested ``desc_logprobs``; several boxes of one phrase share it; None for a box without phrase.
        repairs: What had to be bent, empty for complete objects.
        geometry: ``box``, ``point`` or ``polygon`` as written; scores always use ``box``.
        points: The vertices in [0, 1] of a point or polygon, else empty.
    """

    desc: str
    box: tuple[float, float, float, float]
    bins: tuple[float, ...]
    span: tuple[int, int]
    completeness: Completeness = "complete"
    first_coord_index: int | None = None
    start_index: int | None = None
    repairs: tuple[str, ...] = ()
    geometry: Geometry = "box"
    points: tuple[tuple[float, float], ...] = ()

    @property
    def coord_indices(self) -> range:
        """Ordinals of the object's coordinate tokens within the text; empty where there are none."""
        first = self.first_coord_index
        return range(0) if first is None else range(first, first + len(self.bins))


@dataclass(frozen=True, slots=True)
class Drop:
    """A piece of text that looked like an object and was left out.

    Attributes:
        reason: One of :data:`DROP_REASONS`.
        span: Characters ``[start, end)``.
    """

    reason: str
    span: tuple[int, int]


#: Why a piece of an answer is left out, and what each reason means.
DROP_REASONS = {
    "wrong_arity": "an object with another number of coordinates than its geometry takes",
    "invalid_coordinate": "a coordinate outside the grid, a wildcard or not a number",
    "out_of_range": "a plain number that lies outside the picture on the scale in use",
    "no_area": "two equal sides: a box without width or height",
    "nested_start": "an object that another one interrupted before its coordinates were complete",
    "truncated": "an object at the end of the text that is not complete",
    "stray_coordinates": "coordinates outside any object",
    "stray_text": "words between the coordinates of one object",
    "no_coordinates": "an object that names something and places nothing",
    "unclosed_thought": "a text that ends inside its <think> part, so it holds no answer",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that one text holds.

    Attributes:
        objects: What was understood, in the order of the text, repeats included.
        dropped: What was left out and why, in the order of the text.
        status: ``ok`` (nothing dropped), ``partial`` (objects and drops), ``failed`` (text, but no object in
            it), ``empty`` (no text, or a list that is explicitly empty).
        format: The format that was read, ``none`` when ``auto`` recognised nothing.
        truncated: The text stops inside an object or inside its reasoning.
        scale: What plain numbers were divided by (``(x, y)``), None when the format brings its own scale.
        scale_assumed: True when nobody named that scale, so that /1000 was taken on trust.
        coord_count: Coordinate tokens in the whole text, dropped objects included; the length
            that ``coord_logprobs`` must have.
        start_count: Start markers (or JSON records with coordinates) in the whole text.
        repeats: Objects whose description and numbers an earlier object of the answer already had.
    """

    objects: tuple[ParsedObject, ...]
    dropped: tuple[Drop, ...]
    status: Status
    format: str
    truncated: bool = False
    scale: tuple[float, float] | None = None
    scale_assumed: bool = False
    coord_count: int = 0
    start_count: int = 0
    repeats: int = 0

    def __iter__(self) -> Iterator[ParsedObject]:
        """Iterate over the objects."""
        return iter(self.objects)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.objects)
