"""What the fields of a stated object mean for its box, by their names: one table for every reader of annotations.

A field that turns the box, places it in another image or states its unit is read, or the box is refused: read without
the field, it would be another box. Fields of other meanings change nothing, and are told by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from coord_codec.files import InputError

Meaning = Literal["turn", "shape", "place", "unit", "setting", "deleted", "aside", "harmless", ""]
NumberOrder = Literal["xyxy", "xywh", "cxcywh"]
Unit = Literal["pixels", "fractions", "thousandths"]

_NAMES: Mapping[Meaning, str] = {
    "turn": "ang angle angle_deg angle_degrees angle_rad angle_radians bbox_angle bbox_rotation bearing "
    "box_angle box_rotation degrees heading is_oriented is_rotated obb_angle orientation orientation_angle "
    "oriented radians rbbox_angle roll roll_angle roll_deg rot rot_angle rot_deg rot_rad rotate rotated "
    "rotated_angle rotation rotation_angle rotation_deg rotation_degrees rotation_rad rotation_radians theta "
    "theta_deg theta_rad tilt yaw drehung drehwinkel rotationswinkel winkel angulo ángulo rotación rotazione angolo "
    "угол 角度 旋转 旋转角度 回転 각도 회전 transform",
    "shape": "bbox_rotated obb obb_2d oriented_bbox oriented_box quad quad_2d quadrangle quadrilateral rbbox rbbox_2d "
    "rbox rbox_2d rotated_bbox rotated_box",
    "place": "camera frame frame_id frame_idx frame_index frame_number image image_file image_id image_idx image_index "
    "image_name img_idx page page_index page_number t time timestamp "
    + " ".join(
        f"{word}{end}"
        for word in ("crop", "panel", "tile", "view")
        for end in ("", "_id", "_idx", "_index", "_no", "_number")
    )
    + " bild bild_nr bildnummer imagen imagem immagine изображение кадр "
    "图片 图像 图像编号 帧 画像 フレーム 이미지 프레임",
    "unit": "absolute bbox_format bbox_mode bbox_type bbox_unit box_format box_mode box_type coord_format coord_space "
    "coord_system coord_type coordinate_space coordinate_system coordinates_type is_normalized normalised normalized "
    "relative unit units einheit unité unidad unidade unità единица 单位 単位 단위",
    "setting": "bbox_offset offset origin scale scale_factor",
    "deleted": "deleted exists is_deleted is_present is_rejected is_removed is_valid present rejected removed valid "
    "gelöscht supprimé eliminado eliminato удалено 已删除 削除済み",
    "aside": "crowd detected false_positive found group_of hidden ignore ignored invisible is_crowd "
    "is_false_positive is_group_of is_hidden is_ignored "
    "is_visible state status visible",
    "harmless": "annotator area attributes author bbox_id caption category category_name class class_id color colour "
    "comment confidence created created_at creator date description difficult hash height id instance_id is_occluded "
    "is_truncated label label_id license name notes num_keypoints object_id occluded occlusion pose quality score "
    "source tag tags track_id tracking_id truncated truncation updated_at verified visibility width z_order",
}
"""Names of fields by meaning, in any case, with or without underscores.

