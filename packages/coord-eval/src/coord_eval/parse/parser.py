"""Parses the text of an answer: recognises its format and calls the parser of that format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from coord_codec import CoordGrid, Geometry, MarkerFamily, geometry_of
from coord_eval.parse.answer import COORD, COORD_START, Answer, AnswerBuilder, Scale, token_units
from coord_eval.parse.formats import FORMATS, LISTS, REGISTRY, TextFormat
from coord_eval.parse.json_format import JsonParser
from coord_eval.parse.marker_format import MarkerParser
from coord_eval.parse.pattern_format import PatternParser
from coord_eval.parse.scalars import plain

_THOUGHT_MARK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_JSON_HINT = re.compile(r"[{\[]")


def parse_answer(
    text: str,
    format: str | MarkerFamily = "auto",
    *,
    scale: float | Literal["pixels"] | None = None,
    image_size: tuple[float, float] | None = None,
    grid: CoordGrid = CoordGrid(),
    keep_flat: bool = False,
    preferred: Sequence[str] = (),
    geometry: str = "box",
) -> Answer:
    """Parse the objects of one answer.

    Parsing takes one pass in linear time, and no text raises an error: unparsable pieces are in `dropped` with a
    reason, which is `unrecognised` if no format matches. Thoughts (`<think>`, `<thinking>`) are skipped. A box needs
    exactly four valid coordinates, another geometry its own number. Of nested start markers the inner one counts.
    Repeats are kept and counted; swapped corners and missing labels are listed as repairs.

    Args:
        text: the answer, including special tokens
        format: a name of `FORMATS`, your own marker family, or `auto`: the format whose tokens the text contains, and
            among several the one with the most objects
        scale: divisor of plain numbers; `"pixels"` for pixels of `image_size`; None assumes that of the grid (1000) and
            sets `scale_assumed`. It does not affect coordinate tokens
        image_size: `(width, height)` of the image that the model was given, for `scale="pixels"`
        grid: the grid of the coordinate tokens
        keep_flat: keep boxes without area, which are otherwise dropped, for callers that replace the sides
        preferred: formats of the whole set, the most frequent first; `auto` chooses the first of them that has objects
        geometry: geometry that the coordinates between markers describe, a name of `coord_codec.GEOMETRIES`; in JSON
            the keys determine it, and those of oriented boxes and keypoints count only if named here

    Raises:
        ValueError: for an unknown format or geometry or an invalid scale, never because of the text

    Example:
        >>> answer = parse_answer('[{"bbox_2d": [250, 200, 750, 800], "label": "dog"}, {"bbox_2d": [10, 20')
        >>> answer.format, answer.objects[0].desc, answer.objects[0].box
        ('json', 'dog', (0.25, 0.2, 0.75, 0.8))
        >>> [drop.reason for drop in answer.dropped], answer.truncated
        (['truncated'], True)
    """
    scale, image_size = plain(scale), plain(image_size)
    units, kind = token_units(grid), geometry_of(geometry)
    resolved = _resolve_scale(scale, image_size, grid)
    if resolved.x != resolved.y and not kind.has_points:
        raise ValueError(
            f"scale: the lengths and angles of the geometry {kind.name} are no pixels of width or height: name one "
            "number, or leave it out"
        )
    if not isinstance(format, MarkerFamily) and format not in ("auto", *FORMATS):
        raise ValueError(f"format: expected auto, {', '.join(FORMATS)} or a MarkerFamily, found {format!r}")
    begin, end, thought = _answer_range(text)

    def parse(name: str | MarkerFamily) -> Answer:
        builder = AnswerBuilder(name.name if isinstance(name, MarkerFamily) else name, resolved, keep_flat=keep_flat)
        # Token indices count the whole text, including its reasoning, like the lists of log-probabilities.
        builder.coord_count = sum(token in units for token in COORD.findall(text, 0, begin))
        _run(builder, name, units, text if end == len(text) else text[:end], begin, kind)
        builder.coord_count += sum(token in units for token in COORD.findall(text, end))
        if thought is not None:
            builder.truncated = True
            builder.drop("unclosed_thought", thought, len(text))
        return builder.build(text[begin:end])

    if format != "auto":
        return parse(format)
    answers = [parse(name) for name in candidate_formats(text, (begin, end))]
    if not any(map(_is_match, answers)) and LISTS.shown.search(text, begin, end):
        answers.append(parse(LISTS.name))
    return _best(answers, preferred)


def _is_match(answer: Answer) -> bool:
    """Return whether parsing with a format gave objects, faulty objects or an empty list."""
    return answer.status == "empty" or any(drop.reason != "unrecognised" for drop in answer.dropped) or bool(answer)


def _run(
    builder: AnswerBuilder,
    format: str | MarkerFamily,
    units: Mapping[str, tuple[int, float]],
    text: str,
    begin: int,
    kind: Geometry,
) -> None:
    """Parse a text from `begin` on; if nothing is recognised, drop it as a whole."""
    row = None if isinstance(format, MarkerFamily) else REGISTRY.get(format)
    family = format if isinstance(format, MarkerFamily) else row and row.markers
    if family:
        builder.start_count = text.count(family.tokens[0], 0, begin)
        MarkerParser(builder, family, units, kind).parse(text, begin)
    elif row and row.pattern:
        PatternParser(builder, row).parse(text, begin)
    elif row:
        builder.format = "json"
        JsonParser(builder, units, row if row.name != "json" else None, kind).parse(text, begin)
    stripped = text[begin:].strip()
    if stripped and not (builder.objects or builder.dropped or builder.explicit_empty):
        start = text.index(stripped[0], begin)
        builder.drop("unrecognised", start, start + len(stripped))


def _best(answers: Sequence[Answer], preferred: Sequence[str]) -> Answer:
    """Return the answer of the first preferred format with objects, else the one with the most objects."""
    rank = {name: place for place, name in enumerate(preferred)}

    def cost(answer: Answer) -> tuple[bool, int, int, bool, int]:
        return (
            not answer.objects,
            rank.get(answer.format, len(rank)),
            -len(answer.objects),
            not _is_match(answer),
            len(answer.dropped),
        )

    return min(answers, key=cost)


def _answer_range(text: str) -> tuple[int, int, int | None]:
    """Return start and end of the answer, and the start of a thought that does not end.

    The answer is the last range outside the thoughts that contains words. The text before an end mark without a start
    mark is a thought too, since some prompts contain the start mark.
    """
    ranges, begin, inside = [(0, 0)], 0, None
    for mark in _THOUGHT_MARK.finditer(text):
        if mark[1]:
            if inside is None:
                ranges = [(0, 0)]
            inside, begin = None, mark.end()
        elif inside is None:
            inside = mark.start()
            if text[begin:inside].strip():
                ranges.append((begin, inside))
    if inside is None and (begin == 0 or len(ranges) == 1 or text[begin:].strip()):
        return begin, len(text), None
    return *ranges[-1], inside


def candidate_formats(text: str, answer_range: tuple[int, int] | None = None) -> list[str]:
    """Return the formats whose tokens the answer in a text contains, `none` if there are none.

    Of formats with equally many objects, `parse_answer` chooses the first of this list.
    """
    begin, end = answer_range or _answer_range(text)[:2]
    tagged, braced = text.find("<", begin, end) >= 0, _JSON_HINT.search(text, begin, end)
    formats = [name for name, row in REGISTRY.items() if _is_in_text(row, text, begin, end, tagged, bool(braced))]
    return formats or ["obj" if text.find(COORD_START, begin, end) >= 0 else "none"]


def _is_in_text(row: TextFormat, text: str, begin: int, end: int, tagged: bool, braced: bool) -> bool:
    """Return whether a text contains the tokens of a format."""
    if row is LISTS or row.keys:
        return row.name == "json" and braced
    if row.markers:
        return tagged and any(text.find(row.markers.tokens[i], begin, end) >= 0 for i in (0, -2))
    return (tagged or "<" not in row.example) and row.shown.search(text, begin, end) is not None


def _resolve_scale(scale: float | str | None, image_size: tuple[float, float] | None, grid: CoordGrid) -> Scale:
    if scale is None and image_size is None:
        return Scale(grid.scale, grid.scale, assumed=True)
    if scale is None or scale == "pixels":
        sides = () if image_size is None else tuple(map(plain, image_size))
        if len(sides) != 2 or not all(side > 0 for side in sides):
            raise ValueError(f"image_size: expected width and height for scale='pixels', found {image_size!r}")
        return Scale(float(sides[0]), float(sides[1]))
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise ValueError(f"scale: expected a positive number, 'pixels' or None, found {scale!r}")
    return Scale(scale, scale)
