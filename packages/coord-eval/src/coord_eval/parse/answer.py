"""The result of parsing one text: objects, drops and the state of the answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from coord_codec import GEOMETRIES
from coord_codec.geometry import GeometryName

Completeness = Literal["complete", "repaired", "partial"]
Geometry = GeometryName
AnswerOrder = Literal["xyxy", "yxyx", "xywh", "cxcywh", "xy"]
Status = Literal["ok", "partial", "failed", "empty"]


class Confidence(NamedTuple):
    """A confidence that a text states: its share in [0, 1] if read alone, and the number, None if it is per cent."""

    share: float
    number: float | None


class ParsedObject(NamedTuple):
    """One object of an answer; a tuple, since there may be millions of them.

    Attributes:
        desc: the description as written, without surrounding white space
        box: `(x1, y1, x2, y2)` in [0, 1] with `x1 < x2` and `y1 < y2`
        bins: the numbers as written, in the order of the text (integers for tokens)
        span: characters `[start, end)` of the object in the text
        completeness: `complete`; `repaired` (swapped corners, faulty syntax or no label, see `repairs`);
            `partial` (all coordinates, but no end marker)
        first_coord_index: index of the object's first coordinate token among all coordinate tokens of the
            text, and into `coord_logprobs`; None in formats without coordinate tokens
        start_index: index of the object's start marker (or JSON record) in the text, and into a
            nested `desc_logprobs`; several boxes of one phrase share it; None for a box without phrase
        repairs: names of the repairs made, keys of `REPAIRS`; empty for complete objects
        geometry: a name of `coord_codec.GEOMETRIES`, as written; scores of boxes always use `box`
        points: the points in [0, 1] that draw a shape other than a box (`Geometry.outline`), else empty
        order: order of `bins`, an `Order` or `yx`; empty if a bin is not a single coordinate
        score: confidence in [0, 1] that the answer itself states, None without one; a number above 1 read alone is per
            cent
        coordinates: the numbers in [0, 1] of a shape other than a box, else empty
        scale: divisors `(x, y)` that made `numbers`, which stand in `order`, the coordinates in [0, 1]: a box in pixels
            is `numbers * side / scale`, exactly as written where the scale is the image's size. None for coordinate
            tokens, and for formats that compute their coordinates in another way
        score_number: the confidence as the number written, whose unit is that of the set; None if it says per cent
        place: the image, frame or time that the object names, as written; empty without one
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
    order: str = "xyxy"
    score: float | None = None
    coordinates: tuple[float, ...] = ()
    scale: tuple[float, float] | None = None
    score_number: float | None = None
    place: str = ""

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers as written, in the order of the text: those of `bins`, as values of `scale`."""
        return self.bins

    @property
    def is_box(self) -> bool:
        """Whether the object is a box that states its four sides, one by one."""
        kind = GEOMETRIES[self.geometry]
        return kind.is_box and kind.fits(len(self.bins))

    @property
    def coord_indices(self) -> range:
        """Indices of the object's coordinate tokens within the text; empty without any."""
        first = self.first_coord_index
        return range(0) if first is None else range(first, first + len(self.bins))


@dataclass(frozen=True, slots=True)
class Drop:
    """A piece of text that resembles an object and was left out: one of `DROP_REASONS`, and its characters."""

    reason: str
    span: tuple[int, int]


POINT_ADVICE = "the geometry point (--geometry point) takes points"
DROP_REASONS = {
    "wrong_arity": "an object with another number of coordinates than its geometry has",
    "invalid_coordinate": "a coordinate outside the grid, a wildcard or not a number",
    "out_of_range": "a plain number outside the image with the scale in use",
    "no_area": "a box without width or height",
    "nested_start": "an object that another one interrupts before its coordinates are complete",
    "truncated": "an incomplete object at the end of the text",
    "stray_coordinates": "coordinates outside any object",
    "stray_text": "words between the coordinates of one object",
    "no_coordinates": "an object with a label and no coordinates",
    "unclosed_thought": "a text that ends inside its <think> part, whose content is not part of the answer",
    "second_geometry": "another shape of an object that has one already",
    "ambiguous": "numbers or labels that can be read in several ways: pairs as points or as corners of boxes",
    "withdrawn": "the part of a text before its final or corrected answer",
    "unread_label": "numbers beside words that do not name them for certain: a clause, several names, words left over",
    "unread_numbers": "numbers of which neither the format nor a word beside them says what they are",
    "deleted": "an object that its own field marks as deleted, hidden, ignored or a crowd",
    "turned": "a box with an angle in a unit that is not known, or in an image of unknown proportions",
    "other_unit": "a box whose record states another unit or order than that in which it is read",
    "other_image": "an object that names another image or frame than that of the answer",
    "point": f"a point where boxes are expected; {POINT_ADVICE}",
    "unrecognised": "words or numbers in no known format",
    "ignored_label": "an object with a label that is not to be scored",
}
"""Reasons for dropping a piece of an answer, and their meaning."""

