"""Turns the fields of one record into objects or drops, whether JSON, a row of a table, YAML or XML states them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from coord_codec import GEOMETRIES, InputError
from coord_codec.fields import is_deleted, meaning_of, names_place, turn_of
from coord_eval.parse.answer import AnswerOrder, Confidence, Geometry, corners
from coord_eval.parse.builder import AnswerBuilder, Stated
from coord_eval.parse.formats import TextFormat
from coord_eval.parse.keys import ACTIONS, PLACES, WEAK_LABELS, FieldMeaning, Keys
from coord_eval.parse.numbers import (
    NUMBER,
    NumberKind,
    Value,
    number_of,
    read_number,
    read_value,
    split_shapes,
    values_in,
)
from coord_eval.parse.orders import ORDER_KEYS
from coord_eval.parse.refusals import says_nothing

MAX_NUMBERS = 100_000
"""Maximum number of numbers kept for one record; no shape has more."""
_CALLS = frozenset(("action", "action_type", "tool", "operation"))
"""Keys of calls, whose points are x before y."""
_OTHER_ORDER = re.compile(r"(?:bbox|box)_?[xywhltrbc]{4,6}")
"""Keys that name an order of the numbers; those that the table of formats knows are found before."""
_FEW_WORDS = 4
"""Most words of a text that may be a label, below a key that is not known."""
_ANGLE = re.compile(rf"\s*({NUMBER})\s*(\u00b0|deg\w*|rad\w*)?\s*", re.IGNORECASE)
_ANGLE_UNITS = {"d": "angle_deg", "\u00b0": "angle_deg", "r": "angle_rad"}
_PERCENT = frozenset(("percent", "percentage", "%"))
_SCORE = re.compile(rf"\W{{0,2}}({NUMBER})\s?(%|per ?cent|pct)?", re.IGNORECASE)


@dataclass(slots=True)
class Field:
    """One key of a record and its value.

    Attributes:
        key: the key as written
        groups: numbers of the value, those of each innermost list apart
        text: the value if it is one string
        texts: the strings of a list
        invalid: whether something stands in place of a number
        done: whether the value is complete
        breaks: numbers of groups after which a list of lists ends
        words: texts among the numbers of a group: the number of the group, how many numbers stand before it, the text
    """

    key: str
    groups: list[list[Value]] = field(default_factory=list)
    text: str | None = None
    texts: list[str] = field(default_factory=list)
    invalid: bool = False
    done: bool = False
    breaks: list[int] = field(default_factory=list)
    words: list[tuple[int, int, str]] | None = None

    @property
    def values(self) -> list[Value]:
        """The numbers of all groups."""
        return [value for group in self.groups for value in group]

    @property
    def stated(self) -> float | str | None:
        """The value that is one number or one text."""
        if self.text is not None:
            return self.text
        numbers = list(map(number_of, self.values))
        if len(numbers) == 1:
            return numbers[0]
        is_origin = meaning_of(self.key) in ("setting", "turn") and any(numbers)
        return " ".join(f"{number:g}" for number in numbers) if is_origin else None

    def shapes(self, kind: NumberKind, requested: Geometry) -> list[tuple[Geometry, list[Value]]]:
        """Return the shapes of the value: those of each list of lists apart."""
        bounds = [0, *self.breaks, len(self.groups)]
        runs = [[group for group in self.groups[a:b] if group] for a, b in pairwise(bounds)]
        return [shape for run in runs if run for shape in split_shapes(run, kind, requested, number_of)]

    def rows(self) -> list[tuple[str, list[Value], list[Value]]]:
        """Return the text, the numbers and the confidence, if any, of each group: `["cat", 1, 2, 3, 4, 0.9]`."""
        rows = []
        of_group: dict[int, list[tuple[int, str]]] = {}
        for number, place, text in self.words or ():
            of_group.setdefault(number, []).append((place, text))
        for number, written in enumerate(self.groups):
            found, group = of_group.get(number, []), written
            score: list[Value] = []
            if len(group) == 5:  # the number on the other side of the text, or the last one
                places = {place for place, _ in found}
                is_first = 4 not in places and group[0][0] <= 1 < min(group[1][0] + group[2][0], group[4][0])
                score, group = ([group[0]], group[1:]) if is_first or 1 in places else ([group[4]], group[:4])
            if group:
                rows.append((found[0][1] if found else "", group, score))
        return rows


def field_of(key: str, text: str, keys: Keys) -> Field | None:
    """Return the field of a key and its value as text, None if the key asks for numbers that the value has not."""
    role = keys[key].role
    if role == "label" or keys.fact(key):
        return Field(key, text=text, done=True)
    takes_numbers = role in ("side", "corner", "centre", "size", "shape", "score")
    groups = values_in(text) if takes_numbers else []
    return Field(key, groups, text if role == "score" else None, done=True) if groups else None


@dataclass(slots=True)
class FieldRecord:
    """The fields of one record and where it stands; `name` is the key of which it is the value, or one of a list."""

    start: int
    name: str = ""
    fields: list[Field] = field(default_factory=list)
    has_children: bool = False
    repairs: tuple[str, ...] = ()
    listed: bool = False


def sides_of(fields: Sequence[Field], keys: Keys) -> dict[str, Value]:
    """Return the sides of a record by name: `x1`, `y1`, `x2`, `y2`, `x`, `y`, `w`, `h`, `cx`, `cy`."""
    sides: dict[str, Value] = {}
    placed: list[tuple[FieldMeaning, list[Value]]] = []
    for item in fields:
        meaning, filled = keys[item.key], [group for group in item.groups if group]
        if len(filled) != 1 or meaning.role not in ("side", "corner", "centre", "size"):
            continue
        # Sides need not stand in the order of the box, as its tokens do: they are numbers.
        values = [value if value[2] is None else (value[0], None, None) for value in filled[0]]
        if meaning.role == "corner" and len(values) == 2:
            placed.append((meaning, values))
        elif len(values) == len(meaning.sides):
            sides = dict(zip(meaning.sides, values, strict=True)) | sides
    if any(item.key == "detection_id" for item in fields) and sides.keys() == {"x", "y", "w", "h"}:
        return {"cx": sides["x"], "cy": sides["y"], "w": sides["w"], "h": sides["h"]}  # Roboflow's boxes
    if len(placed) > 1:
        xs, ys = zip(*(values for _, values in placed), strict=True)
        return {"x1": min(xs), "y1": min(ys), "x2": max(xs), "y2": max(ys)}
    if placed and sides.keys() == {"w", "h"}:
        sides = dict(zip(placed[0][0].sides, placed[0][1], strict=False)) | sides
    return sides


_SIDES_OF: Mapping[AnswerOrder, tuple[str, ...]] = {
    "xyxy": ("x1 y1 x2 y2",),
    "xywh": ("x y w h", "x1 y1 w h"),
    "cxcywh": ("cx cy w h",),
}
_POINTS = ("x y", "cx cy")


def box_of_sides(sides: Mapping[str, Value]) -> tuple[str, list[Value]]:
    """Return the order and numbers of a box of named sides, or `xy` and a point; none if some are missing.

    Example:
        >>> box_of_sides({"w": (3.0, None, None), "h": (4.0, None, None), "x": (1.0, None, None)})
        ('', [])
    """
    for order, names in _SIDES_OF.items():
        for each in map(str.split, names):
            if sides.keys() >= set(each):
                return order, [sides[name] for name in each]
    w, h = sides.get("w"), sides.get("h")
    x = sides.get("x1") or (w and "x2" in sides and _minus(sides["x2"], w))
    y = sides.get("y1") or (h and "y2" in sides and _minus(sides["y2"], h))
    if w and h and x and y:  # another corner and the size
        return "xywh", [x, y, w, h]
    for each in map(str.split, _POINTS):
        if sides.keys() == set(each):
            return "xy", [sides[name] for name in each]
    return "", []


def as_corners(order: str, values: Sequence[Value]) -> list[Value]:
    """Return the corners of a box whose numbers stand in another order; those of percentages are percentages."""
    numbers = corners(order, [value[0] for value in values])
    shares = [value[1] for value in values if value[1] is not None]
    units = corners(order, shares) if len(shares) == len(values) else [None] * len(numbers)
    return [(number, unit, None) for number, unit in zip(numbers, units, strict=True)]


def _minus(a: Value, b: Value) -> Value:
    """Return the difference of two coordinates, a percentage if both are."""
    return a[0] - b[0], None if a[1] is None or b[1] is None else a[1] - b[1], None


def stated_units(fields: Sequence[Field], keys: Keys) -> dict[str, float | str]:
    """Return what fields state of the unit, order, origin and scale of boxes."""
    units: dict[str, float | str] = {}
    for item in fields:
        value = item.stated if keys.fact(item.key) == "unit" else None
        if value is not None:
            units[item.key] = f"{units[item.key]} {value}" if item.key in units else value  # x and y of an origin
    return units


def place_beside_size(fields: Sequence[Field], keys: Keys) -> None:
    """Give the place of a box, whose only other sides are its size, the key of its upper left corner."""
    places = [item for item in fields if item.key.lower() in PLACES and len(item.values) == 2]
    if len(places) == 1 and sides_of(fields, keys).keys() == {"w", "h"}:
        places[0].key = "top_left" if all(keys[item.key].role != "corner" for item in fields) else places[0].key


def add_record(record: FieldRecord, builder: AnswerBuilder, keys: Keys, end: int, partial: bool = False) -> None:
    """Turn a closed or cut-off record into objects or drops.

    A key that repeats begins another object; labels go with the shapes of their part of the record.
    """
    span, fields = (record.start, end), record.fields
    place_beside_size(fields, keys)
    for item in fields:
        stated = item.stated if keys.fact(item.key) == "place" else None
        if stated is not None and names_place(item.key, stated):
            builder.places.append((*span, f"{stated:g}" if isinstance(stated, float) else stated))
    if units := stated_units(fields, keys):
        builder.units.append((*span, units))  # for the records in it
    parts = _parts(fields, keys)
    if partial and len(fields) > 1 and all(keys.label_of(item.key) and item.groups for item in fields):
        parts = [fields[:-1], fields[-1:]]  # {"cat": [1, 2, 3, 4], "dog": [5: each key is an object
    objects = [_Object(part, keys, record, builder, span) for part in parts]
    objects[-1].partial = partial
    labels = [found.label for found in objects if found.label is not None]
    for found in objects:
        if len(labels) == 1:  # it names all of them
            found.label = labels[0]
        found.add(record.has_children)


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


class _Object:
    """The fields of one object of a record."""

    def __init__(
        self, fields: list[Field], keys: Keys, record: FieldRecord, builder: AnswerBuilder, span: tuple[int, int]
    ) -> None:
        self.fields, self.keys, self.builder, self.span = fields, keys, builder, span
        self.name, self.listed, self.repairs = record.name, record.listed, record.repairs
        self.partial = self.label_is_weak = self.is_unsure = self.is_deleted = False
        self.is_call = any(item.key in _CALLS for item in fields)
        self.label: str | None = None
        self.labels: list[str] = []
        self.scores: list[Confidence | None] = []
        self.shapes: list[tuple[Field, FieldMeaning]] = []
        self.others: list[Field] = []
        self.numbers = 0
        self.turns: dict[str, float | str] = {}
        self.units = stated_units(fields, keys)
        for item in fields:
            is_read = self._read_fact(item)
            # {"origin": [1, 2]} may be a point of this name
            if not is_read or len(item.values) >= 2:
                self._read(item, keys[item.key])

    def _read_fact(self, item: Field) -> bool:
        """Read a field that may turn, place or delete the box; return whether it does."""
        fact = self.keys.fact(item.key)
        stated = item.stated if fact else None
        if stated is None:
            return False
        if fact == "turn":
            self.turns[item.key] = stated
        elif fact == "deleted":
            written = f"{stated:g}" if isinstance(stated, float) else stated
            self.is_deleted |= is_deleted({item.key: written}, "aside")
        return True

    def _read(self, item: Field, meaning: FieldMeaning) -> None:
        """Read a label, a score or numbers."""
        role = meaning.role
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
        elif item.words and any(item.groups):
            self.shapes.append((item, meaning if role == "shape" else FieldMeaning("shape", kind="any")))
        elif role == "shape":
            if not self.shapes and meaning.unit:
                self.units["unit"] = meaning.unit
            self.shapes.append((item, meaning))
        elif item.key == "target" and item.text and self.label is None:  # of a call
            self.label, self.label_is_weak = item.text, True
        elif role in ("other", "list") and item.groups:
            self.others.append(item)
        elif item.text and self.keys.label_of(item.key) and not meaning_of(item.key):
            self.is_unsure |= len(item.text.split()) <= _FEW_WORDS
        if role != "shape":
            self.numbers += len(item.values)

    def _drop(self, reason: str) -> None:
        self.builder.drop(reason, *self.span)

    def add(self, quiet: bool) -> None:
        """Add the shapes or drops of this object; `quiet` leaves out the drop of one without coordinates."""
        builder, keys = self.builder, self.keys
        if self.shapes and not self.partial and all(_is_absent(item) for item, _ in self.shapes):
            builder.explicit_empty = True  # {"label": "cat", "bbox": null}
            return
        shapes = [(item, meaning) for item, meaning in self.shapes if any(item.groups) or item.invalid]
        for item in self.fields:
            if keys[item.key].role in ("side", "label") and len(item.values) > 1:
                self._drop("unread_numbers")
        sides = sides_of(self.fields, keys)
        if sides.keys() >= {"w", "h"} and any(len(item.values) == 2 for item, _ in shapes):
            self._drop("ambiguous")  # a point beside a size: the centre of a box, or its corner
            return
        is_placed = not shapes and (not self.partial or len(sides) >= 4)
        order, numbers = box_of_sides(sides) if is_placed else ("", [])
        if self.is_deleted:
            if shapes or numbers:
                self._drop("deleted")
            builder.explicit_empty = True  # {"label": "cat", "present": false}
        elif shapes or numbers:
            builder.start_count += 1
            if numbers:
                shapes = [(Field("", [numbers], done=True), keys[ORDER_KEYS[order]])]
            self._add_shapes(shapes, bool(numbers))
        elif not self._add_by_label():
            self._drop_unplaced(bool(sides.keys() - {"w", "h"}), quiet)

    def _drop_unplaced(self, has_sides: bool, quiet: bool) -> None:
        """Drop an object without coordinates, unless it says that there is none or is no object."""
        if quiet and not has_sides and (self.label is None or not self.shapes):
            return
        if self.partial:
            self._drop("truncated")
        elif has_sides:
            self._drop("wrong_arity")
        elif self.label is not None and not self.shapes and says_nothing(self.label):
            self.builder.explicit_empty = True  # {"label": "no object"}
        elif self.shapes or self.label is not None or self.labels:
            self._drop("no_coordinates")
        elif self.numbers >= 4:
            is_told = all(self.keys.is_no_box(item.key) for item in self.others)
            self._drop("unread_numbers" if self.others and is_told else "unrecognised")

    def _add_shapes(self, shapes: list[tuple[Field, FieldMeaning]], has_corners: bool) -> None:
        """Add the first shape, and drop those beside it."""
        if len(shapes) > 1:
            self.repairs = (*self.repairs, "second_geometry")
        for number, (item, meaning) in enumerate(shapes):
            if number == 0 or not item.done:
                self._add_shape(item, meaning)
            else:
                for _ in item.shapes(meaning.kind, self.builder.geometry):
                    self._drop("second_geometry")
        for item in self.others:
            for group in () if self.keys.is_no_box(item.key) else item.groups:
                if len(group) == 4:
                    self._drop("unrecognised")
        for item in self.fields:
            if self.keys[item.key].role == "corner" and any(item.groups) and not has_corners:
                self._drop("second_geometry")  # a corner of another box, beside a shape that is kept

    def _add_by_label(self) -> bool:
        """Add the boxes of a dictionary by label, `{"cat": [[1, 2, 3, 4]]}`; return False if it is not one."""
        if self.shapes or self.partial:
            return False
        builder, keys = self.builder, self.keys
        arity = 2 if builder.geometry == "point" else 4
        others = [item for item in self.others if not keys.is_no_box(item.key)]
        others = [item for item in others if not _OTHER_ORDER.fullmatch(item.key.lower())]
        shapes = [(item.key, shape) for item in others for shape in item.shapes("any", builder.geometry)]
        boxes = [key for key, (geometry, numbers) in shapes if len(numbers) == arity or not geometry]
        if not boxes or (self.label is not None and len(boxes) > 1):
            return False
        if self.label is None and self.is_unsure and builder.need_labels:  # {"a": "cat", "b": [1, 2, 3, 4]}
            self._drop("ambiguous")
            return True
        last = None
        for key, (geometry, numbers) in shapes:
            if len(numbers) != arity:
                self._drop("wrong_arity" if geometry else "ambiguous")
                continue
            builder.start_count += key != last
            last = key
            label = self.label if self.label is not None else keys.label_of(key)
            self._add(label, geometry, numbers, None, self._score(len(boxes), 0))
        return True

    def _add_shape(self, item: Field, meaning: FieldMeaning) -> None:
        requested, partial, values = self.builder.geometry, self.partial, item.values
        kind = "box" if self.turns and meaning.kind == "any" else meaning.kind
        tokens = sum(value[1] is not None for value in values)
        expected = GEOMETRIES["box" if kind == "any" else kind]
        is_whole = tokens and not item.invalid and expected.fixed and len(values) == expected.least
        if not (item.done or is_whole) and (partial or not item.invalid):
            self._drop("truncated" if partial else "stray_text")
            return
        if len(values) >= MAX_NUMBERS:
            self._drop("wrong_arity")
            return
        if item.invalid or tokens not in (0, len(values)):
            for _ in range(max(1, len(item.shapes(kind, requested)))):
                self._drop("invalid_coordinate")
            return
        for name, group, scores in item.rows() if item.words else ():
            for geometry, values in split_shapes([group], kind, requested, number_of):
                self._add(name, geometry, values, meaning.row, next(map(_confidence, scores), None))
        if item.words:
            return
        label = self.name
        if self.label is not None and (self.listed or not self.label_is_weak or not self.name):
            label = self.label
        rectangle = any(other.key == "shape_type" and other.text == "rectangle" for other in self.fields)  # LabelMe
        shapes = item.shapes("box" if rectangle else kind, requested)
        labels = [label] * len(shapes)
        if len(self.labels) == len(shapes):
            labels = self.labels
        elif self.labels:
            self._drop("ambiguous")  # which label belongs to which box
        if len(self.scores) > 1 and len(self.scores) != len(shapes):
            self._drop("unread_numbers")
        for number, (name, (geometry, group)) in enumerate(zip(labels, shapes, strict=True)):
            if geometry:
                self._add(name, geometry, group, meaning.row, self._score(len(shapes), number))
            else:
                self._drop("ambiguous")

    def _score(self, shapes: int, number: int) -> Confidence | None:
        """Return the confidence of one of several shapes: that of each, or the only one."""
        if len(self.scores) == shapes:
            return self.scores[number]
        return self.scores[0] if len(self.scores) == 1 else None

    def _add(
        self, label: str, geometry: Geometry, group: Sequence[Value], row: TextFormat | None, score: Confidence | None
    ) -> None:
        builder, order, own_scale, turn = self.builder, "", None, 0.0
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
        if geometry == "oriented" and len(group) == 5:  # centre, size and angle
            self.turns = {"rotation": group[4][0]}
            geometry, group, order = "box", group[:4], "cxcywh"
        if geometry == "box" and self.turns:
            turn = self._turn()
        if geometry == "oriented" and len(group) == 4 and self.turns:
            self._drop("turned")  # which four numbers they are is not known
            return
        if self.units and _PERCENT.issuperset(str(value).lower() for value in self.units.values()):
            group = [(number, number / 100, None) for number, _, _ in group]
        elif geometry == "box" and self.units and not builder.agrees(self.units, order, list(map(number_of, group))):
            self._drop("other_unit")
            return
        stated = Stated(label, self.span, builder.start_count - 1, self.repairs, self.partial, score)
        builder.add_values(stated, group, geometry, order, own_scale, turn)

    def _turn(self) -> float:
        """Return the angle in degrees that the fields state, NaN if it, or its unit, is not known."""
        angles: dict[str, float] = {}
        for name, value in self.turns.items():
            if isinstance(value, float):
                angles[name] = value
            elif found := _ANGLE.fullmatch(value):
                angles[_ANGLE_UNITS.get((found[2] or "")[:1].lower(), name)] = read_number(found[1])
            elif any(map(str.isdigit, value)) or value.strip().lower() == "true":
                return math.nan
        try:
            return turn_of(angles, self.builder.largest_turn)
        except InputError:
            return math.nan


def _is_absent(item: Field) -> bool:
    """Return whether the value of a shape says that there is none: `null`, `"none"` or an empty list."""
    if any(item.groups):
        return False
    return says_nothing(item.text or "") or (item.done and not item.invalid)


def _scores(item: Field) -> list[Confidence | None]:
    """Return the confidences of a value, each a share, or in per cent; `0,95` is .95."""
    texts = item.texts or ([] if item.text is None else [item.text])
    found = [_SCORE.fullmatch(text.strip().replace(",", ".")) for text in texts]
    values = [match and read_value(match[1], match[2] is not None) for match in found]
    return list(map(_confidence, values or item.values))


def _confidence(value: Value | None) -> Confidence | None:
    if value is None:
        return None
    share = value[1] if value[1] is not None else value[0] / (100 if value[0] > 1 else 1)
    return Confidence(share, None if value[1] is not None else value[0]) if 0 <= share <= 1 else None
