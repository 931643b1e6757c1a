"""The registry of answer formats: each row describes one format, and one of three parsers applies it.

A row has a regular expression (`pattern`), a marker family (`markers`), or keys of JSON records (`keys`). Comments cite
the source of each format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from coord_codec import MARKERS, MarkerFamily
from coord_eval.parse.answer import ORDERS, Order

NUMBER = r"-?[0-9]{1,9}(?:\.[0-9]{1,17})?"
"""A plain number."""


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    r"""The format in which a family of models writes boxes or points.

    Attributes:
        name: the name in `parse_answer(format=…)` and `Answer.format`
        example: one object as the model writes it
        pattern: regular expression of the coordinates of one object. Its group `box` contains them, `label` (optional)
            the description; consecutive boxes share a label. An optional group `end` is empty if the answer was cut
            off. A repetition must not match beyond the start of the next object (`[^<]*`, not `.*`), so that parsing
            takes linear time.
        label: `inside` the pattern, or `before` it: the text between the previous object and this one
        number: pattern of one coordinate, with its digits in group 1 if it has groups
        order: order of the coordinates: `xyxy`, `yxyx`, `xywh`, `cxcywh`, or `xy` for points
        scale: divisor of a coordinate; None for the caller's scale. Without `bins`, a scale that the caller gives takes
            precedence over this one
        bins: number of coordinate tokens; None for plain numbers
        offset: summand of a bin before the division: .5 for the centre of the bin
        by_count: whether two coordinates are a point, four a box, and more a polygon
        arity: number of coordinates of one object, for `decode`
        decode: maps the coordinates of one object as written to `x1, y1, x2, y2` in [0, 1], if order and scale cannot
        opening: pattern of the start of an object; a start without an object is a drop
        hint: pattern by which `auto` recognises the format; by default `opening`, else `pattern`
        noise: pattern that is removed from labels
        markers: a marker family instead of a pattern
        keys: JSON keys whose values are the coordinates, instead of a pattern

    Raises:
        ValueError: for a pattern that does not compile or has no group `box`, or an unknown order

    Example:
        >>> row = TextFormat(name="tags", example="<o>cat: 1 2 3 4</o>", pattern="<o>(?P<label>[^<:]*):(?P<box>[^<]*)<")
        >>> row.compiled.search(row.example)["label"]
        'cat'
    """

    name: str
    example: str
    pattern: str = ""
    label: Literal["inside", "before"] = "inside"
    number: str = NUMBER
    order: Order = "xyxy"
    scale: float | None = None
    bins: int | None = None
    offset: float = 0.0
    by_count: bool = False
    arity: int = 0
    decode: Callable[[Sequence[float]], Sequence[float]] | None = None
    opening: str = ""
    hint: str = ""
    noise: str = ""
    markers: MarkerFamily | None = None
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"{self.name}: order: expected one of {', '.join(ORDERS)}, found {self.order!r}")
        if sum(map(bool, (self.pattern, self.markers, self.keys))) != 1:
            raise ValueError(f"{self.name}: expected one of pattern, markers and keys")
        for name in ("pattern", "number", "opening", "hint", "noise"):
            try:
                compiled_pattern = re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{self.name}: {name}: {error}") from error
            if name == "pattern" and self.pattern and "box" not in compiled_pattern.groupindex:
                raise ValueError(f"{self.name}: pattern: expected a group (?P<box>…) around the coordinates")
        if not self.arity:
            object.__setattr__(self, "arity", len(self.order))

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern)

    @cached_property
    def shown(self) -> re.Pattern[str]:
        """The compiled hint."""
        return re.compile(self.hint or self.opening or self.pattern)


def _marked(name: str, example: str, marks: Sequence[str], body: str, **more: Any) -> TextFormat:
    """Return the format `<ref>cat</ref><box>…</box>` with these four marks; `body` is the pattern inside the box."""
    ref, ref_end, box, box_end = escaped = [re.escape(mark) for mark in marks]
    label = rf"{ref}(?P<label>(?:(?!{'|'.join(escaped)})[\s\S])*){ref_end}\s*"
    pattern = rf"(?:{label})?{box}(?P<box>{body})(?P<end>{box_end}|)"
    return TextFormat(name=name, example=example, pattern=pattern, opening=f"{ref}|{box}", **more)


_BIN = r"<([0-9]{1,4})>"
_NONE = "[Nn]one|null"
_BINS = rf"(?:<[0-9]{{1,4}}>|[\s,]|{_NONE})*"
_PLAIN = rf"(?:[-+\s0-9.,;()\[\]]|{_NONE})*"
_QWEN = MARKERS["qwen"].tokens
_REF_BOX = ("<ref>", "</ref>", "<box>", "</box>")


def _patches(pair: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the box of Kosmos-2's two patches of 32 x 32: between their centres, or around both in one row or column.

    Source: `decode_string.py` of the model's demo.
    """
    (y1, x1), (y2, x2) = (divmod(index, 32) for index in pair)
    near, far = (0.0, 1.0) if x1 == x2 or y1 == y2 else (0.5, 0.5)
    return (x1 + near) / 32, (y1 + near) / 32, (x2 + far) / 32, (y2 + far) / 32


