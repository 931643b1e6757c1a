"""Codes, messages and corrections for box numbers whose meaning differs from that of their format."""

from __future__ import annotations

from coord_codec.layouts import LAYOUTS
from coord_data.inspection.numbers import rewrite
from coord_data.inspection.numbers.raw import RawBoxes
from coord_data.inspection.numbers.reading import Meaning, Shift

FIELDS = {
    "xyxy": "x1, y1, x2, y2",
    "xywh": "x, y, width, height",
    "cxcywh": "centre x, centre y, width, height",
    "yxyx": "y1, x1, y2, x2",
    "yxhw": "y, x, height, width",
    "cycxhw": "centre y, centre x, height, width",
}
_HOLDERS = {
    "coco": "COCO JSON has",
    "yolo": "YOLO labels have",
    "voc": "Pascal VOC has",
    "lvis": "LVIS JSON has",
    "jsonl": "instance records have",
    "qwen": "bbox_2d has",
}
_DECLARED = {"pixels": "pixels", "unit": "0 to 1", "norm1000": "thousandths"}
_UPRIGHT = {"yxhw": "xywh", "cycxhw": "cxcywh"}
_UNITS = {
    "pixels": ("pixels", "pixels"),
    "stated": ("pixels", "pixels of the stated sizes"),
    "unit": ("unit", "fractions of the image, 0 to 1"),
    "percent": ("percent", "per cent of the image"),
    "norm1000": ("norm1000", "thousandths of the image"),
    "norm999": ("norm999", "bins 0 to 999"),
}
_TURNS = {
    2: ("mirrored", "those of the mirrored image"),
    4: ("upside_down", "upside down: y is measured from the lower edge"),
    3: ("rotated", "those of the image rotated by 180 degrees"),
    6: ("rotated", "those of the image rotated by 90 degrees"),
    8: ("rotated", "those of the image rotated by 270 degrees"),
}


def differences(raw: RawBoxes, own: Meaning, meaning: Meaning) -> list[tuple[str, str, str]]:
    """Return code, message and correction of each difference; the corrections apply one after the other."""
    parts = []
    upright = _UPRIGHT.get(meaning.layout, meaning.layout)
    if meaning.layout != own.layout:
        line = rewrite.reorder(meaning.layout, own.layout)
        declared = f"{_HOLDERS.get(raw.format, 'they are interpreted as')} {FIELDS[own.layout]}"
        message = f"the boxes are {FIELDS[meaning.layout]}; {declared}"
        if upright != own.layout:
            parts.append((upright, message, line))
        if upright != meaning.layout:
            same_line = "y precedes x", f"the correction of `{upright}` covers this too"
            parts.append(("swapped_axes", *(same_line if parts else (message, line))))
    if meaning.copy:
        code = "padded" if meaning.copy.kind == "padded" else "resized"
        message = f"the boxes are those of a {code} copy of the images ({meaning.copy.words})"
        line = rewrite.rescale(own.layout, meaning.copy, raw.unit)
        parts.append((code, message, f"{line}, or use the copies and their sizes"))
    elif meaning.unit != own.unit and not (raw.unit == "pixels" and meaning.unit in ("pixels", "stated")):
        unit = _grid(raw, meaning)
        code, words = _UNITS[unit]
        stated = ", with W and H the stated width and height" if unit == "stated" else ""
        line = rewrite.rescale(own.layout, unit, raw.unit) + stated
        parts.append((code, f"the numbers are {words}; they are interpreted as {_DECLARED[raw.unit]}", line))
    if meaning.shift:
        parts.append(("shifted", *shifted(raw, meaning.shift)))
    if meaning.turn != 1:
        code, words = _TURNS[meaning.turn]
        parts.append((code, f"the boxes are {words}", rewrite.turn(own.layout, meaning.turn, raw.unit)))
    return parts


def shifted(raw: RawBoxes, shift: Shift) -> tuple[str, str]:
    """Return message and correction of a shift."""
    offsets = [
        f"{abs(value):.0f} px {side}" if shift.in_pixels else f"{abs(value):.1%} of the image {side}"
        # A positive correction of x means that boxes lie too far left.
        for value, side in (
            (shift.x, "to the left" if shift.x > 0 else "to the right"),
            (shift.y, "above" if shift.y > 0 else "below"),
        )
        if value
    ]
    x, y = (rewrite.length(v, raw.unit, s, shift.in_pixels) for v, s in zip((shift.x, shift.y), "WH", strict=True))
    return f"the boxes lie about {' and '.join(offsets)} of their objects", rewrite.move(raw.layout, x, y)


def _grid(raw: RawBoxes, meaning: Meaning) -> str:
    """Return the unit, with `norm999` for bins that end at 999 instead of thousandths."""
    if meaning.unit != "norm1000":
        return meaning.unit
    corners_N4 = LAYOUTS[meaning.layout](raw.numbers_N4)
    if raw.format == "voc" and meaning.layout not in ("xyxy", "yxyx"):
        corners_N4 = corners_N4 + 1  # the reader subtracted 1 from the first two numbers
    return "norm999" if corners_N4.max() == 999 and (corners_N4 == 999).sum() >= 3 else "norm1000"
