"""What is told where the numbers of a set mean something else than they are read as: codes, messages and lines."""

from __future__ import annotations

from coord_eval.diagnosis import LAYOUTS
from coord_trainer.inspection.numbers import rewrite
from coord_trainer.inspection.numbers.raw import RawBoxes
from coord_trainer.inspection.numbers.reading import Meaning, Shift

FIELDS = {
    "xyxy": "x1, y1, x2, y2",
    "xywh": "x, y, width, height",
    "cxcywh": "centre x, centre y, width, height",
    "yxyx": "y1, x1, y2, x2",
    "yxhw": "y, x, height, width",
    "cycxhw": "centre y, centre x, height, width",
}
_HOLDERS = {
    "coco": "COCO JSON holds",
    "yolo": "YOLO labels hold",
    "voc": "Pascal VOC holds",
    "lvis": "LVIS JSON holds",
    "jsonl": "instance records hold",
    "qwen": "bbox_2d holds",
}
_READ = {"pixels": "pixels", "unit": "0 to 1", "norm1000": "thousandths"}
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
    4: ("upside_down", "upside down: y is counted from the lower edge"),
    3: ("rotated", "those of the image turned by 180 degrees"),
    6: ("rotated", "those of the image turned by 90 degrees"),
    8: ("rotated", "those of the image turned by 270 degrees"),
}


def differences(raw: RawBoxes, own: Meaning, found: Meaning) -> list[tuple[str, str, str]]:
    """Return code, message and line of each difference; the lines mend the numbers one after the other."""
    parts = []
    upright = _UPRIGHT.get(found.layout, found.layout)
    if found.layout != own.layout:
        line = rewrite.reorder(found.layout, own.layout)
        holds = f"{_HOLDERS.get(raw.format, 'they are read as')} {FIELDS[own.layout]}"
        message = f"the boxes are {FIELDS[found.layout]}; {holds}"
        if upright != own.layout:
            parts.append((upright, message, line))
        if upright != found.layout:
            also = "y stands before x", f"the line of `{upright}` mends this too"
            parts.append(("swapped_axes", *(also if parts else (message, line))))
    if found.copy:
        code = "padded" if found.copy.kind == "padded" else "resized"
        message = f"the boxes are those of a {code} copy of the images ({found.copy.words})"
        line = rewrite.rescale(own.layout, found.copy, raw.unit)
        parts.append((code, message, f"{line}, or give the copies and their sizes"))
    elif found.unit != own.unit and not (raw.unit == "pixels" and found.unit in ("pixels", "stated")):
        unit = _grid(raw, found)
        code, words = _UNITS[unit]
        stated = ", with W and H the stated width and height" if unit == "stated" else ""
        line = rewrite.rescale(own.layout, unit, raw.unit) + stated
        parts.append((code, f"the numbers are {words}; they are read as {_READ[raw.unit]}", line))
    if found.shift:
        parts.append(("shifted", *shifted(raw, found.shift)))
    if found.turn != 1:
        code, words = _TURNS[found.turn]
        parts.append((code, f"the boxes are {words}", rewrite.turn(own.layout, found.turn, raw.unit)))
    return parts


def shifted(raw: RawBoxes, shift: Shift) -> tuple[str, str]:
    """Return message and line of a shift."""
    told = [
        f"{abs(value):.0f} px {side}" if shift.in_pixels else f"{abs(value):.1%} of the image {side}"
        # A box that has to be moved right lies too far left.
        for value, side in (
            (shift.x, "to the left" if shift.x > 0 else "to the right"),
            (shift.y, "above" if shift.y > 0 else "below"),
        )
        if value
    ]
    x, y = (rewrite.length(v, raw.unit, s, shift.in_pixels) for v, s in zip((shift.x, shift.y), "WH", strict=True))
    return f"the boxes lie about {' and '.join(told)} of what they show", rewrite.move(raw.layout, x, y)


def _grid(raw: RawBoxes, found: Meaning) -> str:
    """Tell bins that end at 999 from thousandths."""
    if found.unit != "norm1000":
        return found.unit
    corners_N4 = LAYOUTS[found.layout](raw.numbers_N4)
    if raw.format == "voc" and found.layout not in ("xyxy", "yxyx"):
        corners_N4 = corners_N4 + 1  # its reader counts the first two numbers from 1
    return "norm999" if corners_N4.max() == 999 and (corners_N4 == 999).sum() >= 3 else "norm1000"
