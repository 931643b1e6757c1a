"""The table of answer formats: one row a format, and a parser for each way in which rows describe themselves.

A row has a regular expression (`pattern`), a marker family (`markers`), keys of JSON records (`keys`), or a `reader` of
lines. It brings its name, what an object looks like, published answers with the objects in them, the text that it
needs, and the words of the README's table; documentation and tests go over the table. Comments cite sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from coord_codec import MARKERS, MarkerFamily
from coord_codec.arguments import expect
from coord_eval.parse.answer import Order
from coord_eval.parse.numbers import NUMBER, Kind


class Published(NamedTuple):
    """One published answer and the objects in it.

    Attributes:
        text: the answer
        objects: label and coordinates of each object in [0, 1]: `x1, y1, x2, y2` of a box, or `x, y` of a point
    """

    text: str
    objects: tuple[tuple[str | float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    r"""The format in which a family of models writes boxes or points.

    Attributes:
        name: the name in `parse_answer(format=…)` and `Answer.format`
        example: one object as the model writes it
        published: answers that `auto` has to read in this format, whatever other rows there are; tests go over them
        divisor: what numbers are divided by, in the words of the README's table
        needs: pieces of text of which an answer in this format contains at least one; empty for no such piece
        pattern: regular expression of the coordinates of one object. Its group `box` contains them, `label` (optional)
            the description; consecutive boxes share a label. A group `point` or `polygon` that matches states the
            geometry. An optional group `end` is empty if the answer was cut off. A repetition must not match beyond the
            start of the next object (`[^<]*`, not `.*`), so that parsing takes linear time.
        label: `inside` the pattern, or `before` it: the text between the previous object and this one
        number: pattern of one coordinate, with its digits in group 1 if it has groups
        order: order of the coordinates: `xyxy`, `yxyx`, `xywh`, `cxcywh`, or `xy` for points
        scale: divisor of a coordinate; None for the caller's scale. Without `bins`, a scale that the caller gives takes
            precedence over this one
        bins: number of coordinate tokens; None for plain numbers
        offset: summand of a bin before the division: .5 for the centre of the bin
        by_count: whether two coordinates are a point, four a box, and more a polygon
        geometry: name of the geometry of all shapes, `any` if their numbers tell it; by default a point or a box, as
            the order has it
        arity: number of coordinates of one object, for `decode`
        groups: returns the numbers of each shape in the text of the group `box`, if `number` cannot tell them apart
        decode: maps the coordinates of one object as written to `x1, y1, x2, y2` in [0, 1], if order and scale
            cannot, or if text stands between them
        opening: pattern of the start of an object; a start without an object is a drop
        hint: pattern by which `auto` recognises the format; by default `opening`, else `pattern`
        noise: pattern that is removed from labels
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
    published: tuple[Published, ...] = ()
    divisor: str = "`scale`"
    needs: tuple[str, ...] = ()
    pattern: str = ""
    label: Literal["inside", "before"] = "inside"
    number: str = NUMBER
    order: Order = "xyxy"
    scale: float | None = None
    bins: int | None = None
    offset: float = 0.0
    by_count: bool = False
    geometry: str = ""
    arity: int = 0
    groups: Callable[[str], list[list[float]]] | None = None
    decode: Callable[[Sequence[float]], Sequence[float]] | None = None
    opening: str = ""
    hint: str = ""
    noise: str = ""
    markers: MarkerFamily | None = None
    keys: tuple[str, ...] = ()
    reader: Literal["", "lines", "table"] = ""

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise ValueError(f"{self.name}: order: expected one of {', '.join(get_args(Order))}, found {self.order!r}")
        if sum(map(bool, (self.pattern, self.markers, self.keys, self.reader))) != 1:
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

    @property
    def kind(self) -> Kind:
        """What the format says about the geometry of coordinates: by their number, points, or boxes."""
        if self.geometry:
            return self.geometry
        return "any" if self.by_count else "point" if len(self.order) == 2 else "box"

    @cached_property
    def units(self) -> list[float]:
        """The coordinate in [0, 1] of each bin; empty for plain numbers."""
        bins = self.bins or 0
        return [min((k + self.offset) / (self.scale or bins), 1.0) for k in range(bins)]

    @cached_property
    def heads(self) -> frozenset[str]:
        """The three characters after `<`, of which a text in this format has some; empty if it needs no such piece."""
        needs = (self.markers.tokens[0], self.markers.tokens[-2]) if self.markers else self.needs
        return frozenset(piece[1:4] for piece in needs if all(n[0] == "<" and len(n) > 3 for n in needs))

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
    if marks[2] == "<box>":
        box, box_end = (
            r"<(?:box|(?P<point>point)|(?P<polygon>quad|poly|polygon))>",
            "</(?:box|point|quad|poly|polygon)>",
        )
    pattern = rf"(?:{label})?{box}(?P<box>{body})(?P<end>{box_end}|)"
    return TextFormat(
        name=name, example=example, pattern=pattern, **{"needs": (marks[2],), "opening": f"{ref}|{escaped[2]}", **more}
    )