_LIST = rf"{NUMBER}(?:[\s,;]+{NUMBER}){{3,}}"
_PAIR = rf"\(\s*{NUMBER}\s*,\s*{NUMBER}\s*\)"
_TRIPLE = r"[0-9]{1,5}\s+[0-9]{1,4}\s+[0-9]{1,4}"
_TAG = r"<\|?/?[A-Za-z_]+\|?>"
LISTS = TextFormat(
    # Shikra (Chen et al. 2023) in [0, 1], CogVLM (Wang et al. 2023) and GLM-4.5V in thousandths, and plain lists.
    name="lists",
    example="the cat[0.1,0.2,0.3,0.4] or [[100, 200, 300, 400]] or (100,200),(300,400)",
    pattern=rf"(?P<box>{_PAIR}\s*(?:,|to|[-\u2013\u2192])?\s*{_PAIR}|[\[(<]\s*{_LIST}\s*[\])>])",
    label="before",
    noise=rf"{_TAG}|(?:(?!{_TAG})[\[\](){{}}<>\"'`*:])+|^\s*(?:[-*,;.]|[0-9]+[.)])+|\s[-=]+\s*$",
    hint=r"[\[(<]\s*-?[0-9]",
)
"""The format that is tried only if no other one matches, since numbers in brackets can mean anything."""

