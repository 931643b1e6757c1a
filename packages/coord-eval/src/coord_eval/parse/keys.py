"""What the key of a field means: `{"label": "cat", "bbox": [1, 2, 3, 4]}`, a column, a YAML key, an XML element."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import permutations, product
from typing import Literal, NamedTuple

from coord_codec import GEOMETRIES
from coord_codec.fields import ATTRIBUTES, Meaning, meaning_of
from coord_eval.parse.answer import Geometry
from coord_eval.parse.formats import FORMATS, TextFormat
from coord_eval.parse.numbers import NumberKind

Role = Literal["list", "other", "label", "score", "centre", "size", "labels", "side", "corner", "shape"]
_WORDS: Mapping[Role, str] = {
    # lists of objects and other containers
    "list": "objects detections results annotations items predictions instances data elements output answer image "
    "labels bounding_boxes detected_objects regions characters arguments args parameters params input inputs "
    "action_inputs function properties res texts text_blocks text_lines layout layouts ocr ocr_results ocr_result list "
    "found found_objects items_found answers json properties response result bbox_list boxes_list detection entities "
    "markers words lines keypoints bndbox tool_call action target shapes blocks page pages value path geometry "
    "details info localization"
    f" frames images annotation values {' '.join(sorted(ATTRIBUTES))}",
    # numbers that are no coordinates
    "other": "size image_size resolution shape id ids counts mask_rle segmentation mask reading_order "
    "page_size time timestamp index dimensions",
    "label": "label desc description name category class ref text_content type tag mention class_name category_name "
    "label_name object object_name phrase sub_label label_text object_label object_class element entity item alt "
    "item_name data-label 标签 类别 名称 物体 类型 对象 ラベル クラス 名前 이름 라벨 클래스 객체 класс метка объект "
    "название bezeichnung klasse kategorie objekt étiquette classe catégorie objet nom etiqueta clase categoría objeto "
    "nombre rótulo etichetta oggetto",
    "score": "score confidence conf probability prob certainty likelihood objectness konfidenz wahrscheinlichkeit "
    "confiance probabilité confianza probabilidad confiança confidenza probabilità уверенность вероятность 置信度 "
    "信頼度 신뢰도",
    "centre": "xy center centre center_point",
    "size": "hw wh size dimensions dimension dims extent extents width_height w_h box_size bbox_size",
    "labels": "labels bboxes_labels names classes categories class_names category_names phrases",
}
KEYS: Mapping[Role, tuple[str, ...]] = {role: tuple(words.split()) for role, words in _WORDS.items()}
"""Keys by what they mean; where a key stands twice, the later meaning counts."""
SIDES = {
    key: side
    for side, keys in {
        "x1": "x1 xmin x_min min_x left x0 start_x left_x x_left",
        "y1": "y1 ymin y_min min_y top y0 start_y top_y y_top upper",
        "x2": "x2 xmax x_max max_x right end_x right_x x_right",
        "y2": "y2 ymax y_max max_y bottom end_y bottom_y y_bottom lower",
        "cx": "cx x_center center_x xc x_centre xcenter",
        "cy": "cy y_center center_y yc y_centre ycenter",
        "x": "x",
        "y": "y",
        "w": "width w",
        "h": "height h",
    }.items()
    for key in keys.split()
}
"""Keys of a single side of a box."""
_CORNERS = {
    f"{first}{joint}{second}": ("x1" if "left" in pair else "x2", "y1" if {"top", "upper"} & set(pair) else "y2")
    for pair in product(("top", "upper", "bottom", "lower"), ("left", "right"))
    for (first, second), joint in product(permutations(pair), ("", "_"))
} | {"min": ("x1", "y1"), "p1": ("x1", "y1"), "corner": ("x1", "y1"), "max": ("x2", "y2"), "p2": ("x2", "y2")}
"""Keys of a corner of a box, and the sides that meet in it."""
PLACES = frozenset("position pos location loc origin place coordinate coordinates coords offset".split())
"""Keys of a place that is the upper left corner of a box where a size stands beside it."""
_BOX_WORDS = {
    "bbox": "bbox bboxes box boxes bounding_box bounding_boxes bounding_rectangle bounding_rect boundingbox "
    "begrenzungsrahmen begrenzungsbox boîte_englobante boîte_de_délimitation cadre_englobant rectangle_englobant "
    "caja_delimitadora cuadro_delimitador caixa_delimitadora riquadro_di_delimitazione рамка ограничивающая_рамка "
    "边界框 包围框 检测框 バウンディングボックス 境界ボックス 바운딩_박스 경계_상자",
    "region": "region regions location locations position positions coordinate coordinates coords coord pos loc "
    "bbox_coordinates bounding_box_coordinates box_coordinates koordinaten koordinate lage coordonnées emplacement "
    "coordenadas posición ubicación posição localização posizione координаты "
    "положение 坐标 位置 座標 좌표 위치",
}
BOX_WORDS = {word: key for key, words in _BOX_WORDS.items() for word in words.split()}
"""Words that name numbers and no object, in the languages of the labels, and the key that says the same."""
_NO_BOX = frozenset(KEYS["other"])
COLOUR = re.compile(r"(?:[a-z0-9]{1,20}_){0,3}(?:colou?rs?|rgba?|bgra?|hs[vl]a?|cmyk)", re.IGNORECASE)
TEXTS = tuple("text transcription caption title content".split())
"""Keys of a text that is the label where a record has no other one, in the order in which one is chosen."""
NO_LABELS = frozenset(
    (
        "reason reasoning thought thoughts thinking explanation rationale justification instruction question query "
        "prompt analysis to from direction message observation evidence language lang url font style relation "
        "relationship action_type tool operation op"
    ).split()
)
"""Keys of other texts that are no label, those of `coord_codec.fields` aside."""
WEAK_LABELS = frozenset("type tag sub_label element entity item alt object_class description".split())
"""Keys that name an object only if no other key does."""
ACTIONS = re.compile(
    r"(?:left_?|right_?|double_?|middle_?|long_?|mouse_?)?"
    r"(?:click|tap|press|move(?:_?to)?|hover|drag|scroll|swipe|touch)",
    re.IGNORECASE,
)
"""Values of a key `type` that name a call and no object."""
_SCORE_WORDS = frozenset(KEYS["score"]).union("scores confidences probabilities probs".split())
_BESIDE_SCORE = frozenset(
    "bbox box class cls det detection label level model object of pct percent pred prediction value".split()
)
"""Words that a key of a confidence may have besides: `det_score`, `confidence_level`."""
_FACTS: Mapping[Meaning, Meaning] = {
    **{meaning: meaning for meaning in ("turn", "place", "unit", "deleted")},
    "setting": "unit",
    "aside": "deleted",
}
_SQUEEZED = re.compile(r"[\s-]+")
_SOME_BOX = re.compile(
    r"(?:[a-z0-9]{1,20}_)?(?:bbox|bounding_?box)(?:_(?!(?:format|type|mode|order|units?|convention|system|space|count|id"
    r"|colou?r|label|area|score|confidence|angle|rotation|theta)$|[xywhltrbc]{4,6}$)[a-z0-9]{1,20})?"
)
"""Keys of boxes that the table of formats does not name: `bbox_pixels`, `person_bbox`."""
_OF_PIXELS = re.compile(r"(?i:(?<![a-z])(?:pixels?|px|abs(?:olute)?)(?![a-z]))|Pixel")
_SOME_LABEL = re.compile(r"[a-z0-9]{1,20}_(?:label|class|category)")
"""Keys of labels that are not listed: `block_label`."""
_WORD = re.compile(r"[^\W\d_]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_NUMBERED = re.compile(r"_?[0-9]+$")
_END_OF_STROKE = re.compile(r"(?:start|end)_")


class FieldMeaning(NamedTuple):
    """What a key means: `sides` that its numbers are; `unit` that the key of a shape states: `bbox_pixels`."""

    role: Role
    sides: tuple[str, ...] = ()
    row: TextFormat | None = None
    kind: NumberKind = "any"
    unit: str = ""


_OTHER = FieldMeaning("other")


class Keys:
    """Meanings of keys, for one geometry that the caller expects and one more row of keys.

    Words such as `Box` may be the label of an object, so they count in lower case alone; other keys count in any case,
    with a number (`label_1`, `bbox_2d_2`), and with hyphens or spaces for underscores.
    """

    def __init__(self, requested: Geometry, row: TextFormat | None = None) -> None:
        self.requested = requested
        self.known = {key: FieldMeaning(role) for role, keys in KEYS.items() for key in keys}
        self.known |= {key: FieldMeaning("side", (side,)) for key, side in SIDES.items()}
        self.known |= dict.fromkeys(KEYS["centre"], FieldMeaning("centre", ("cx", "cy")))
        self.known |= dict.fromkeys(KEYS["size"], FieldMeaning("size", ("w", "h")))
        self.known["hw"] = FieldMeaning("size", ("h", "w"))
        self.known |= {key: FieldMeaning("corner", sides) for key, sides in _CORNERS.items()}
        for other in (*FORMATS.values(), *([row] if row else [])):
            self.known |= {key: FieldMeaning("shape", row=other, kind=other.kind) for key in other.keys}
        shapes = {key for key, meaning in self.known.items() if meaning.role == "shape"}
        # Keys of other geometries count only where they are expected: else they may have another meaning.
        for kind in GEOMETRIES.values():
            if kind.name in (requested, "polygon"):
                further = {*kind.keys, *(("poly", "polygons") if kind.name == "polygon" else ())} - shapes
                self.known |= dict.fromkeys(further, FieldMeaning("shape", kind=kind.name))
                shapes |= further
        self.known |= {word: self.known[key] for word, key in BOX_WORDS.items() if word not in self.known}
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
        if self[key].role not in ("other", "list"):
            return ""
        return _FACTS.get(meaning_of(key) or meaning_of(key.removeprefix("bbox_")), "")

    def stem(self, key: str) -> str:
        """Return a key without its number, `start` or `end`, if repeating it begins another object; else ""."""
        role = self[key].role
        if role not in ("label", "score", "side", "corner", "shape"):
            return ""
        name = _HUMP.sub("_", key).lower()
        if role == "shape" and (end := _END_OF_STROKE.match(name)):
            return name[end.end() :]
        return key if key in self.known else _NUMBERED.sub("", key)

    def label_of(self, key: str) -> str:
        """Return a key as the label of its value, "" if the key has another meaning."""
        return key if self[key] is _OTHER and not self.is_no_box(key) else ""

    def is_no_box(self, key: str) -> bool:
        """Return whether the numbers below a key are no coordinates: those of a size, a mask, a colour."""
        return key in _NO_BOX or COLOUR.fullmatch(key) is not None

    def may_label(self, key: str) -> bool:
        """Return whether a text below this key, which is no key of labels, may be the label of a record."""
        name = key.lower()
        is_other = self.label_of(key) != "" and name not in NO_LABELS and not meaning_of(key)
        return is_other or name in TEXTS

    def row_of_plain(self, name: str | None, key: str) -> TextFormat | None:
        """Return the format of the boxes below a key beside a label below a name, None for other keys."""
        meaning = self[key]
        is_plain = meaning.kind == "box" and not meaning.unit and name is not None and self[name].role == "label"
        return meaning.row if is_plain else None
