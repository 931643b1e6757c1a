"""What the fields of one record mean: `{"label": "cat", "bbox": [1, 2, 3, 4]}`, a row, a YAML item, an XML element.

Readers of JSON, tables and lines bring a record's fields in the order of the text; here they become objects and drops.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from coord_codec import GEOMETRIES, InputError
from coord_codec.fields import ATTRIBUTES, Meaning, is_deleted, meaning_of, names_place, turn_of
from coord_eval.parse.answer import Confidence, Geometry
from coord_eval.parse.builder import AnswerBuilder, Stated
from coord_eval.parse.formats import FORMATS, TextFormat
from coord_eval.parse.numbers import NUMBER, Kind, Value, number_of, read_number, read_value, split_shapes
from coord_eval.parse.refusals import says_nothing

LABEL_KEYS = (
    *("label", "desc", "description", "name", "category", "class", "ref", "text_content", "type", "tag", "mention"),
    *("class_name", "category_name", "label_name", "object", "object_name", "phrase", "sub_label", "label_text"),
    *("object_label", "object_class", "element", "entity", "item", "alt", "item_name", "data-label"),
    *"标签 类别 名称 物体 类型 对象 ラベル クラス 名前 이름 라벨 클래스 객체 класс метка объект название".split(),
    *"bezeichnung klasse kategorie objekt étiquette classe catégorie objet nom etiqueta clase categoría objeto".split(),
    *"nombre rótulo etichetta oggetto".split(),
)
_LABELS_KEYS = "labels bboxes_labels names classes categories class_names category_names phrases".split()
SCORE_KEYS = tuple(
    "score confidence conf probability prob certainty likelihood objectness konfidenz wahrscheinlichkeit confiance "
    "probabilité confianza probabilidad confiança confidenza probabilità уверенность вероятность 置信度 信頼度 "
    "신뢰도".split()
)
_SCORE_WORDS = frozenset(SCORE_KEYS).union("scores confidences probabilities probs".split())
_BESIDE_SCORE = frozenset(
    "bbox box class cls det detection label level model object of pct percent pred prediction value".split()
)
"""Words that a key of a confidence may have besides: `det_score`, `confidence_level`."""
SIDES = {
    **dict.fromkeys(("x1", "xmin", "x_min", "min_x", "left", "x0", "start_x"), "x1"),
    **dict.fromkeys(("y1", "ymin", "y_min", "min_y", "top", "y0", "start_y"), "y1"),
    **dict.fromkeys(("x2", "xmax", "x_max", "max_x", "right", "end_x"), "x2"),
    **dict.fromkeys(("y2", "ymax", "y_max", "max_y", "bottom", "end_y"), "y2"),
    **dict.fromkeys(("cx", "x_center", "center_x", "xc", "x_centre", "xcenter"), "cx"),
    **dict.fromkeys(("cy", "y_center", "center_y", "yc", "y_centre", "ycenter"), "cy"),
    **{"x": "x", "y": "y", "width": "w", "w": "w", "height": "h", "h": "h"},
}
"""Keys of a single side of a box."""
CORNERS = {
    f"{a}{joint}{b}": (first, second)
    for first, words in (("top", ("top", "upper")), ("bottom", ("bottom", "lower")))
    for second in ("left", "right")
    for a0 in words
    for joint in ("", "_")
    for a, b in ((a0, second), (second, a0))
}
CORNERS |= dict.fromkeys(("min", "p1"), ("top", "left")) | dict.fromkeys(("max", "p2"), ("bottom", "right"))
"""Keys of a corner of a box."""
_CENTRES, _SIZES = ("xy", "center", "centre", "center_point"), ("hw", "wh", "size", "dimensions")
LISTS = frozenset(
    {
        *("objects", "detections", "results", "annotations", "items", "predictions", "instances", "data", "elements"),
        *("output", "answer", "image", "labels", "bounding_boxes", "detected_objects", "regions", "characters"),
        *("arguments", "args", "parameters", "params", "input", "inputs", "action_inputs", "function", "properties"),
        *("response", "result", "bbox_list", "boxes_list", "detection", "entities", "markers", "words", "lines"),
        *("keypoints", "bndbox", "tool_call", "action", "target", "shapes", "blocks", "page", "pages", "value", "path"),
        *("geometry", "details", "info", "localization", "frames", "images", "annotation", "values"),
        *ATTRIBUTES,
    }
)
"""Keys of lists of objects and of other containers, which are not labels."""
_NO_BOX = frozenset(
    {
        *("size", "color", "colour", "rgb", "image_size", "resolution", "shape", "id", "ids", "counts", "mask_rle"),
        *("segmentation", "mask", "reading_order", "page_size", "time", "timestamp", "index", "dimensions"),
    }
)
"""Keys of lists of numbers that are no coordinates."""
MAX_NUMBERS = 100_000
"""Maximum number of numbers kept for one record; no shape has more."""


_FACTS: Mapping[Meaning, Meaning] = {
    **{meaning: meaning for meaning in ("turn", "place", "unit", "deleted")},
    "setting": "unit",
    "aside": "deleted",
}


class FieldMeaning(NamedTuple):
    """Meaning of a key: a label, a score, a side, a corner, centre or size, the coordinates of a shape, or nothing.

    `unit` is that which the key of a shape states: `bbox_pixels`.
    """

    role: Literal["label", "labels", "score", "side", "corner", "centre", "size", "shape", "list", "other"]
    side: str = ""
    row: TextFormat | None = None
    kind: Kind = "any"
    unit: str = ""


_OTHER = FieldMeaning("other")
WEAK_LABELS = frozenset({"type", "tag", "sub_label", "element", "entity", "item", "alt", "object_class", "description"})
"""Keys that name an object only if no other key does."""
_CALLS = frozenset({"action", "action_type", "tool", "operation"})
"""Keys of calls, whose points are x before y."""
ACTIONS = re.compile(
    r"(?:left_?|right_?|double_?|middle_?|long_?|mouse_?)?(?:click|tap|press|move(?:_?to)?|hover|drag|scroll|swipe|touch)",
    re.IGNORECASE,
)
"""Values of a key `type` that name a call and no object."""
_SQUEEZED = re.compile(r"[\s-]+")
_SOME_BOX = re.compile(
    r"(?:[a-z0-9]{1,20}_)?(?:bbox|bounding_?box)"
    r"(?:_(?!(?:format|type|mode|order|units?|convention|system|space|count|id|colou?r|label|area|score|confidence|angle|rotation|theta)$"
    r"|[xywhltrbc]{4,6}$)[a-z0-9]{1,20})?"
)
"""Keys of boxes that the table of formats does not name: `bbox_pixels`, `person_bbox`."""
_OF_PIXELS = re.compile(r"(?i:(?<![a-z])(?:pixels?|px|abs(?:olute)?)(?![a-z]))|Pixel")
_OTHER_ORDER = re.compile(r"(?:bbox|box)_?[xywhltrbc]{4,6}")
"""Keys that name an order of the numbers; those that the table of formats knows are found before."""
_SOME_LABEL = re.compile(r"[a-z0-9]{1,20}_(?:label|class|category)")
"""Keys of labels that are not listed: `block_label`."""
_WORD = re.compile(r"[^\W\d_]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_NUMBERED = re.compile(r"_?[0-9]+$")
_END_OF_STROKE = re.compile(r"(?:start|end)_")


class Keys:
    """Meanings of keys, for one geometry that the caller expects and one more row of keys.

    Words such as `Box` may be the label of an object, so they count in lower case alone; other keys count in any case,
    with a number (`label_1`, `bbox_2d_2`), and with hyphens or spaces for underscores.
    """

    def __init__(self, requested: Geometry, row: TextFormat | None = None) -> None:
        self.requested = requested
        self.known: dict[str, FieldMeaning] = {}
        for keys, role in (
            (LISTS, "list"),
            (_NO_BOX, "other"),
            (LABEL_KEYS, "label"),
            (SCORE_KEYS, "score"),
            (_CENTRES, "centre"),
            (_SIZES, "size"),
            (_LABELS_KEYS, "labels"),
        ):
            self.known |= dict.fromkeys(keys, FieldMeaning(role))  # type: ignore[arg-type]
        self.known |= {key: FieldMeaning("side", side) for key, side in SIDES.items()}
        self.known |= dict.fromkeys(CORNERS, FieldMeaning("corner"))
        for other in (*FORMATS.values(), *([row] if row else [])):
            self.known |= {key: FieldMeaning("shape", row=other, kind=other.kind) for key in other.keys}
        for kind in GEOMETRIES.values():
            # Keys of other geometries count only where they are expected: else they may have another meaning.
            if kind.name in (requested, "polygon"):
                names = (*kind.keys, *(("poly", "polygons") if kind.name == "polygon" else ()))
                self.known |= {
                    key: FieldMeaning("shape", kind=kind.name)
                    for key in names
                    if self.known.get(key, _OTHER).role != "shape"
                }
        self.squeezed = {key.lower().replace("_", ""): meaning for key, meaning in self.known.items()}
        self.meaning_of = lru_cache(10_000)(self._with_unit)

    def __getitem__(self, key: str) -> FieldMeaning:
        """Return the meaning of a key as written."""
        return self.meaning_of(key)

    def _with_unit(self, key: str) -> FieldMeaning:
        meaning = self._find(key)
        is_stated = meaning.role == "shape" and _OF_PIXELS.search(key) is not None
        return meaning._replace(unit="pixels") if is_stated else meaning

    def _find(self, key: str) -> FieldMeaning:
        lower = _SQUEEZED.sub("_", _HUMP.sub("_", key.strip()).lower())
        for name in (key, lower, _NUMBERED.sub("", lower)):
            if name in self.known:
                is_word = self.known[name].role == "shape" and name.isalpha() and name != "bbox"
                return _OTHER if is_word and key != key.lower() and key != name else self.known[name]
        if meaning_of(key) == "shape":  # four corners, or centre, size and angle
            return FieldMeaning("shape", kind="polygon" if self.requested == "polygon" else "oriented")
        other = self.known["bbox"] if _SOME_BOX.fullmatch(lower) else _OTHER
        words = frozenset(_WORD.findall(lower))
        if _SOME_LABEL.fullmatch(lower):
            other = self.known["label"]
        elif words & _SCORE_WORDS and words <= _SCORE_WORDS | _BESIDE_SCORE:
            other = self.known["score"]
        return self.squeezed.get(lower.replace("_", ""), other)

    def fact(self, key: str) -> Meaning:
        """Return whether a key turns, places or deletes a box or states its unit; "" for other keys."""
        meaning = meaning_of(key) or meaning_of(key.removeprefix("bbox_"))
        if self[key].role not in ("other", "list"):
            return ""
        return _FACTS.get(meaning, "")

    def stem(self, key: str) -> str:
        """Return a key without its number, `start` or `end`, if repeating it begins another object; else ""."""
        if self[key].role not in ("label", "score", "side", "corner", "shape"):
            return ""
        if self[key].role == "shape" and (end := _END_OF_STROKE.match(name := _HUMP.sub("_", key).lower())):
            return name[end.end() :]
        return key if key in self.known else _NUMBERED.sub("", key)

    def label_of(self, key: str | None) -> str:
        """Return a key as the label of its value, "" if the key has another meaning."""
        return key if key is not None and self[key] is _OTHER and key not in _NO_BOX else ""


@dataclass(slots=True)
class Field:
    """One key of a record and its value.

    Attributes:
        key: the key as written
        groups: numbers of the value, those of each innermost list apart
        text: the value if it is one string
        texts: the strings of a list
        sides: numbers by name of a record that is the value
        invalid: whether something stands in place of a number
        done: whether the value is complete
        breaks: numbers of groups after which a list of lists ends
    """

    key: str
    groups: list[list[Value]] = field(default_factory=list)
    text: str | None = None
    texts: list[str] = field(default_factory=list)
    sides: dict[str, Value] | None = None
    invalid: bool = False
    done: bool = False
    breaks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class FieldRecord:
    """The fields of one record and where it stands; `name` is the key of which it is the value."""

    start: int
    name: str = ""
    fields: list[Field] = field(default_factory=list)
    has_children: bool = False
    repairs: tuple[str, ...] = ()


def sides_of(fields: Sequence[Field], keys: Keys) -> dict[str, Value]:
    """Return the sides of a record by name: `x1`, `y1`, `x2`, `y2`, `x`, `y`, `w`, `h`, `cx`, `cy`."""
    sides: dict[str, Value] = {}
    corners: list[list[Value]] = []
    for item in fields:
        meaning = keys[item.key]
        groups = [[_without_token(value) for value in group] for group in item.groups if group]
        values = groups[0] if len(groups) == 1 else []
        if meaning.role == "side" and len(values) == 1:
            sides.setdefault(meaning.side, values[0])
        elif meaning.role == "corner" and len(values) == 2:
            corners += groups
        elif meaning.role == "centre" and len(values) == 2:
            sides.setdefault("cx", values[0])
            sides.setdefault("cy", values[1])
        elif meaning.role == "size" and len(values) == 2:
            first, second = ("h", "w") if item.key == "hw" else ("w", "h")
            sides.setdefault(first, values[0])
            sides.setdefault(second, values[1])
        elif meaning.role in ("centre", "size") and item.sides:
            names = {"x": "cx", "y": "cy"} if meaning.role == "centre" else {}
            for name, value in item.sides.items():
                sides.setdefault(names.get(name, name), value)
    if any(item.key == "detection_id" for item in fields) and sides.keys() == {"x", "y", "w", "h"}:
        return {"cx": sides["x"], "cy": sides["y"], "w": sides["w"], "h": sides["h"]}  # Roboflow's boxes
    if len(corners) > 1:
        xs, ys = [[point[axis] for point in corners] for axis in (0, 1)]
        return {"x1": min(xs), "y1": min(ys), "x2": max(xs), "y2": max(ys)}
    return sides


def _without_token(value: Value) -> Value:
    """Return a coordinate as a number: sides need not stand in the order of the box, as its tokens do."""
    return value if value[2] is None else (value[0], None, None)


def _plus(a: Value, b: Value, share: float = 1.0) -> Value:
    """Return the sum of a coordinate and a share of a length, a percentage if both are."""
    unit = None if a[1] is None or b[1] is None else a[1] + share * b[1]
    return a[0] + share * b[0], unit, None


def box_of_sides(sides: Mapping[str, Value]) -> list[Value]:
    """Return the corners of a box, or a point, of which the sides are named; empty if some are missing."""
    names = sides.keys()
    if names >= {"x1", "y1", "x2", "y2"}:
        return [sides[key] for key in ("x1", "y1", "x2", "y2")]
    if names >= {"w", "h"}:
        w, h = sides["w"], sides["h"]
        for x, y in (("x", "y"), ("x1", "y1")):
            if names >= {x, y}:
                return [sides[x], sides[y], _plus(sides[x], w), _plus(sides[y], h)]
        if names >= {"cx", "cy"}:
            cx, cy = sides["cx"], sides["cy"]
            return [_plus(cx, w, -0.5), _plus(cy, h, -0.5), _plus(cx, w, 0.5), _plus(cy, h, 0.5)]
    for x, y in (("x", "y"), ("cx", "cy")):
        if names == {x, y}:
            return [sides[x], sides[y]]
    return []


def stated_value(item: Field) -> float | str | None:
    """Return the value of a field that is one number or one text."""
    if item.text is not None:
        return item.text
    flat = [number for group in item.groups for number, _, _ in group]
    if len(flat) == 1 or meaning_of(item.key) not in ("setting", "turn"):
        return flat[0] if len(flat) == 1 else None
    return " ".join(f"{number:g}" for number in flat) if any(flat) else None


def stated_units(fields: Sequence[Field], keys: Keys) -> dict[str, float | str]:
    """Return what fields state of the unit, order, origin and scale of boxes."""
    units: dict[str, float | str] = {}
    for item in fields:
        value = stated_value(item) if keys.fact(item.key) == "unit" else None
        if value is not None:
            units[item.key] = f"{units[item.key]} {value}" if item.key in units else value  # x and y of an origin
    return units


def add_record(record: FieldRecord, builder: AnswerBuilder, keys: Keys, end: int, partial: bool = False) -> None:
    """Turn a closed or cut-off record into objects or drops.

    A key that repeats begins another object; labels go with the shapes of their part of the record.
    """
    span = (record.start, end)
    for item in record.fields:
        stated = stated_value(item)
        if keys.fact(item.key) == "place" and stated is not None and names_place(item.key, stated):
            builder.places.append((*span, f"{stated:g}" if isinstance(stated, float) else stated))
    if units := stated_units(record.fields, keys):
        builder.units.append((*span, units))  # for the records in it
    parts = _parts(record.fields, keys)
    if partial and len(record.fields) > 1 and all(keys.label_of(item.key) and item.groups for item in record.fields):
        parts = [record.fields[:-1], record.fields[-1:]]  # {"cat": [1, 2, 3, 4], "dog": [5: each key is an object
    shapes = [_Part(part, keys, record) for part in parts]
    labelled = [part for part in shapes if part.label is not None]
    for number, part in enumerate(shapes):
        if len(labelled) == 1:  # it names all of them
            part.label = labelled[0].label
        part.add(builder, span, partial and number == len(shapes) - 1, record.has_children)


def _parts(fields: list[Field], keys: Keys) -> list[list[Field]]:
    """Divide fields at the first key that repeats, numbers at its end (`label_1`, `label_2`) aside."""
    stems = [keys.stem(item.key) for item in fields]
    counts = Counter(stems)
    leading = next((stem for stem in stems if stem and counts[stem] > 1), None)
    shapes = [stem for item, stem in zip(fields, stems, strict=True) if keys[item.key].role == "shape"]
    if leading is None or (leading in shapes and counts[shapes[0]] == 1):  # points of the box before them
        return [fields]
    parts: list[list[Field]] = [[]]
    seen: set[str] = set()
    for item, stem in zip(fields, stems, strict=True):
        if stem in seen:
            parts.append([])
            seen = set()
        if stem == leading or keys[item.key].role == "side":
            seen.add(stem)
        parts[-1].append(item)
    return parts


class _Part:
    """The fields of one object of a record."""

    def __init__(self, fields: list[Field], keys: Keys, record: FieldRecord) -> None:
        self.keys, self.name = keys, record.name
        self.label: str | None = None
        self.label_is_weak = False
        self.labels: list[str] = []
        self.is_call = any(item.key in _CALLS for item in fields)
        self.scores: list[Confidence | None] = []
        self.shapes: list[tuple[Field, FieldMeaning]] = []
        self.others: list[Field] = []
        self.fields = fields
        self.repairs = record.repairs
        self.numbers = 0
        self.is_unsure = False
        self.is_deleted = False
        self.turns: dict[str, float | str] = {}
        self.units = stated_units(fields, keys)
        for item in fields:
            meaning = keys[item.key]
            role = meaning.role
            fact = keys.fact(item.key)
            if fact and (stated := stated_value(item)) is not None:
                if fact == "turn":
                    self.turns[item.key] = stated
                elif fact == "deleted":
                    written = f"{stated:g}" if isinstance(stated, float) else stated
                    self.is_deleted |= is_deleted({item.key: written}, "aside")
                if sum(map(len, item.groups)) < 2:  # not {"origin": [1, 2]}, which may be a point of this name
                    continue
            if role == "label" and item.text and item.key == "type" and ACTIONS.fullmatch(item.text):
                self.is_call = True
            elif item.texts and role in ("label", "labels"):
                self.labels = item.texts
            elif role == "label" and item.text is not None:
                weak = item.key.lower() in WEAK_LABELS
                if self.label is None or (self.label_is_weak and not weak):
                    self.label, self.label_is_weak = item.text, weak
            elif role == "score":
                self.scores = self.scores or _scores(item)
            elif role == "shape":
                if not self.shapes and meaning.unit:
                    self.units["unit"] = meaning.unit
                self.shapes.append((item, meaning))
            elif item.key == "target" and item.text and self.label is None:  # of a call
                self.label, self.label_is_weak = item.text, True
            elif role in ("other", "list") and item.groups:
                self.others.append(item)
            elif item.text and keys.label_of(item.key) and not meaning_of(item.key):
                self.is_unsure |= len(item.text.split()) <= _FEW_WORDS
            if role != "shape":
                self.numbers += sum(map(len, item.groups))

    def add(self, builder: AnswerBuilder, span: tuple[int, int], partial: bool, quiet: bool) -> None:
        """Add the objects or drops of this part; `quiet` leaves out the drop of a part without coordinates."""
        self.builder, self.span, self.partial = builder, span, partial
        if self.shapes and not partial and all(_is_absent(item) for item, _ in self.shapes):
            builder.explicit_empty = True  # {"label": "cat", "bbox": null}
            return
        shapes = [(item, meaning) for item, meaning in self.shapes if any(item.groups) or item.invalid]
        for item in self.fields:
            if self.keys[item.key].role in ("side", "label") and sum(map(len, item.groups)) > 1:
                builder.drop("unread_numbers", *span)
        sides = sides_of(self.fields, self.keys)
        corners = box_of_sides(sides) if not shapes and (not partial or len(sides) >= 4) else []
        if self.is_deleted:
            if shapes or corners:
                builder.drop("deleted", *span)
            builder.explicit_empty = True  # {"label": "cat", "present": false}
            return
        if not shapes and not corners:
            named = sides.keys() - {"w", "h"}
            quiet = quiet and not named and (self.label is None or not self.shapes)
            if self._add_by_label() or quiet:
                return
            if partial:
                builder.drop("truncated", *span)
            elif named:
                builder.drop("wrong_arity", *span)
            elif self.label is not None and not self.shapes and says_nothing(self.label):
                builder.explicit_empty = True  # {"label": "no object"}
            elif self.shapes or self.label is not None or self.labels:
                builder.drop("no_coordinates", *span)
            elif self.numbers >= 4:
                builder.drop("unrecognised", *span)
            return
        builder.start_count += 1
        if corners:
            item = Field("", [corners], done=True)
            shapes.insert(0, (item, FieldMeaning("shape", kind="point" if len(corners) == 2 else "box")))
        first = True
        for item, meaning in shapes:
            if first and len(shapes) > 1:
                self.repairs = (*self.repairs, "second_geometry")
            if first or not item.done:
                self._add_shape(item, meaning)
            else:
                for _ in _shapes(item, meaning.kind, builder.geometry):
                    builder.drop("second_geometry", *span)
            first = False
        for item in self.others:
            if item.key not in _NO_BOX:
                for group in item.groups:
                    if len(group) == 4:
                        builder.drop("unrecognised", *span)
        for item in self.fields:
            if self.keys[item.key].role == "corner" and any(item.groups) and not corners:
                builder.drop("second_geometry", *span)  # a corner of another box, beside a shape that is kept

    def _add_by_label(self) -> bool:
        """Add the boxes of a dictionary by label, `{"cat": [[1, 2, 3, 4]]}`; return False if it is not one."""
        if self.shapes or self.partial:
            return False
        builder = self.builder
        arity = 2 if builder.geometry == "point" else 4
        others = [item for item in self.others if item.key not in _NO_BOX]
        others = [item for item in others if not _OTHER_ORDER.fullmatch(item.key.lower())]
        shapes = [(item.key, shape) for item in others for shape in _shapes(item, "any", builder.geometry)]
        boxes = [key for key, (geometry, numbers) in shapes if len(numbers) == arity or not geometry]
        if not boxes or (self.label is not None and len(boxes) > 1):
            return False
        if self.label is None and self.is_unsure:  # {"a": "cat", "b": [1, 2, 3, 4]}
            builder.drop("ambiguous", *self.span)
            return True
        last = None
        for key, (geometry, numbers) in shapes:
            if len(numbers) != arity:
                builder.drop("wrong_arity" if geometry else "ambiguous", *self.span)
                continue
            builder.start_count += key != last
            last = key
            label = self.label if self.label is not None else self.keys.label_of(key)
            self._add(label, geometry, numbers, None, self._score(len(boxes), 0))
        return True

    def _add_shape(self, item: Field, meaning: FieldMeaning) -> None:
        builder, span, partial = self.builder, self.span, self.partial
        groups = [group for group in item.groups if group]
        flat = [value for group in groups for value in group]
        kind = "box" if self.turns and meaning.kind == "any" else meaning.kind
        tokens = sum(value[1] is not None for value in flat)
        expected = GEOMETRIES["box" if kind == "any" else kind]
        is_whole = tokens and not item.invalid and expected.fixed and len(flat) == expected.least
        if not (item.done or is_whole) and (partial or not item.invalid):
            builder.drop("truncated" if partial else "stray_text", *span)
        elif len(flat) >= MAX_NUMBERS:
            builder.drop("wrong_arity", *span)
        elif item.invalid or tokens not in (0, len(flat)):
            for _ in range(max(1, len(_shapes(item, kind, builder.geometry)))):
                builder.drop("invalid_coordinate", *span)
        else:
            label = self.name if self.label is None or (self.label_is_weak and self.name) else self.label
            rectangle = any(other.key == "shape_type" and other.text == "rectangle" for other in self.fields)  # LabelMe
            shapes = _shapes(item, "box" if rectangle else kind, builder.geometry)
            labels = self.labels if len(self.labels) == len(shapes) else [label] * len(shapes)
            if labels is not self.labels and self.labels:
                builder.drop("ambiguous", *span)  # which label belongs to which box
            if len(self.scores) > 1 and len(self.scores) != len(shapes):
                builder.drop("unread_numbers", *span)
            for number, (name, (geometry, group)) in enumerate(zip(labels, shapes, strict=True)):
                if not geometry:
                    builder.drop("ambiguous", *span)
                    continue
                self._add(name, geometry, group, meaning.row, self._score(len(shapes), number))

    def _score(self, shapes: int, number: int) -> Confidence | None:
        """Return the confidence of one of several shapes: that of each, or the only one."""
        if len(self.scores) == shapes:
            return self.scores[number]
        return self.scores[0] if len(self.scores) == 1 else None

    def _add(
        self, label: str, geometry: Geometry, group: Sequence[Value], row: TextFormat | None, score: Confidence | None
    ) -> None:
        builder, span, order, own_scale = self.builder, self.span, "", None
        if row is not None:
            own_scale = row.scale
            if geometry == "box" and len(row.order) > 2:
                order = row.order
            elif row.order == "yxyx" and geometry == "point":
                # Gemini's points are whole numbers; tokens and fractions after the same key are x before y.
                if self.is_call or any(unit is not None or number % 1 for number, unit, _ in group):
                    own_scale = None
                else:
                    order = "yx"
        turn = 0.0
        if geometry == "oriented" and len(group) == 5:  # centre, size and angle
            self.turns = {"rotation": group[4][0]}
            geometry, group, order = "box", group[:4], "cxcywh"
        if geometry == "box" and self.turns:
            turn = self._turn()
        if geometry == "oriented" and len(group) == 4 and self.turns:
            builder.drop("turned", *span)  # which four numbers they are is not known
            return
        if self.units and _PERCENT.issuperset(str(value).lower() for value in self.units.values()):
            group = [(number, number / 100, None) for number, _, _ in group]
        elif geometry == "box" and self.units and not builder.agrees(self.units, order, [n for n, _, _ in group]):
            builder.drop("other_unit", *span)
            return
        stated = Stated(label, span, builder.start_count - 1, self.repairs, self.partial, score)
        builder.add_values(stated, group, geometry, order, own_scale, turn)

    def _turn(self) -> float:
        """Return the angle in degrees that the fields state, NaN if it, or its unit, is not known."""
        angles: dict[str, float] = {}
        for name, value in self.turns.items():
            found = _ANGLE.fullmatch(value) if isinstance(value, str) else None
            if found is not None:
                unit = {"d": "angle_deg", "\u00b0": "angle_deg", "r": "angle_rad"}.get((found[2] or "")[:1].lower())
                angles[unit or name] = read_number(found[1])
            elif isinstance(value, float):
                angles[name] = value
            elif any(map(str.isdigit, value)) or value.strip().lower() == "true":
                return math.nan
        try:
            return turn_of(angles, self.builder.largest_turn)
        except InputError:
            return math.nan


_FEW_WORDS = 4
"""Most words of a text that may be a label, below a key that is not known."""
_ANGLE = re.compile(rf"\s*({NUMBER})\s*(\u00b0|deg\w*|rad\w*)?\s*", re.IGNORECASE)
_PERCENT = frozenset(("percent", "percentage", "%"))


def _is_absent(item: Field) -> bool:
    """Return whether the value of a shape says that there is none: `null`, `"none"` or an empty list."""
    if any(item.groups):
        return False
    return says_nothing(item.text or "") or (item.done and not item.invalid)


def _shapes(item: Field, kind: Kind, requested: Geometry) -> list[tuple[Geometry, list[Value]]]:
    """Return the shapes of a value: those of each list of lists apart."""
    bounds = [0, *item.breaks, len(item.groups)]
    runs = [[group for group in item.groups[a:b] if group] for a, b in pairwise(bounds)]
    return [shape for run in runs if run for shape in split_shapes(run, kind, requested, number_of)]


_STATED = re.compile(rf"\W{{0,2}}({NUMBER})\s?(%|per ?cent|pct)?", re.IGNORECASE)


def _scores(item: Field) -> list[Confidence | None]:
    """Return the confidences of a value, each a share, or in per cent; `0,95` is .95."""
    texts = item.texts or ([] if item.text is None else [item.text])
    found = [_STATED.fullmatch(text.strip().replace(",", ".")) for text in texts]
    values = [match and read_value(match[1], match[2] is not None) for match in found]
    return list(map(_confidence, values or [value for group in item.groups for value in group]))


def _confidence(value: Value | None) -> Confidence | None:
    if value is None:
        return None
    share = value[1] if value[1] is not None else value[0] / (100 if value[0] > 1 else 1)
    return Confidence(share, None if value[1] is not None else value[0]) if 0 <= share <= 1 else None