`setting` and `aside` change what an answer states. In files of annotations they describe the object, as DeepFashion2's
`scale` of 1 to 3 does, and are read or told as not read.
"""
_WORDS: Mapping[Meaning, frozenset[str]] = {
    "turn": frozenset(
        "angle angles azimuth bearing heading orientation rotate rotated rotation skew theta tilt yaw".split()
    ),
    "place": frozenset(
        "file filename frame image img page photo picture screenshot slide time timestamp video".split()
    ),
    "unit": frozenset("absolute normalisation normalised normalization normalized relative unit units".split()),
}
"""Words of further names: one with such a word has its meaning, if its other words are among `_FILLERS`."""
_COORDINATES = frozenset("bbox box boxes coord coordinate coordinates coords".split())
_FILLERS = _COORDINATES.union(
    "by deg degree degrees id idx in index is ms name no num number obb of path rad radians rbox s sec seconds source "
    "system to type value".split()
)
_CONVENTIONS = frozenset("convention format mode order space system type".split())
"""Words that together name the unit or order of boxes: `coords_type`."""
_PRESENT = frozenset("detected exists found ispresent isvalid isvisible present valid visible".split())
"""Names of fields that mark an object as deleted or hidden where they are false, in their `_key` form."""
_SET_ASIDE = frozenset("deleted discarded hidden ignored invalid invisible rejected removed".split())
"""States of an object that is not to be counted."""
_OF_AN_IMAGE = frozenset(("file", "filename", "frame", "image", "img", "photo", "picture"))
_NUMBERS = frozenset(("frame", "idx", "index", "number"))
"""Words of a place that may be a number of the image in its video or its file, and not its name or id."""
_BY_NUMBER = frozenset(("crop", "panel", "t", "tile", "view"))
"""Words of places that are numbered; those of other values, such as the view `front`, describe the object."""
_NUMBERED = re.compile(r"\s*(?:[a-z]+[ _-]?)?[0-9]+(?:\.[0-9]+)?\s*|[a-z]", re.IGNORECASE)
ATTRIBUTES = frozenset(("attributes", "extra", "meta", "metadata", "properties"))
"""Names of a field with further fields of an object, in their `_key` form."""
OF_THE_OBJECT = frozenset(("azimuth", "bearing", "heading", "roll", "yaw"))
"""Words of angles that may be the direction of an object on the ground, and not that of its box."""
OF_ATTRIBUTES = frozenset(("rotation", "angle", "theta"))
"""Names of an angle among the attributes of an object, which a user may have named freely."""
OF_COCO = frozenset("id image_id category_id bbox area iscrowd segmentation keypoints num_keypoints".split())
"""Fields of COCO annotations, nearly all of which have no others."""
_SECONDS = 1e6
"""Times from this number on, and those in text, say when an object was labelled."""
_FULL_TURN = 2 * math.pi
_MOST_DEGREES = 1e6
_SAME_BOX = 0.01
"""How far a side of a box may lie from that around the shape of its object, as a share of its longer side."""
_ORDERS = {"xyxy": "xyxy", "ltrb": "xyxy", "xywh": "xywh", "ltwh": "xywh", "cxcywh": "cxcywh", "xcycwh": "cxcywh"}
_UNITS = {
    **dict.fromkeys(("pixel", "pixels", "px", "abs", "absolute", "real"), "pixels"),
    **dict.fromkeys(
        ("normalized", "normalised", "norm", "norm1", "rel", "relative", "fraction", "fractions"), "fractions"
    ),
    **dict.fromkeys(("norm1000", "permille", "thousandths"), "thousandths"),
    **dict.fromkeys(("percent", "percentage", "cm", "mm", "inch", "m", "bins"), "other"),
}
_MODES: Mapping[float, tuple[str, str]] = {
    0: ("xyxy", "pixels"),
    1: ("xywh", "pixels"),
    2: ("xyxy", "fractions"),
    3: ("xywh", "fractions"),
}
"""Numbers of `bbox_mode` as Detectron2 defines them."""
NOT_READ = "objects with the field {}, which is not read and changes nothing"
CERTAIN = "objects whose {} is 1, which is not read and changes nothing"
_CONFIDENCES = frozenset({"score", "scores", "confidence", "conf", "prob"})
DELETED = "objects that their file marks as deleted, left out"


def _key(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _words(name: str) -> set[str]:
    """Return the words of a name: `rotationAngle`, `rotation_angle` and `Rotation angle` have the same."""
    return set(re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()))


_MEANINGS: Mapping[str, Meaning] = {_key(name): meaning for meaning, names in _NAMES.items() for name in names.split()}


@lru_cache(maxsize=1 << 12)
def meaning_of(name: Any) -> Meaning:
    """Return what a field of a stated object means for its box; "" for a name that is not known.

    Example:
        >>> [meaning_of(name) for name in ("rotationAngle", "quad_2d", "frame", "bbox_mode", "track_id", "breed")]
        ['turn', 'shape', 'place', 'unit', 'harmless', '']
        >>> [meaning_of(name) for name in ("angle in degrees", "imageNumber", "coords_type", "camera_angle")]
        ['turn', 'place', 'unit', '']
    """
    known = _MEANINGS.get(_key(str(name)))
    if known is not None:
        return known
    words = _words(str(name))
    if words & _COORDINATES and words & _CONVENTIONS and words <= _COORDINATES | _CONVENTIONS:
        return "unit"
    found = [meaning for meaning, own in _WORDS.items() if words & own and words <= own | _FILLERS]
    return found[0] if found else ""


def names_of(*meanings: Meaning) -> list[str]:
    """Return the names of fields of some meanings, as they are written most."""
    return [name for meaning in meanings for name in _NAMES[meaning].split()]


def pattern_of(*meanings: Meaning) -> str:
    """Return a regular expression of names that may have one of some meanings, which `meaning_of` decides.

    Example:
        >>> pattern = re.compile(pattern_of("turn"))
        >>> [pattern.fullmatch(name) is not None for name in ("angle_in_degrees", "headingAngle", "score")]
        [True, True, False]
    """
    names = [name for name in names_of(*meanings) if len(name) > 1 or not name.isascii()]
    named = {word for name in names for word in _words(name)} - _FILLERS
    words = sorted(
        named.union(filter(str.isalpha, names), *(_WORDS.get(meaning, ()) for meaning in meanings)),
        key=len,
        reverse=True,
    )
    boxes = rf"(?:{'|'.join(sorted(_COORDINATES, reverse=True))})[_ -]?(?:{'|'.join(sorted(_CONVENTIONS))})"
    return rf"(?:[a-zA-Z]{{1,12}}[_ -]?)??(?i:{'|'.join(words)}|{boxes})(?:[_ -]?[a-zA-Z]{{1,12}}){{0,2}}"


def of_meaning(record: Mapping[Any, Any], *meanings: Meaning) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the fields of some meanings, and an angle in `attributes` or the like."""
    for name, value in record.items():
        if isinstance(value, Mapping) and _key(str(name)) in ATTRIBUTES:
            own = OF_ATTRIBUTES & value.keys() if "turn" in meanings else ()
            yield from ((f"{name}.{key}", value[key]) for key in sorted(own))
        elif meaning_of(name) in meanings:
            yield str(name), value


