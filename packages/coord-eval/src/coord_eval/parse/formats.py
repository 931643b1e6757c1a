"""The table of answer formats: one row a format, and a parser for each way in which rows describe themselves.

A row has a regular expression (`pattern`), a marker family (`markers`), keys of JSON records (`keys`), or a `reader` of
lines. It brings its name, what an object looks like, the text that it needs, and the words of the README's table;
documentation and tests go over the table, with the answers of `tests/parse/published.jsonl`. Comments cite sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from coord_codec import MARKERS, InputError, MarkerFamily
from coord_codec.arguments import expect
from coord_codec.registry import Registry
from coord_eval.parse.answer import AnswerOrder
from coord_eval.parse.numbers import NUMBER, NumberKind, read_number


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    r"""The format in which a family of models writes boxes or points.

    Attributes:
        name: the name in `parse_answer(format=…)` and `Answer.format`
        example: one object as the model writes it
        divisor: what numbers are divided by, in the words of the README's table; by default `scale`
        needs: pieces of text of which an answer in this format contains at least one; empty for no such piece
        pattern: regular expression of the coordinates of one object. Its group `box` contains them, `label` (optional)
            the description; consecutive boxes share a label. A group `point` or `polygon` that matches states the
            geometry; a group `angle` is that of a box, in degrees. An optional group `end` is empty if the answer was
            cut off. A repetition must not match beyond the start of the next object (`[^<]*`, not `.*`), so that
            parsing takes linear time.
        marks: the marks before and after a label and a box, if the pattern has four
        pattern_after: the pattern of an answer that names each box after it, `<box>…</box><ref>cat</ref>`
        label: `inside` the pattern, or `before` it: the text between the previous object and this one
        number: pattern of one coordinate, with its digits in group 1 if it has groups
        order: order of the coordinates: `xyxy`, `yxyx`, `xywh`, `cxcywh`, or `xy` for points
        scale: divisor of a coordinate; None for the caller's scale. Without `bins`, a scale that the caller gives takes
            precedence over this one
        bins: number of coordinate tokens; None for plain numbers
        offset: summand of a bin before the division: .5 for the centre of the bin
        geometry: name of the geometry of all shapes; `any` if two coordinates are a point, four a box, and more a
            polygon; by default a point or a box, as the order has it
        arity: number of coordinates of one object, for `decode`
        groups: returns the numbers of each shape in the text of the group `box`, if `number` cannot tell them apart
        decode: maps the coordinates of one object as written to `x1, y1, x2, y2` in [0, 1], if order and scale
            cannot, or if text stands between them
        opening: pattern of the start of an object; a start without an object is a drop
        hint: pattern by which `auto` recognises the format; by default `opening`, else `pattern`
        noise: pattern that is removed from labels
        plain: pattern of a label and the numbers of four tokens, or of these and a label, in an answer of such objects
            alone, which is read at once; empty where a label may hold other marks
        markers: a marker family instead of a pattern
        keys: JSON keys whose values are the coordinates, instead of a pattern
        reader: `lines` or `table`, the parsers of text without marks, instead of a pattern

    Raises:
        ValueError: for a pattern that does not compile or has no group `box`, or an unknown order

    Example:
        >>> row = TextFormat(name="tags", example="<o>cat: 1 2 3 4</o>", pattern="<o>(?P<label>[^<:]*):(?P<box>[^<]*)<")
        >>> row.compiled.search(row.example)["label"]
        'cat'
    """

    name: str
    example: str
    divisor: str = ""
    needs: tuple[str, ...] = ()
    pattern: str = ""
    marks: tuple[str, ...] = ()
    pattern_after: str = ""
    label: Literal["inside", "before"] = "inside"
    number: str = NUMBER
    order: AnswerOrder = "xyxy"
    scale: float | None = None
    bins: int | None = None
    offset: float = 0.0
    geometry: str = ""
    arity: int = 0
    groups: Callable[[str], list[list[float]]] | None = None
    decode: Callable[[Sequence[float]], Sequence[float]] | None = None
    opening: str = ""
    hint: str = ""
    noise: str = ""
    plain: str = ""
    markers: MarkerFamily | None = None
    keys: tuple[str, ...] = ()
    reader: Literal["", "lines", "table"] = ""

    def __post_init__(self) -> None:
        if self.order not in get_args(AnswerOrder):
            orders = ", ".join(get_args(AnswerOrder))
            raise ValueError(f"{self.name}: order: expected one of {orders}, found {self.order!r}")
        if sum(map(bool, (self.pattern, self.markers, self.keys, self.reader))) != 1:
            raise ValueError(f"{self.name}: expected one of pattern, markers and keys")
        for name in ("pattern", "number", "opening", "hint", "noise"):
            try:
                compiled_pattern = re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{self.name}: {name}: {error}") from error
            if name == "pattern" and self.pattern and "box" not in compiled_pattern.groupindex:
                raise ValueError(f"{self.name}: pattern: expected a group (?P<box>…) around the coordinates")
        object.__setattr__(self, "arity", self.arity or len(self.order))
        object.__setattr__(self, "divisor", self.divisor or ("`scale`" if self.scale is None else f"{self.scale:g}"))

    @property
    def kind(self) -> NumberKind:
        """What the format says about the geometry of coordinates: by their number, points, or boxes."""
        return self.geometry or ("point" if len(self.order) == 2 else "box")

    @cached_property
    def units(self) -> list[float]:
        """The coordinate in [0, 1] of each bin; empty for plain numbers."""
        bins = self.bins or 0
        return [min((k + self.offset) / (self.scale or bins), 1.0) for k in range(bins)]

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
    label = rf"{ref}(?P<label>(?:(?!{'|'.join(escaped)})[\s\S])*){ref_end}"
    if marks[2] == "<box>":
        box, box_end = (
            r"<(?:box|(?P<point>point)|(?P<polygon>quad|poly|polygon))>",
            "</(?:box|point|quad|poly|polygon)>",
        )
    shape = rf"{box}(?P<box>{body})(?P<end>{box_end}|)"
    return TextFormat(
        name=name,
        example=example,
        pattern=rf"(?:{label}\s*)?{shape}",
        marks=tuple(marks),
        pattern_after=rf"{shape}(?:\s*{label})?",
        **{"needs": (marks[2],), "opening": f"{ref}|{escaped[2]}", **more},
    )


def _keyed(name: str, example: str, keys: str, **more: Any) -> TextFormat:
    """Return a format of JSON whose boxes are the values of some keys."""
    return TextFormat(name=name, example=example, keys=tuple(keys.split()), **more)


def _run(token: str) -> str:
    """Return the pattern of tokens one after the other; a server may write blanks between added tokens."""
    return rf"{token}(?:[ \t]{{0,8}}{token})*"


_ELEMENT = (
    r"<(?!(?:s|pad|poly|od|sep|bos|eos|ocr|loc_[0-9]+)>)(?P<label>[a-z][a-z0-9_]{0,40})>\s*(?:<has_[a-z]{1,20}>\s*)*"
)
_PLAIN_LABEL = r"(?! ?and )[\w '-]{1,80}"
_BIN = r"<([0-9]{1,4})>"
_NONE = "[Nn]one|null"
_BINS = rf"(?:<[0-9]{{1,4}}>|[\s,]|{_NONE})*"
_PLAIN = rf"(?:[-+\u2212\s0-9.,;%()\[\]]|{_NONE})*"
_AXES = r"(?:<[xy]_[0-9.]{1,9}>|[\s,])*"
_AXIS = r"<[xy]_([0-9]{1,5}(?:\.[0-9]{1,6})?)>"
_QWEN = MARKERS["qwen"].tokens
_REF_BOX = ("<ref>", "</ref>", "<box>", "</box>")


def _patches(pair: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the box of Kosmos-2's two patches of 32 x 32: between their centres, or around both in one row or column.

    Source: `decode_string.py` of the model's demo.
    """
    (y1, x1), (y2, x2) = (divmod(index, 32) for index in pair)
    near, far = (0.0, 1.0) if x1 == x2 or y1 == y2 else (0.5, 0.5)
    return (x1 + near) / 32, (y1 + near) / 32, (x2 + far) / 32, (y2 + far) / 32