_ROWS = (
    TextFormat(
        name="obj",
        example="<obj_start>cat, four coordinate tokens or (x1,y1),(x2,y2), <obj_end>",
        markers=MARKERS["obj"],
    ),
    TextFormat(
        name="qwen",
        markers=MARKERS["qwen"],
        example="<|object_ref_start|>cat<|object_ref_end|><|box_start|>, coordinates as in obj, <|box_end|>",
    ),
    TextFormat(
        name="json",
        keys=(
            "bbox_2d",
            "bbox",
            "box",
            "bounding_box",
            "boundingBox",
            "bboxes",
            "boxes",
            "rect",
            "coordinates",
            "coords",
            "location",
            "position",
            "region",
        ),
        example='{"bbox_2d": [x1, y1, x2, y2], "label": "cat"}; numbers, numbers as strings or coordinate tokens',
    ),
    # Gemini writes y first, in thousandths (https://ai.google.dev/gemini-api/docs/image-understanding).
    TextFormat(
        name="gemini",
        example='{"box_2d": [y1, x1, y2, x2], "label": "cat"}',
        keys=("box_2d",),
        order="yxyx",
        scale=1000,
    ),
    TextFormat(name="points", example='{"point_2d": [x, y], "label": "cat"}', keys=("point_2d", "point"), order="xy"),
    # PaliGemma (Beyer et al. 2024): <loc0000> to <loc1023>, y before x, coordinate k/1024 (big_vision).
    TextFormat(
        name="paligemma",
        example="<loc0034><loc0012><loc0078><loc0056> cat ; four of 1024 bins, y first",
        pattern=r"(?P<box>(?:<loc[0-9]{4}>)+)(?P<end>(?P<label>(?:[^;<]|<(?!loc[0-9]{4}>))*);?)",
        number="<loc([0-9]{4})>",
        order="yxyx",
        scale=1024,
        bins=1024,
        hint="<loc[0-9]{4}>",
        noise=r"</?s>|<pad>|<eos>|<bos>|<seg[0-9]{3}>",
    ),
    # Florence-2 (Xiao et al. 2023): <loc_0> to <loc_999>; its processor decodes a bin as its centre.
    TextFormat(
        name="florence2",
        example="cat<loc_12><loc_34><loc_56><loc_78>, read at the centre of 1000 bins",
        pattern=r"(?P<polygon><poly>)?(?P<box>(?:<loc_[0-9]{1,4}>)+)(?:</poly>)?",
        label="before",
        number="<loc_([0-9]{1,4})>",
        scale=1000,
        bins=1000,
        offset=0.5,
        hint="<loc_[0-9]{1,4}>",
        noise=r"</?s>|<pad>|</?poly>|</?od>|<sep>",
    ),
    # Rex-Omni (Jiang et al. 2025): 1000 tokens, divided by 999 in its parser; commas between the boxes of a phrase.
    _marked(
        "rexomni",
        "<|object_ref_start|>cat<|object_ref_end|><|box_start|><12><34><56><78><|box_end|>",
        _QWEN,
        _BINS,
        hint=rf"{re.escape(_QWEN[2])}\s*<[0-9]",
        number=_BIN,
        scale=999,
        bins=1000,
        by_count=True,
    ),
    # LocateAnything (Wang et al. 2026): 1001 tokens, <0> to <1000>.
    _marked(
        "locateanything",
        "<ref>cat</ref><box><12><34><56><78></box>",
        _REF_BOX,
        _BINS,
        hint=r"<box>\s*(?:<[0-9]|[Nn]one)",
        number=_BIN,
        scale=1000,
        bins=1001,
        by_count=True,
    ),
    # InternVL (Chen et al. 2023) in nested lists and Qwen-VL (Bai et al. 2023) in pairs, both in thousandths.
    _marked(
        "internvl",
        "<ref>cat</ref><box>[[12, 34, 56, 78]]</box>",
        _REF_BOX,
        _PLAIN,
        scale=1000,
        hint=r"<box>\s*[\[0-9n]",
    ),
    _marked("qwenvl", "<ref>cat</ref><box>(12,34),(56,78)</box>", _REF_BOX, _PLAIN, scale=1000, hint=r"<box>\s*\("),
    # DeepSeek-VL2 (Wu et al. 2024): 0 to 999.
    _marked(
        "deepseekvl2",
        "<|ref|>cat<|/ref|><|det|>[[12, 34, 56, 78]]<|/det|>",
        ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"),
        _PLAIN,
        scale=999,
    ),
    # Kosmos-2 (Peng et al. 2023): the two corners as patches of 32 x 32.
    _marked(
        "kosmos2",
        "<phrase>cat</phrase><object><patch_index_0044><patch_index_0863></object>",
        ("<phrase>", "</phrase>", "<object>", "</object>"),
        r"(?:<patch_index_[0-9]{4}>|</delimiter_of_multi_objects/>|\s)*",
        number="<patch_index_([0-9]{4})>",
        bins=1024,
        arity=2,
        decode=_patches,
    ),
    # Molmo (Deitke et al. 2024) in hundredths of a side, its successor in thousandths with a number for each point.
    TextFormat(
        name="molmo",
        example='<point x="12.3" y="45.6" alt="cat">cat</point>',
        order="xy",
        scale=100,
        pattern=r'<points?(?P<box>(?:\s{1,9}[xy][0-9]{0,4}\s?=\s?"[^"<>]{0,20}")+)'
        r'(?:\s+alt="(?P<label>[^"<>]*)")?[^<>]{0,99}(?P<end>>(?:[^<]*</points?>)?|)',
        number=rf'"\s*({NUMBER})',
        opening="<points?[ >]",
        hint=r"<points?\s+[xy]",
    ),
    TextFormat(
        name="molmo2",
        example='<points coords="1 1 123 456">cat</points>',
        order="xy",
        scale=1000,
        pattern=rf'<points?\s+coords="\s*(?:[0-9.]{{1,9}}:?\s+)?(?P<box>{_TRIPLE}(?:[\s;,]+{_TRIPLE})*)\s*"\s*'
        r'(?:alt="[^"<>]*"\s*)?(?:/|>(?P<label>[^<]*))(?P<end></points?>|/?>|)',
        number=r"[0-9]+\s+([0-9]{1,4})\s+([0-9]{1,4})",
        opening="<points?[ >]",
        hint=r"<points?\s+coords=",
    ),
    LISTS,
)
REGISTRY: dict[str, TextFormat] = {row.name: row for row in _ROWS}
"""Every format by name, in the order in which they are tried."""
FORMATS: dict[str, str] = {row.name: row.example for row in _ROWS}
"""Formats by name, and what an object looks like in each."""


def register_format(row: TextFormat) -> TextFormat:
    """Add a format, so that `parse_answer`, `score` and their callers support it by name and with `auto`.

    JSON `keys` of a new row override those of an existing row.

    Raises:
        ValueError: if the name is taken

    Example:
        >>> row = TextFormat(
        ...     name="angle", example="cat @ 10|20|30|40;", pattern="(?P<label>[^@;]*)@(?P<box>[^@;]*);", scale=100
        ... )
        >>> _ = register_format(row)
        >>> from coord_eval import parse_answer
        >>> parse_answer("cat @ 10|20|30|40;").objects[0].box
        (0.1, 0.2, 0.3, 0.4)
        >>> del REGISTRY["angle"], FORMATS["angle"]  # so that the examples below do not see it
    """
    if row.name in (*REGISTRY, "auto", "none"):
        raise ValueError(f"register_format: {row.name!r} is taken; choose another name")
    REGISTRY[row.name], FORMATS[row.name] = row, row.example
    return row