def states_more(record: Mapping[Any, Any]) -> bool:
    """Return whether a record has fields that may change its box, name another image, or delete its object."""
    if record.keys() <= OF_COCO:
        return False
    further = {name: value for name, value in record.items() if name not in OF_COCO}
    found = of_meaning(further, "turn", "shape", "unit", "deleted", "place")
    return any(meaning_of(name) != "place" or _is_of_an_image(name) for name, _ in found)


def is_deleted(record: Mapping[Any, Any], *further: Meaning) -> bool:
    """Return whether a record marks its object as deleted, or in a field of further meanings as not to be counted.

    Example:
        >>> is_deleted({"deleted": 1}), is_deleted({"visible": False}), is_deleted({"visible": False}, "aside")
        (True, False, True)
    """
    for name, value in of_meaning(record, "deleted", *further):
        stated = str(value).strip().lower()
        if stated in (("0", "false", "no") if _key(name) in _PRESENT else ("1", "true", "yes", *_SET_ASIDE)):
            return True
    return False


def turn_of(record: Mapping[Any, Any], largest: Callable[[], float] | None = None) -> float:
    """Return the clockwise rotation in degrees of a box about its centre; 0 for an upright box.

    The unit is in the name of the field (`angle_rad`), or degrees where a value of the file exceeds a full turn in
    radians. CVAT's `attributes.rotation` is in degrees always.

    The largest angle of the whole file, if it can be asked for, decides the unit, else that of this object.

    Example:
        >>> turn_of({"bbox": [0, 0, 4, 2], "angle": 30}), turn_of({"attributes": {"rotation": 2.5}})
        (30.0, 2.5)
    """
    found: dict[str, float] = {}
    for name, value in of_meaning(record, "turn"):
        if value is True:
            raise InputError(f"{name}: expected the angle of a rotated box, found true; write the angle, such as 30")
        if (angle := _angle(value)) is not None and angle:
            found[name] = _degrees(name, angle, largest)
    if len({round(degrees % 180, 6) for degrees in found.values()}) > 1:
        raise InputError(f"{' and '.join(found)}: expected one angle of the box, found {len(found)}")
    degrees = next(iter(found.values()), 0.0)
    return degrees if degrees % 180 else 0.0