def _run(token: str) -> str:
    """Return the pattern of tokens one after the other; a server may write blanks between added tokens."""
    return rf"{token}(?:[ \t]{{0,8}}{token})*"


_BIN = r"<([0-9]{1,4})>"
_NONE = "[Nn]one|null"
_BINS = rf"(?:<[0-9]{{1,4}}>|[\s,]|{_NONE})*"
_PLAIN = rf"(?:[-+\s0-9.,;()\[\]]|{_NONE})*"
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
        numbers = [float(number) for number in re.findall(NUMBER, frame)]
        if len(numbers) % 3 == 1:
            points += [numbers[i + 1 : i + 3] for i in range(1, len(numbers), 3)]
        elif numbers:
            points += [[]] * ((len(numbers) + 2) // 3)  # a number is missing, and which one cannot be known
    return points


_ROWS = (
    TextFormat(
        name="obj",
        example="<obj_start>cat, four coordinate tokens or (x1,y1),(x2,y2), <obj_end>",
        divisor="the grid's 1000",
        markers=MARKERS["obj"],
        published=(
            Published(
                "<obj_start>cat<|coord_12|><|coord_34|><|coord_56|><|coord_78|><obj_end>",
                (("cat", 0.012, 0.034, 0.056, 0.078),),
            ),
        ),
    ),
    TextFormat(
        name="qwen",
        markers=MARKERS["qwen"],
        example="<|object_ref_start|>cat<|object_ref_end|><|box_start|>, coordinates as in obj, <|box_end|>",
        divisor="tokens: the grid; plain: `scale`",
        published=(
            Published(
                "<|object_ref_start|>cat<|object_ref_end|><|box_start|>(110,210),(330,440)<|box_end|>",
                (("cat", 0.11, 0.21, 0.33, 0.44),),
            ),
            Published("Action: click(start_box='<|box_start|>(537,274)<|box_end|>')", (("", 0.537, 0.274),)),
        ),
    ),
    TextFormat(
        name="json",
        keys=(
            *(
                "bbox_2d",
                "bbox",
                "box",
                "bounding_box",
                "boundingBox",
                "bboxes",
                "boxes",
                "rect",
                "bounds",
                "bbox2d",
                "xyxy",
            ),
            *("bbox_xyxy", "box_xyxy", "box_coordinates", "bounding_box_2d", "data-bbox"),
        ),
        example='{"bbox_2d": [x1, y1, x2, y2], "label": "cat"}; numbers, numbers as strings or coordinate tokens',
        divisor="tokens: the grid; plain: `scale`",
        published=(
            Published(
                '```json\n[\n\t{"bbox_2d": [120, 240, 560, 680], "label": "cat"}\n]\n```',
                (("cat", 0.12, 0.24, 0.56, 0.68),),
            ),
            Published('{"cat": [[100, 200, 300, 400]]}', (("cat", 0.1, 0.2, 0.3, 0.4),)),
            Published(
                '{"objects": [{"x_min": 0.1, "y_min": 0.2, "x_max": 0.3, "y_max": 0.4}]}', (("", 0.1, 0.2, 0.3, 0.4),)
            ),
            # Falcon Perception: centre and size in [0, 1].
            Published(
                '{"xy": {"x": 0.5, "y": 0.5}, "hw": {"h": 0.2, "w": 0.4}, "label": "cat"}',
                (("cat", 0.3, 0.4, 0.7, 0.6),),
            ),
        ),
    ),
    # Gemini writes y first, in thousandths (https://ai.google.dev/gemini-api/docs/image-understanding).
    TextFormat(
        name="gemini",
        example='{"box_2d": [y1, x1, y2, x2], "label": "cat"}',
        divisor="1000",
        keys=("box_2d", "box2d"),
        order="yxyx",
        scale=1000,
        published=(Published('[{"box_2d": [200, 100, 400, 300], "label": "cat"}]', (("cat", 0.1, 0.2, 0.3, 0.4),)),),
    ),
    # Gemini Robotics-ER (https://ai.google.dev/gemini-api/docs/robotics-overview); fractions and tokens are x first.
    TextFormat(
        name="gemini_points",
        example='{"point": [y, x], "label": "cat"}, whole numbers',
        divisor="1000",
        keys=("point",),
        order="yxyx",
        geometry="point",
        scale=1000,
        published=(Published('[{"point": [376, 508], "label": "small banana"}]', (("small banana", 0.508, 0.376),)),),
    ),
    TextFormat(
        name="points",
        example='{"point_2d": [x, y], "label": "cat"}',
        keys=("point_2d", "points_2d", "point2d", "points", "POINT"),
        order="xy",
        published=(Published('[{"point_2d": [250, 500], "label": "cat"}]', (("cat", 0.25, 0.5),)),),
    ),
    # Agents and free answers: two numbers are a point, four a box, more an outline.
    TextFormat(
        name="places",
        example='{"action": "left_click", "coordinate": [x, y]}',
        geometry="any",
        keys=(
            *("coordinate", "coordinates", "coords", "location", "position", "region", "click", "start_coordinate"),
            *("end_coordinate", "start_box", "end_box", "start_point", "end_point", "click_point", "place"),
            *("corners", "Coordinate", "Coordinates", "Position", "Location"),
        ),
        order="xy",
        published=(
            Published(
                '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": '
                "[512, 300]}}\n</tool_call>",
                (("", 0.512, 0.3),),
            ),
        ),
    ),
    TextFormat(
        name="percent",
        example='{"bbox_percent": [x1, y1, x2, y2], "label": "cat"}',
        divisor="100",
        keys=("bbox_percent", "box_percent", "bbox_percentage", "box_percentage"),
        scale=100,
        published=(Published('{"bbox_percent": [10, 20, 30, 40], "label": "cat"}', (("cat", 0.1, 0.2, 0.3, 0.4),)),),
    ),
    TextFormat(
        name="widths",
        example='{"bbox_xywh": [x, y, width, height], "label": "cat"}',
        keys=("bbox_xywh", "box_xywh", "xywh"),
        order="xywh",
        published=(Published('{"bbox_xywh": [100, 200, 200, 200], "label": "cat"}', (("cat", 0.1, 0.2, 0.3, 0.4),)),),
    ),
    TextFormat(
        name="centres",
        example='{"bbox_cxcywh": [x, y of the centre, width, height], "label": "cat"}',
        keys=("bbox_cxcywh", "box_cxcywh", "cxcywh"),
        order="cxcywh",
        published=(Published('{"bbox_cxcywh": [200, 300, 200, 200], "label": "cat"}', (("cat", 0.1, 0.2, 0.3, 0.4),)),),
    ),
    TextFormat(
        name="outlines",
        example='{"quad_boxes": [[x1, y1, x2, y2, x3, y3, x4, y4]], "labels": ["SALE"]}',
        keys=(
            *("quad_boxes", "quad_box", "quad", "quads", "quadrilateral", "outline", "contour", "vertices"),
            *("normalized_vertices", "bounding_poly"),
        ),
        order="xy",
        geometry="polygon",
        published=(
            Published(
                '{"quad_boxes": [[100, 200, 300, 210, 300, 260, 100, 250]], "labels": ["SALE"]}',
                (("SALE", 0.1, 0.2, 0.3, 0.26),),
            ),
        ),
    ),
    # PaliGemma (Beyer et al. 2024): <loc0000> to <loc1023>, y before x, coordinate k/1024 (big_vision).
    TextFormat(
        name="paligemma",
        example="<loc0034><loc0012><loc0078><loc0056> cat ; four of 1024 bins, y first",
        divisor="1024",
        needs=("<loc",),
        pattern=rf"(?P<box>{_run('<loc[0-9]{4}>')})" + r"(?P<end>(?P<label>[^;<]*(?:<(?!loc[0-9]{4}>)[^;<]*)*);?)",
        number="<loc([0-9]{4})>",
        order="yxyx",
        scale=1024,
        bins=1024,
        hint="<loc[0-9]{4}>",
        noise=r"</?s>|<pad>|<eos>|<bos>|<seg[0-9]{3}>",
        published=(Published("<loc0256><loc0128><loc0768><loc0512> cat", (("cat", 0.125, 0.25, 0.5, 0.75),)),),
    ),
    # DocTags (SmolDocling, Nassar et al. 2025): <loc_0> to <loc_500> within the element of a page that they place.
    TextFormat(
        name="doctags",
        example="<text><loc_105><loc_80><loc_390><loc_100>First words.</text>",
        divisor="500",
        needs=("<loc_",),
        pattern=r"<(?!(?:s|pad|poly|od|sep|bos|eos|ocr|loc_[0-9]+)>)(?P<label>[a-z][a-z0-9_]{0,40})>\s*"
        rf"(?:<has_[a-z]{{1,20}}>\s*)*(?P<box>{_run('<loc_[0-9]{1,3}>')})",
        number="<loc_([0-9]{1,3})>",
        scale=500,
        bins=501,
        hint=r"<(?!(?:s|pad|poly|od|sep|bos|eos|ocr|loc_[0-9]+)>)[a-z][a-z0-9_]{0,40}>\s*(?:<has_[a-z]{1,20}>\s*)*<loc_[0-9]",
        published=(
            Published(
                "<doctag><page_header><loc_140><loc_45><loc_350><loc_55>Running head</page_header>\n</doctag>",
                (("page_header", 0.28, 0.09, 0.7, 0.11),),
            ),
        ),
    ),
    # Florence-2 (Xiao et al. 2023): <loc_0> to <loc_999>; its processor decodes a bin as its centre.
    TextFormat(
        name="florence2",
        example="cat<loc_12><loc_34><loc_56><loc_78>, read at the centre of 1000 bins",
        divisor="1000",
        needs=("<loc_",),
        pattern=rf"(?P<polygon><poly>\s?)?(?P<box>{_run('<loc_[0-9]{1,4}>')})(?:\s?</poly>)?",
        label="before",
        number="<loc_([0-9]{1,4})>",
        scale=1000,
        bins=1000,
        offset=0.5,
        hint="<loc_[0-9]{1,4}>",
        noise=r"</?s>|<pad>|</?poly>|</?od>|<sep>|^and\s+(?=(?:an?|the)\s)",
        published=(
            Published("</s><s>car<loc_53><loc_333><loc_933><loc_774></s>", (("car", 0.0535, 0.3335, 0.9335, 0.7745),)),
            Published(
                "</s><s>STOP<loc_120><loc_100><loc_300><loc_110><loc_310><loc_200><loc_130><loc_190></s>",
                (("STOP", 0.1205, 0.1005, 0.3105, 0.2005),),
            ),
        ),
    ),
    # PaddleOCR-VL: the four corners of each line of text after it.
    TextFormat(
        name="paddleocr",
        example="SALE<|LOC_410|><|LOC_60|>…, eight of 1001 bins: four corners",
        divisor="1000",
        needs=("<|LOC_",),
        pattern=rf"(?P<box>{_run('<[|]LOC_[0-9]{1,4}[|]>')})",
        label="before",
        number=r"<\|LOC_([0-9]{1,4})\|>",
        scale=1000,
        bins=1001,
        by_count=True,
        hint=r"<\|LOC_[0-9]",
        noise=r"<\|[A-Z_]{1,20}\|>|</?s>",
        published=(
            Published(
                "DEAR ANNA<|LOC_410|><|LOC_60|><|LOC_570|><|LOC_60|><|LOC_570|><|LOC_82|><|LOC_410|><|LOC_82|>\n",
                (("DEAR ANNA", 0.41, 0.06, 0.57, 0.082),),
            ),
        ),
    ),
    # Rex-Omni (Jiang et al. 2025): 1000 tokens, divided by 999 in its parser; commas between the boxes of a phrase.
    _marked(
        "rexomni",
        "<|object_ref_start|>cat<|object_ref_end|><|box_start|><12><34><56><78><|box_end|>",
        _QWEN,
        _BINS,
        divisor="999",
        hint=rf"{re.escape(_QWEN[2])}\s*<[0-9]",
        number=_BIN,
        scale=999,
        bins=1000,
        by_count=True,
        published=(
            Published(
                "<|object_ref_start|>dog<|object_ref_end|><|box_start|><123><456><789><890><|box_end|>",
                (("dog", 0.123123, 0.456456, 0.78979, 0.890891),),
            ),
        ),
    ),
    # MinerU (Niu et al. 2025): the box of each block of a page before its type.
    TextFormat(
        name="mineru",
        example="<|box_start|>100 200 500 700<|box_end|><|ref_start|>table<|ref_end|>",
        divisor="1000",
        needs=("<|ref_start|>",),
        pattern=rf"<\|box_start\|>(?P<box>{_PLAIN})(?P<end><\|box_end\|>\s*<\|ref_start\|>(?P<label>[^<]*)<\|ref_end\|>|)",
        scale=1000,
        opening=r"<\|box_start\|>",
        hint=r"<\|ref_start\|>",
        published=(
            Published(
                "<|box_start|>100 200 500 700<|box_end|><|ref_start|>table<|ref_end|><|rotate_up|>",
                (("table", 0.1, 0.2, 0.5, 0.7),),
            ),
        ),
    ),
    # LocateAnything (Wang et al. 2026): 1001 tokens, <0> to <1000>.
    _marked(
        "locateanything",
        "<ref>cat</ref><box><12><34><56><78></box>",
        _REF_BOX,
        _BINS,
        divisor="1000",
        hint=r"<box>\s*(?:<[0-9]|[Nn]one)",
        number=_BIN,
        scale=1000,
        bins=1001,
        by_count=True,
        published=(
            Published(
                "<ref>car</ref><box><120><200><450><500></box><ref>person</ref><box><50><100><200><600></box>",
                (("car", 0.12, 0.2, 0.45, 0.5), ("person", 0.05, 0.1, 0.2, 0.6)),
            ),
        ),
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
        by_count=True,
        published=(
            Published("<ref>cat</ref><box><x_85><y_275><x_600><y_900></box>", (("cat", 0.085, 0.275, 0.6, 0.9),)),
        ),
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
        published=(Published("<bbox><x_41><y_312><x_66><y_348></bbox>2\n", (("2", 0.041, 0.312, 0.066, 0.348),)),),
    ),
    # Nemotron Parse: upper left corner, text, lower right corner and class of a block, in fractions of the page.
    TextFormat(
        name="nemotron",
        example="<x_0.12><y_0.07># Heading<x_0.61><y_0.09><class_Title>",
        divisor="1",
        needs=("<class_",),
        pattern=r"(?P<box><x_[0-9.]{1,9}>\s{0,4}<y_[0-9.]{1,9}>(?:[^<]*(?:<(?!x_[0-9])[^<]*)*<x_[0-9.]{1,9}>\s{0,4}<y_[0-9.]{1,9}>)?)"
        r"\s{0,4}(?P<end><class_(?P<label>[^<>]*)>|)",
        number=_AXIS,
        scale=1,
        decode=tuple,
        hint=r"<x_[0-9.]+>\s{0,4}<y_[0-9.]+>",
        published=(
            Published(
                "<x_0.125><y_0.0703># Heading<x_0.625><y_0.1><class_Title>", (("Title", 0.125, 0.0703, 0.625, 0.1),)
            ),
        ),
    ),
    # InternVL (Chen et al. 2023) in nested lists and Qwen-VL (Bai et al. 2023) in pairs, both in thousandths.
    _marked(
        "internvl",
        "<ref>cat</ref><box>[[12, 34, 56, 78]]</box>",
        _REF_BOX,
        _PLAIN,
        divisor="1000",
        scale=1000,
        needs=("</ref>",),
        hint=r"(?:<box>|</ref>\s*<point>)\s*[\[0-9n]",
        published=(
            Published(
                "The <ref>bus</ref><box>[[290, 202, 835, 851]]</box> is red.", (("bus", 0.29, 0.202, 0.835, 0.851),)
            ),
        ),
    ),
    _marked(
        "qwenvl",
        "<ref>cat</ref><box>(12,34),(56,78)</box>",
        _REF_BOX,
        _PLAIN,
        divisor="1000",
        scale=1000,
        needs=("</ref>",),
        hint=r"(?:<box>|</ref>\s*<(?:point|quad)>)\s*\(",
        published=(Published("<ref>man</ref><box>(241,354),(707,999)</box>", (("man", 0.241, 0.354, 0.707, 0.999),)),),
    ),
    # DeepSeek-VL2 (Wu et al. 2024): 0 to 999.
    _marked(
        "deepseekvl2",
        "<|ref|>cat<|/ref|><|det|>[[12, 34, 56, 78]]<|/det|>",
        ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"),
        _PLAIN,
        divisor="999",
        scale=999,
        published=(
            Published(
                "<|ref|>The Panda<|/ref|><|det|>[[111, 222, 333, 444]]<|/det|>",
                (("The Panda", 1 / 9, 2 / 9, 1 / 3, 4 / 9),),
            ),
        ),
    ),
    # Unlimited-OCR, after DeepSeek-OCR (Wei et al. 2025): type and box of a block of a page in one pair of marks.
    TextFormat(
        name="unlimitedocr",
        example="<|det|>text [12, 34, 56, 78]<|/det|>First words.",
        divisor="999",
        needs=("<|det|>",),
        pattern=rf"<\|det\|>\s*(?P<label>[A-Za-z_][^<>\[\]]*)(?P<box>\[{_PLAIN})(?P<end><\|/det\|>|)",
        scale=999,
        opening=r"<\|det\|>",
        hint=r"<\|det\|>\s*[A-Za-z]",
        published=(Published("<|det|>text [111,222,333,444]<|/det|>Hello", (("text", 1 / 9, 2 / 9, 1 / 3, 4 / 9),)),),
    ),
    # MiniGPT-v2 (Chen et al. 2023): hundredths in braces after the phrase.
    TextFormat(
        name="minigpt",
        example="<p>cat</p> {<12><34><56><78>}",
        divisor="100",
        needs=("{<", "{ <"),
        pattern=r"(?:<p>(?P<label>[^<]*)</p>\s*)?\{\s?(?P<box><[0-9]{1,4}>(?:<[0-9]{1,4}>|<delim>|[\s,])*)(?P<end>\}|)",
        number=_BIN,
        scale=100,
        bins=101,
        hint=r"\{\s?<[0-9]{1,4}>",
        published=(
            Published(
                "<p>a man</p> {<26><43><34><64>} rides <p>a horse</p> {<20><50><70><96>}",
                (("a man", 0.26, 0.43, 0.34, 0.64), ("a horse", 0.2, 0.5, 0.7, 0.96)),
            ),
        ),
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
        published=(
            Published(
                "<grounding><phrase> a snowman</phrase><object><patch_index_0044><patch_index_0863></object>",
                (("a snowman", 0.390625, 0.046875, 0.984375, 0.828125),),
            ),
            Published(
                "<phrase> a fire </phrase> <object> <patch_index_0005> <patch_index_0911> </object> .",
                (("a fire", 0.171875, 0.015625, 0.484375, 0.890625),),
            ),
        ),
    ),
    # Isaac (Perceptron 2025): boxes, points and polygons in thousandths, alone or in a collection with one name.
    TextFormat(
        name="isaac",
        example='<point_box mention="cat"> (12,34) (56,78) </point_box>, <point …>, <polygon …>',
        divisor="1000",
        needs=("<point", "<polygon"),
        pattern=r'(?:<(?:collection|track)\b[^<>"]{0,99}(?:"(?P<label_of_all>[^"<]*)"[^<>]{0,99})?>\s*)?'
        r'<(?:(?P<polygon>polygon)|point_box|(?P<point>point))(?=[\s>])(?:\s+mention="(?P<label>[^"<]*)")?[^<>]{0,99}>'
        rf"(?P<box>{_PLAIN})(?P<end></(?:polygon|point_box|point)>|)",
        scale=1000,
        opening=r"<(?:polygon|point_box|point)[\s>]",
        hint=r'<(?:(?:polygon|point)\s+mention="[^"]*"[^<>]*>\s*|(?:polygon|point)>\s+|'
        r'point_box(?:\s+mention="[^"]*")?[^<>]*>\s*)\(|<(?:collection|track)\s+mention',
        published=(
            Published(
                'No. The <point_box mention="signal"> (708,248) (763,386) </point_box> is red.',
                (("signal", 0.708, 0.248, 0.763, 0.386),),
            ),
            Published(
                '<collection mention="dog"> <point_box> (10,20) (30,40) </point_box> <point_box> (100,200) (300,400) '
                "</point_box> </collection>",
                (("dog", 0.01, 0.02, 0.03, 0.04), ("dog", 0.1, 0.2, 0.3, 0.4)),
            ),
        ),
    ),
    # Molmo (Deitke et al. 2024) in hundredths of a side, its successor in thousandths: the number of an image or a
    # time, then the number, x and y of each point.
    TextFormat(
        name="molmo",
        example='<point x="12.3" y="45.6" alt="cat">cat</point>',
        divisor="100",
        needs=("<point",),
        order="xy",
        scale=100,
        pattern=r'<points?(?P<box>(?:\s{1,9}[xy][0-9]{0,4}\s?=\s?"[^"<>]{0,20}")+)'
        r'(?:\s+alt="(?P<label>[^"<>]*)")?[^<>]{0,99}(?P<end>>(?:(?P<label_of_all>[^<]*)</points?>)?|)',
        number=rf'"\s*({NUMBER})',
        opening="<points?[ >]",
        hint=r"<points?\s+[xy]",
        published=(Published('<point x="52.5" y="61.0" alt="the dog">the dog</point>', (("the dog", 0.525, 0.61),)),),
    ),
    TextFormat(
        name="molmo2",
        example='<points coords="1 1 123 456">cat</points>',
        divisor="1000",
        needs=("<point", "<track"),
        order="xy",
        scale=1000,
        pattern=r'<(?:point|track)s?\s+coords="(?P<box>[0-9.:;,\s]*)(?:"\s*(?:alt="(?P<label_of_all>[^"<>]*)"\s*)?)?'
        r"(?:/|>(?P<label>[^<]*)|)(?P<end></(?:point|track)s?>|/?>|)",
        groups=_frames,
        opening="<(?:point|track)s?[ >]",
        hint=r"<(?:point|track)s?\s+coords=",
        published=(
            Published(
                '<points coords="1 1 308 305 2 752 377">ramp</points>', (("ramp", 0.308, 0.305), ("ramp", 0.752, 0.377))
            ),
            Published(
                '<points coords="1 1 210 320;2 1 430 540">kite</points>', (("kite", 0.21, 0.32), ("kite", 0.43, 0.54))
            ),
            Published(
                '<tracks coords="0.0 1 259 340\t0.5 1 138 427">hand</tracks>',
                (("hand", 0.259, 0.34), ("hand", 0.138, 0.427)),
            ),
        ),
    ),
    TextFormat(
        name="table",
        example="label,x1,y1,x2,y2 above cat,120,240,560,680; or the same in Markdown",
        reader="table",
        published=(
            Published(
                "label,x1,y1,x2,y2\ncat,120,240,560,680\ndog,600,200,900,700",
                (("cat", 0.12, 0.24, 0.56, 0.68), ("dog", 0.6, 0.2, 0.9, 0.7)),
            ),
            Published(
                "| Object | Bounding Box |\n|---|---|\n| cat | [120, 240, 560, 680] |",
                (("cat", 0.12, 0.24, 0.56, 0.68),),
            ),
        ),
    ),
    # Shikra (Chen et al. 2023) in [0, 1], CogVLM (Wang et al. 2023) and GLM-4.5V in thousandths; Seed's tags; prose.
    TextFormat(
        name="lists",
        example="the cat[0.1,0.2,0.3,0.4] or 1. cat: [100, 200, 300, 400] or cat: x=1, y=2, width=3, height=4",
        reader="lines",
        published=(
            Published("A man[0.220,0.216,0.568,0.830] on a bench.", (("man", 0.22, 0.216, 0.568, 0.83),)),
            Published("cat <|begin_of_box|>[[100,100,300,300]]<|end_of_box|>", (("cat", 0.1, 0.1, 0.3, 0.3),)),
            Published(
                "1. person: [82, 105, 356, 999]\n2. dog: [400, 105, 500, 300]",
                (("person", 0.082, 0.105, 0.356, 0.999), ("dog", 0.4, 0.105, 0.5, 0.3)),
            ),
            Published(
                "[100, 200, 300, 400] person\n[5, 6, 7, 8] dog",
                (("person", 0.1, 0.2, 0.3, 0.4), ("dog", 0.005, 0.006, 0.007, 0.008)),
            ),
            Published("- label: cat\n  bbox: [120, 240, 560, 680]", (("cat", 0.12, 0.24, 0.56, 0.68),)),
            Published("cat: <bbox>120 240 560 680</bbox>", (("cat", 0.12, 0.24, 0.56, 0.68),)),
            Published(
                "<object><name>cat</name><bndbox><xmin>120</xmin><ymin>240</ymin><xmax>560</xmax><ymax>680</ymax></bndbox>"
                "</object>",
                (("cat", 0.12, 0.24, 0.56, 0.68),),
            ),
            Published("pyautogui.click(x=0.4312, y=0.2271)", (("", 0.4312, 0.2271),)),
        ),
    ),
)
REGISTRY: dict[str, TextFormat] = {row.name: row for row in _ROWS}
"""Every format by name, in the order in which they are tried."""
FORMATS: dict[str, str] = {row.name: row.example for row in _ROWS}
"""Formats by name, and what an object looks like in each."""
TABLE, LISTS = REGISTRY["table"], REGISTRY["lists"]
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
        >>> del REGISTRY["angle"], FORMATS["angle"]  # so that the examples below do not see it
    """
    expect("row", row, TextFormat)
    if row.name in (*REGISTRY, "auto", "none"):
        raise ValueError(f"register_format: {row.name!r} is taken; choose another name")
    REGISTRY[row.name], FORMATS[row.name] = row, row.example
    return row