REPAIRS = {
    "swapped_corners": "the second corner is left of the first or above it; they are sorted",
    "clipped": "a plain number is slightly outside the image and moved to its border",
    "no_label": "the object has no label",
    "label_trimmed": "list numbers, marks or words that are no part of the label are taken off",
    "label_of_other_key": "the label is the only further text of each record of a list, below a key that is not known",
    "label_from_sentence": "the numbers stand in a sentence: the label is the words right before them, or empty",
    "missing_marker": "a start or end marker is missing",
    "square_assumed": "the box is turned in an image whose size is not given, taken as square",
    "second_geometry": "the object has several shapes, of which the first is kept",
}
"""Repairs of an object, and their meaning."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The objects of one text, the dropped pieces, and the status of the answer.

    Attributes:
        objects: the objects in the order of the text, including repeats
        dropped: the dropped pieces in the order of the text
        status: `ok` (nothing dropped), `partial` (objects and drops), `failed` (text without an object), `empty` (no
            text, or a text that explicitly has no object: an empty list, `null`, `There is no dog.`)
        format: the format of the text, `none` if `auto` recognised none
        truncated: whether the text ends inside an object or inside its reasoning
        scale: divisors `(x, y)` of plain numbers, None if the format has its own scale
        scale_assumed: whether no scale was given and that of the grid (1000) was assumed
        coord_count: number of coordinate tokens in the whole text, including dropped objects; the length that
            `coord_logprobs` must have
        start_count: number of start markers (or JSON records with coordinates) in the whole text
        repeats: number of objects with the description and numbers of an earlier object of the answer
        formats: the formats whose tokens the text contains, if there are several and `auto` chose among them
        zeros: characters of each box of four zeros, which some models write where there is no object
        label_keys: keys of no known meaning below which labels are read (`label_of_other_key`)
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
    formats: tuple[str, ...] = ()
    zeros: tuple[tuple[int, int], ...] = ()
    label_keys: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[ParsedObject]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)


def without(answer: Answer, left_out: Callable[[ParsedObject], bool], reason: str) -> Answer:
    """Return an answer in which some objects are drops with this reason."""
    drops = [Drop(reason, item.span) for item in answer if left_out(item)]
    if not drops:
        return answer
    kept = tuple(item for item in answer if not left_out(item))
    dropped = tuple(sorted((*answer.dropped, *drops), key=lambda drop: drop.span))
    return replace(answer, objects=kept, dropped=dropped, status="partial" if kept else "failed")


def without_points(answer: Answer, geometry: str) -> Answer:
    """Return an answer whose points are drops if a geometry with an extent is expected: a point is no tiny box."""
    if not GEOMETRIES[geometry].has_extent:
        return answer
    return without(answer, lambda item: item.geometry == "point", "point")


def without_other_images(answer: Answer, names: Collection[str] = ()) -> Answer:
    """Return an answer without the objects of other images than that of `names`, if its objects name several."""
    if len({item.place for item in answer}) < 2:
        return answer
    return without(answer, lambda item: item.place not in names, "other_image")


def corners(order: str, unit: Sequence[float]) -> list[float]:
    """Convert coordinates in [0, 1] from `order` to x before y, and a box to its two corners."""
    if order in ("yxyx", "yx"):
        return [value for pair in zip(unit[1::2], unit[::2], strict=True) for value in pair]
    if order in ("xywh", "cxcywh"):
        x, y, w, h = unit
        x, y = (x, y) if order == "xywh" else (x - w / 2, y - h / 2)
        return [x, y, x + w, y + h]
    return list(unit)


OVERSHOOT = 0.01
"""Share of the image by which plain numbers may exceed it because of rounding; they are clipped."""