def largest_turn(records: Iterable[Mapping[Any, Any]]) -> float:
    """Return the largest angle that any object states, in its own unit."""
    angles = (_angle(value) for record in records for _, value in of_meaning(record, "turn"))
    return max((abs(angle) for angle in angles if angle is not None), default=0.0)


def _angle(value: Any) -> float | None:
    """Return a number or numeric text as an angle; None for anything else, such as `left`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        angle = float(value)
    except ValueError:
        return None
    return angle if abs(angle) < _MOST_DEGREES else None


def _degrees(name: str, angle: float, largest: Callable[[], float] | None) -> float:
    key = _key(name)
    if OF_THE_OBJECT & _words(name):
        raise InputError(
            f"{name}: expected an angle of the box by a name such as rotation_deg, found {angle:g}, which may be the "
            "direction of the object; rename the field, or remove it if the box is upright"
        )
    if "rad" in key:
        return math.degrees(angle)
    if "deg" in key or key == "attributesrotation" or abs(angle) > _FULL_TURN:
        return angle
    if largest is not None and largest() > _FULL_TURN:
        return angle
    raise InputError(
        f"{name}: expected an angle in degrees, found {angle:g}, which may be in radians: name the field {name}_deg or "
        f"{name}_rad"
    )


def outline_beside(record: Mapping[Any, Any], corners_xyxy: Sequence[float]) -> list[float] | None:
    """Return x and y of the corners of an oriented box that a record states beside its upright box.

    None where it states none, or one that the upright box encloses.

    Example:
        >>> outline_beside({"rbbox": [50, 30, 100, 40, 90]}, (0, 10, 100, 50))
        [70.0, -20.0, 70.0, 80.0, 30.0, 80.0, 30.0, -20.0]
    """
    for name, value in of_meaning(record, "shape"):
        if not value:
            continue
        numbers = _flat(value)
        if len(numbers) == 5:
            cx, cy, width, height, _ = numbers
            degrees = _degrees(name, numbers[4], None) if numbers[4] else 0.0
            outline = rotated_corners((cx - width / 2, cy - height / 2, width, height), degrees)
        elif len(numbers) == 8:
            outline = numbers
        else:
            raise InputError(f"{name}: expected four corners, or centre, size and angle, found {value!r:.80}")
        box = (min(outline[::2]), min(outline[1::2]), max(outline[::2]), max(outline[1::2]))
        slack = _SAME_BOX * max(box[2] - box[0], box[3] - box[1]) + float(max(box) > 2)  # a pixel, where it is pixels
        is_around = all(abs(a - b) <= slack for a, b in zip(box, corners_xyxy, strict=True))
        return None if is_around else outline
    return None


def _flat(value: Any) -> list[float]:
    """Return the numbers of a list, or of a list of pairs; empty for anything else."""
    if not isinstance(value, (list, tuple)):
        return []
    flat = [number for item in value for number in (item if isinstance(item, (list, tuple)) else (item,))]
    are_numbers = all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in flat)
    return [float(number) for number in flat] if are_numbers else []


def rotated_corners(bbox_xywh: Sequence[float], degrees: float) -> list[float]:
    """Return x and y of the four corners of a box rotated clockwise about its centre.

    Example:
        >>> rotated_corners((50, 30, 100, 40), 90)
        [120.0, 0.0, 120.0, 100.0, 80.0, 100.0, 80.0, 0.0]
    """
    x, y, width, height = bbox_xywh
    cos, sin = (round(f(math.radians(degrees)), 15) for f in (math.cos, math.sin))  # exact at right angles
    offsets = [(u * width / 2, v * height / 2) for u, v in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    centre = (x + width / 2, y + height / 2)
    return [c for u, v in offsets for c in (centre[0] + u * cos - v * sin, centre[1] + u * sin + v * cos)]


def check_unit(record: Mapping[Any, Any], order: NumberOrder, unit: Unit, *further: Meaning) -> None:
    """Check that a record states no other order or unit of its box than the format has.

    A `further` meaning is `setting`, where a scale or an origin is that of the box.

    Example:
        >>> check_unit({"bbox": [1, 2, 3, 4], "bbox_mode": 1}, "xywh", "pixels")
        >>> check_unit({"bbox": [1, 2, 3, 4], "unit": "percent"}, "xywh", "pixels")
        Traceback (most recent call last):
        coord_codec.files.InputError: unit: expected xywh in pixels or no such field, found 'percent'
    """
    for name, value in of_meaning(record, "unit", *further):
        if value is None or value == "":
            continue
        if not _agrees(name, value, order, unit):
            raise InputError(f"{name}: expected {order} in {unit} or no such field, found {value!r:.80}")


def _agrees(name: str, value: Any, order: NumberOrder, unit: Unit) -> bool:
    key = _key(name)
    if meaning_of(name) == "setting":
        return _is_usual(key, str(value).lower(), unit)
    if isinstance(value, bool) or (value in (0, 1) and key not in ("bboxmode", "boxmode")):
        in_pixels = bool(value) == (key == "absolute")
        return key in ("unit", "units") or in_pixels == (unit == "pixels")
    if isinstance(value, (int, float)):
        return _MODES.get(value, ("", "")) == (order, unit)
    text = str(value).lower()
    if text.rpartition(".")[2] in ("xyxy_abs", "xywh_abs", "xyxy_rel", "xywh_rel"):
        text = text.rpartition(".")[2]
    words = re.findall(r"[a-z]+[0-9]*", text)
    stated_units = {_UNITS[word] for word in words if word in _UNITS}
    stated_orders = {_ORDERS[word] for word in words if word in _ORDERS}
    known = stated_units | stated_orders or not words
    return bool(known) and stated_units <= {unit} and stated_orders <= {order}


def _is_usual(key: str, text: str, unit: Unit) -> bool:
    """Return whether a scale or an origin leaves a box as it is; words such as `small` or `web` say nothing of it."""
    words = set(re.findall(r"[a-z]+", text))
    numbers = {float(number) for number in re.findall(r"-?[0-9]*\.?[0-9]+", text)}
    if key in ("bboxoffset", "offset", "origin"):
        return not any(numbers) and not words & {"bottom", "center", "centre", "lower", "middle", "right"}
    stated_units = {_UNITS[word] for word in words if word in _UNITS}
    factors = {f"{number:g}" for number in numbers}
    return factors <= ({"1", "1000"} if unit == "thousandths" else {"1"}) and stated_units <= {unit}


def names_place(name: str, value: Any) -> bool:
    """Return whether a field of the meaning `place` names the image or frame of its object.

    Example:
        >>> names_place("image", "a.jpg"), names_place("view", 2), names_place("view", "front")
        (True, True, False)
    """
    if value is None or isinstance(value, bool) or not str(value).strip():
        return False
    if _BY_NUMBER & {_key(name), *_words(name)}:
        return isinstance(value, (int, float)) or _NUMBERED.fullmatch(str(value)) is not None
    return True


def check_places(records: Iterable[Mapping[Any, Any]], own: Mapping[str, Any] | None = None) -> None:
    """Check that the objects of one image do not name several images or frames, or another one than their record.

    They may repeat `image`, `image_id` or a field of the same name of their `own` record.

    Example:
        >>> check_places([{"frame": 3}, {"frame": 3}])
        >>> check_places([{"frame": 3}, {"frame": 4}])
        Traceback (most recent call last):
        coord_codec.files.InputError: frame: expected objects of one image, found 3 and 4; write a record for each image
    """
    first: dict[str, Any] = {}
    for record in records:
        for name, value in of_meaning(record, "place"):
            if own is not None and names_place(name, value) and _is_other(name, value, own):
                raise InputError(
                    f"{name}: expected an object of the record's own image, found {value!r:.40}; write a record for "
                    "each image, or remove the field"
                )
            if not names_place(name, value) or ("time" in _key(name) and not _is_second(value)):
                continue
            if value != first.setdefault(name, value):
                found = f"found {first[name]!r:.40} and {value!r:.40}"
                raise InputError(f"{name}: expected objects of one image, {found}; write a record for each image")


def _is_other(name: str, value: Any, own: Mapping[str, Any]) -> bool:
    """Return whether an object names an image or a frame that its record does not.

    An id counts only where the record states one, and words of a camera, a page or a time never do.
    """
    is_unknown_id = name not in own and "id" in _words(name) and own.get("image_id") is None
    if not _is_of_an_image(name) or is_unknown_id:
        return False
    image = str(own.get("image", "")).replace("\\", "/")
    base = image.rpartition("/")[2]
    stem = base.rpartition(".")[0]
    known = {image, base, stem, str(own.get(name)), *(str(stated) for _, stated in of_meaning(own, "place"))}
    known.update(str(int(digits)) for digits in re.findall(r"[0-9]+$", stem))  # frame_0003.jpg
    return not known & {str(value), str(value).replace("\\", "/").rpartition("/")[2]}


def _is_of_an_image(name: str) -> bool:
    """Return whether a field of the meaning `place` names an image or a frame, and not a camera, a page or a time."""
    words = _words(name)
    return bool(words & _OF_AN_IMAGE) and not words & {"source", "type"}


def numbers_of_images(records: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the fields that number the images of COCO annotations: one value for each image, of each another.

    Example:
        >>> numbers_of_images([{"image_id": 7, "frame": 0}, {"image_id": 9, "frame": 1}])
        frozenset({'frame'})
        >>> numbers_of_images([{"image_id": 7, "frame": 0}, {"image_id": 9, "frame": 0}])
        frozenset()
    """
    stated: dict[str, set[tuple[str, str]]] = {}
    for record in records:
        for name, value in of_meaning(record, "place"):
            if _words(name) & _NUMBERS:
                stated.setdefault(name, set()).add((str(record.get("image_id")), str(value)))
    return frozenset(
        name
        for name, pairs in stated.items()
        if len(pairs) > 1 and all(len(set(column)) == len(pairs) for column in zip(*pairs, strict=True))
    )


def _is_second(value: Any) -> bool:
    """Return whether a time lies in a video, and is not that of the labelling."""
    return isinstance(value, (int, float)) and abs(value) < _SECONDS


def not_read(record: Mapping[Any, Any], read: Collection[str]) -> list[str]:
    """Return a note for each field that a reader does not read and that changes nothing, unless it is empty."""
    return [
        (CERTAIN if is_certain(name, value) else NOT_READ).format(name)
        for name, value in record.items()
        if name not in read and value not in (None, "") and meaning_of(name) not in ("turn", "shape", "unit", "deleted")
    ]


def is_certain(name: Any, value: Any) -> bool:
    """Return whether a field is a confidence of 1, as tools write it that have none, and no prediction."""
    return str(name).lower() in _CONFIDENCES and str(value) in ("1", "1.0")