def _frames(written: str) -> list[list[float]]:
    """Return the points of Molmo 2: in each image or frame, its number or time, then number, x and y of each point."""
    points: list[list[float]] = []
    for frame in re.split(r"[;\t\n]+", written):
        numbers = list(map(read_number, re.findall(NUMBER, frame)))
        if len(numbers) % 3 == 1:
            points += [numbers[i + 1 : i + 3] for i in range(1, len(numbers), 3)]
        elif numbers:
            points += [[]] * ((len(numbers) + 2) // 3)  # a number is missing, and which one cannot be known
    return points


def names_after(text: str, begin: int, marks: Sequence[str]) -> bool:
    """Return whether an answer names each box after it: a box comes first in it, and a name last.

    Example:
        >>> names_after("<box>1</box><ref>a</ref><box>2</box><ref>b</ref>", 0, _REF_BOX)
        True
    """
    ref, ref_end, box, box_end = marks
    first, last = text.find(box, begin), text.rfind(ref_end)
    return 0 <= first < text.find(ref, begin) and last > text.rfind(box_end)


_ROWS = (
    TextFormat(
        name="obj",
        example="<obj_start>cat, four coordinate tokens or (x1,y1),(x2,y2), <obj_end>",
        divisor="the grid's 1000",
        markers=MARKERS["obj"],
    ),
    TextFormat(
        name="qwen",
        markers=MARKERS["qwen"],
        example="<|object_ref_start|>cat<|object_ref_end|><|box_start|>, coordinates as in obj, <|box_end|>",
        divisor="tokens: the grid; plain: `scale`",
    ),
    _keyed(
        "json",
        '{"bbox_2d": [x1, y1, x2, y2], "label": "cat"}; numbers, numbers as strings or coordinate tokens',
        "bbox_2d bbox box bounding_box boundingBox bboxes boxes rect bounds bbox2d xyxy bbox_xyxy box_xyxy "
        "box_coordinates bounding_box_2d data-bbox",
        divisor="tokens: the grid; plain: `scale`",
    ),
    # Gemini writes y first, in thousandths (https://ai.google.dev/gemini-api/docs/image-understanding).
    _keyed("gemini", '{"box_2d": [y1, x1, y2, x2], "label": "cat"}', "box_2d box2d", order="yxyx", scale=1000),
    # Gemini Robotics-ER (https://ai.google.dev/gemini-api/docs/robotics-overview); fractions and tokens are x first.
    _keyed(
        "gemini_points",
        '{"point": [y, x], "label": "cat"}, whole numbers',
        "point",
        order="yxyx",
        geometry="point",
        scale=1000,
    ),
    _keyed("points", '{"point_2d": [x, y], "label": "cat"}', "point_2d points_2d point2d points POINT", order="xy"),
    # Agents and free answers: two numbers are a point, four a box, more an outline.
    _keyed(
        "places",
        '{"action": "left_click", "coordinate": [x, y]}',
        "coordinate coordinates coords location position region click start_coordinate end_coordinate start_box "
        "end_box start_point end_point click_point place corners Coordinate Coordinates Position Location",
        geometry="any",
        order="xy",
    ),
    _keyed(
        "percent",
        '{"bbox_percent": [x1, y1, x2, y2], "label": "cat"}',
        "bbox_percent box_percent bbox_percentage box_percentage",
        scale=100,
    ),
    _keyed(
        "widths",
        '{"bbox_xywh": [x, y, width, height], "label": "cat"}',
        "bbox_xywh box_xywh xywh bbox_ltwh ltwh bbox_tlwh tlwh",
        order="xywh",
    ),
    _keyed("rows", '{"bbox_yxyx": [y1, x1, y2, x2], "label": "cat"}', "bbox_yxyx box_yxyx yxyx", order="yxyx"),
    _keyed(
        "centres",
        '{"bbox_cxcywh": [x, y of the centre, width, height], "label": "cat"}',
        "bbox_cxcywh box_cxcywh cxcywh bbox_xcycwh xcycwh xywhn",
        order="cxcywh",
    ),
    _keyed(
        "outlines",
        '{"quad_boxes": [[x1, y1, x2, y2, x3, y3, x4, y4]], "labels": ["SALE"]}',
        "quad_boxes quad_box quad quads quadrilateral outline contour vertices normalized_vertices bounding_poly",
        order="xy",
        geometry="polygon",
    ),
    # PaliGemma (Beyer et al. 2024): <loc0000> to <loc1023>, y before x, coordinate k/1024 (big_vision).
    TextFormat(
        name="paligemma",
        example="<loc0034><loc0012><loc0078><loc0056> cat ; four of 1024 bins, y first",
        needs=("<loc",),
        pattern=rf"(?P<box>{_run('<loc[0-9]{4}>')})" + r"(?P<end>(?P<label>[^;<]*(?:<(?!loc[0-9]{4}>)[^;<]*)*);?)",
        number="<loc([0-9]{4})>",
        order="yxyx",
        scale=1024,
        bins=1024,
        hint="<loc[0-9]{4}>",
        noise=r"</?s>|<pad>|<eos>|<bos>|<seg[0-9]{3}>",
        plain=rf"{'<loc([0-9]{4})>' * 4}({_PLAIN_LABEL}) ?(?:;|\Z)",
    ),
    # DocTags (SmolDocling, Nassar et al. 2025): <loc_0> to <loc_500> within the element of a page that they place.
    TextFormat(
        name="doctags",
        example="<text><loc_105><loc_80><loc_390><loc_100>First words.</text>",
        needs=("<loc_",),
        pattern=rf"{_ELEMENT}(?P<box>{_run('<loc_[0-9]{1,3}>')})",
        number="<loc_([0-9]{1,3})>",
        scale=500,
        bins=501,
        hint=f"{_ELEMENT}<loc_[0-9]",
    ),
    # Florence-2 (Xiao et al. 2023): <loc_0> to <loc_999>; its processor decodes a bin as its centre.
    TextFormat(
        name="florence2",
        example="cat<loc_12><loc_34><loc_56><loc_78>, read at the centre of 1000 bins",
        needs=("<loc_",),
        pattern=rf"(?P<polygon><poly>\s?)?(?P<box>{_run('<loc_[0-9]{1,4}>')})(?:\s?</poly>)?",
        label="before",
        number="<loc_([0-9]{1,4})>",
        scale=1000,
        bins=1000,
        offset=0.5,
        hint="<loc_[0-9]{1,4}>",
        noise=r"</?s>|<pad>|</?poly>|</?od>|<sep>|^and\s+(?=(?:an?|the)\s)",
        plain=rf"({_PLAIN_LABEL}){'<loc_([0-9]{1,4})>' * 4}",
    ),
    # PaddleOCR-VL: the four corners of each line of text after it.
    TextFormat(
        name="paddleocr",
        example="SALE<|LOC_410|><|LOC_60|>…, eight of 1001 bins: four corners",
        needs=("<|LOC_",),
        pattern=rf"(?P<box>{_run('<[|]LOC_[0-9]{1,4}[|]>')})",
        label="before",
        number=r"<\|LOC_([0-9]{1,4})\|>",
        scale=1000,
        bins=1001,
        geometry="any",
        hint=r"<\|LOC_[0-9]",
        noise=r"<\|[A-Z_]{1,20}\|>|</?s>",
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
        geometry="any",
    ),
    # MinerU (Niu et al. 2025): the box of each block of a page before its type.
    TextFormat(
        name="mineru",
        example="<|box_start|>100 200 500 700<|box_end|><|ref_start|>table<|ref_end|>",
        needs=("<|ref_start|>",),
        pattern=rf"<\|box_start\|>(?P<box>{_PLAIN})(?P<end><\|box_end\|>\s*<\|ref_start\|>(?P<label>[^<]*)<\|ref_end\|>|)",
        scale=1000,
        opening=r"<\|box_start\|>",
        hint=r"<\|ref_start\|>",
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
        geometry="any",
    ),
    # Youtu-VL: tokens that name their axis, in pixels of the image.
    _marked(
        "youtu",
        "<ref>cat</ref><box><x_12><y_34><x_56><y_78></box>",
        _REF_BOX,
        _AXES,
        number=_AXIS,
        needs=("<box>", "<point>", "<quad>", "<poly"),
        hint=r"<(?:box|point|quad|poly|polygon)>\s*<[xy]_",
        geometry="any",
    ),
    # Kosmos-2.5 (Lv et al. 2023): a line of text after its box, in pixels.
    TextFormat(
        name="kosmos2.5",
        example="<bbox><x_12><y_34><x_56><y_78></bbox>GREEN TEA",
        needs=("<bbox>",),
        pattern=rf"<bbox>(?P<box>{_AXES})(?P<end></bbox>(?P<label>[^<\n]*)|)",
        number=_AXIS,
        opening="<bbox>",
        hint=r"<bbox>\s*<[xy]_",
    ),
    # Nemotron Parse: upper left corner, text, lower right corner and class of a block, in fractions of the page.
    TextFormat(
        name="nemotron",
        example="<x_0.12><y_0.07># Heading<x_0.61><y_0.09><class_Title>",
        needs=("<class_",),
        pattern=r"(?P<box><x_[0-9.]{1,9}>\s{0,4}<y_[0-9.]{1,9}>(?:[^<]*(?:<(?!x_[0-9])[^<]*)*<x_[0-9.]{1,9}>\s{0,4}<y_[0-9.]{1,9}>)?)"
        r"\s{0,4}(?P<end><class_(?P<label>[^<>]*)>|)",
        number=_AXIS,
        scale=1,
        decode=tuple,
        hint=r"<x_[0-9.]+>\s{0,4}<y_[0-9.]+>",
    ),
    # InternVL (Chen et al. 2023) in nested lists and Qwen-VL (Bai et al. 2023) in pairs, both in thousandths.
    _marked(
        "internvl",
        "<ref>cat</ref><box>[[12, 34, 56, 78]]</box>",
        _REF_BOX,
        _PLAIN,
        scale=1000,
        needs=("</ref>",),
        hint=r"(?:<box>|</ref>\s*<point>)\s*[\[0-9n]",
    ),
    _marked(
        "qwenvl",
        "<ref>cat</ref><box>(12,34),(56,78)</box>",
        _REF_BOX,
        _PLAIN,
        scale=1000,
        needs=("</ref>",),
        hint=r"(?:<box>|</ref>\s*<(?:point|quad)>)\s*\(",
    ),
    # DeepSeek-VL2 (Wu et al. 2024): 0 to 999.
    _marked(
        "deepseekvl2",
        "<|ref|>cat<|/ref|><|det|>[[12, 34, 56, 78]]<|/det|>",
        ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"),
        _PLAIN,
        scale=999,
    ),
    # Unlimited-OCR, after DeepSeek-OCR (Wei et al. 2025): type and box of a block of a page in one pair of marks.
    TextFormat(
        name="unlimitedocr",
        example="<|det|>text [12, 34, 56, 78]<|/det|>First words.",
        needs=("<|det|>",),
        pattern=rf"<\|det\|>\s*(?P<label>[A-Za-z_][^<>\[\]]*)(?P<box>\[{_PLAIN})(?P<end><\|/det\|>|)",
        scale=999,
        opening=r"<\|det\|>",
        hint=r"<\|det\|>\s*[A-Za-z]",
    ),
    # MiniGPT-v2 (Chen et al. 2023): hundredths in braces after the phrase; GeoChat
    # (Kuckreja et al. 2024) adds an angle.
    TextFormat(
        name="minigpt",
        example="<p>cat</p> {<12><34><56><78>}",
        needs=("{<", "{ <"),
        pattern=r"(?:<p>(?P<label>[^<]*)</p>\s*)?\{\s?(?P<box><[0-9]{1,4}>(?:<[0-9]{1,4}>|<delim>|[\s,])*)"
        r"(?:\|\s?<(?P<angle>[0-9]{1,3})>\s?)?(?P<end>\}|)",
        number=_BIN,
        scale=100,
        bins=101,
        hint=r"\{\s?<[0-9]{1,4}>",
    ),
    # Kosmos-2 (Peng et al. 2023): the two corners as patches of 32 x 32.
    _marked(
        "kosmos2",
        "<phrase>cat</phrase><object><patch_index_0044><patch_index_0863></object>",
        ("<phrase>", "</phrase>", "<object>", "</object>"),
        r"(?:<patch_index_[0-9]{4}>|</delimiter_of_multi_objects/>|\s)*",
        divisor="32 patches a side",
        needs=("<patch_index_",),
        number="<patch_index_([0-9]{4})>",
        bins=1024,
        arity=2,
        decode=_patches,
    ),
    # Isaac (Perceptron 2025): boxes, points and polygons in thousandths, alone or in a collection with one name.
    TextFormat(
        name="isaac",
        example='<point_box mention="cat"> (12,34) (56,78) </point_box>, <point …>, <polygon …>',
        needs=("<point", "<polygon"),
        pattern=r'(?:<(?:collection|track)\b[^<>"]{0,99}(?:"(?P<label_of_all>[^"<]*)"[^<>]{0,99})?>\s*)?'
        r'<(?:(?P<polygon>polygon)|point_box|(?P<point>point))(?=[\s>])(?:\s+mention="(?P<label>[^"<]*)")?[^<>]{0,99}>'
        rf"(?P<box>{_PLAIN})(?P<end></(?:polygon|point_box|point)>|)",
        scale=1000,
        opening=r"<(?:polygon|point_box|point)[\s>]",
        hint=r'<(?:(?:polygon|point)\s+mention="[^"]*"[^<>]*>\s*|(?:polygon|point)>\s+|'
        r'point_box(?:\s+mention="[^"]*")?[^<>]*>\s*)\(|<(?:collection|track)\s+mention',
    ),
    # Molmo (Deitke et al. 2024) in hundredths of a side, its successor in thousandths: the number of an image or a
    # time, then the number, x and y of each point.
    TextFormat(
        name="molmo",
        example='<point x="12.3" y="45.6" alt="cat">cat</point>',
        needs=("<point",),
        order="xy",
        scale=100,
        pattern=r'<points?(?P<box>(?:\s{1,9}[xy][0-9]{0,4}\s?=\s?"[^"<>]{0,20}")+)'
        r'(?:\s+alt="(?P<label>[^"<>]*)")?[^<>]{0,99}(?P<end>>(?:(?P<label_of_all>[^<]*)</points?>)?|)',
        number=rf'"\s*({NUMBER})',
        opening="<points?[ >]",
        hint=r"<points?\s+[xy]",
    ),
    TextFormat(
        name="molmo2",
        example='<points coords="1 1 123 456">cat</points>',
        needs=("<point", "<track"),
        order="xy",
        scale=1000,
        pattern=r'<(?:point|track)s?\s+coords="(?P<box>[0-9.:;,\s]*)(?:"\s*(?:alt="(?P<label_of_all>[^"<>]*)"\s*)?)?'
        r"(?:/|>(?P<label>[^<]*)|)(?P<end></(?:point|track)s?>|/?>|)",
        groups=_frames,
        opening="<(?:point|track)s?[ >]",
        hint=r"<(?:point|track)s?\s+coords=",
    ),
    TextFormat(
        name="table", example="label,x1,y1,x2,y2 above cat,120,240,560,680; or the same in Markdown", reader="table"
    ),
    # Shikra (Chen et al. 2023) in [0, 1], CogVLM (Wang et al. 2023) and GLM-4.5V in thousandths; Seed's tags; prose.
    TextFormat(
        name="lists",
        example="the cat[0.1,0.2,0.3,0.4] or 1. cat: [100, 200, 300, 400] or cat: x=1, y=2, width=3, height=4",
        reader="lines",
    ),
)
FORMATS: Registry[TextFormat] = Registry("answer format", ((row.name, row) for row in _ROWS))
"""Every format by name, in the order in which they are tried."""
TABLE, LISTS = FORMATS["table"], FORMATS["lists"]
"""The formats that are tried only if no other one matches, since numbers without marks can mean anything."""


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
        >>> FORMATS.remove("angle")  # so that the examples below do not see it
    """
    expect("row", row, TextFormat)
    if row.name in ("auto", "none"):
        raise InputError(f"answer format {row.name!r}: expected another name, since this one has a meaning already")
    return FORMATS.add(row.name, row)
