"""Codes and messages for box numbers whose meaning differs from that of their format, and the command that reads them.

`prepare --read-as` makes the same boxes of the numbers as were compared with the pixels.
"""

from __future__ import annotations

from dataclasses import replace

from coord_codec.box_transforms import FIELDS, LAYOUTS
from coord_data.inspection.numbers.meaning import TURNED, Meaning, Shift
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import ReadAs

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
    "pixels": "pixels",
    "stated": "pixels of the stated sizes",
    "unit": "fractions of the image, 0 to 1",
    "percent": "per cent of the image",
    "norm1000": "thousandths of the image",
    "norm999": "bins 0 to 999",
}
_TURNS = {"mirrored": "those of the mirrored image", "upside-down": "upside down: y is measured from the lower edge"}


def command(reading: ReadAs) -> str:
    """Return the command that prepares data under another reading of its numbers.

    Example:
        >>> command(ReadAs("xyxy", "percent"))
        'coord-data prepare SRC --out DIR --read-as xyxy,percent'
    """
    return f"coord-data prepare SRC --out DIR --read-as {reading}"


def reading_of(raw: RawBoxes, own: Meaning, meaning: Meaning) -> ReadAs:
    """Return the reading that gives the boxes of `meaning`, without what is as the format has it."""
    reading = meaning.read_as
    if meaning.unit == "norm1000":
        reading = replace(reading, unit=_grid(raw, meaning))
    layout = None if meaning.layout == own.layout else reading.layout
    return replace(reading, layout=layout, unit=None if meaning.unit == own.unit else reading.unit)


def differences(raw: RawBoxes, own: Meaning, meaning: Meaning) -> list[tuple[str, str]]:
    """Return code and message of each difference between a meaning and the declared one."""
    parts = []
    upright = _UPRIGHT.get(meaning.layout, meaning.layout)
    if meaning.layout != own.layout:
        declared = f"{_HOLDERS.get(raw.format, 'they are interpreted as')} {FIELDS[own.layout]}"
        message = f"the boxes are {FIELDS[meaning.layout]}; {declared}"
        if upright != own.layout:
            parts.append((upright, message))
        if upright != meaning.layout:
            parts.append(("swapped_axes", "y precedes x" if parts else message))
    if meaning.copy:
        code = "padded" if meaning.copy.kind == "padded" else "resized"
        parts.append((code, f"the boxes are those of a {code} copy of the images ({meaning.copy.words})"))
    elif meaning.unit != own.unit and not (raw.unit == "pixels" and meaning.unit in ("pixels", "stated")):
        unit = _grid(raw, meaning)
        message = f"the numbers are {_UNITS[unit]}; they are interpreted as {_DECLARED[raw.unit]}"
        parts.append(("pixels" if unit == "stated" else unit, message))
    if meaning.shift:
        parts.append(("shifted", shifted(meaning.shift)))
    if meaning.turn != 1:
        turn = TURNED[meaning.turn]
        words = _TURNS.get(turn.name, f"those of the image rotated by {turn.value:.0f} degrees")
        parts.append((turn.name.replace("-", "_"), f"the boxes are {words}"))
    return parts


def shifted(shift: Shift) -> str:
    """Return the message about boxes that a shift corrects."""
    sides = {"moved-left": "to the left", "moved-right": "to the right", "moved-up": "above", "moved-down": "below"}
    form = "{:.0f} px {}" if shift.in_pixels else "{:.1%} of the image {}"
    offsets = " and ".join(form.format(change.value, sides[change.name]) for change in shift.changes)
    return f"the boxes lie about {offsets} {'their' if shift.y else 'of their'} objects"


def _grid(raw: RawBoxes, meaning: Meaning) -> str:
    """Return the unit, with `norm999` for bins that end at 999 instead of thousandths."""
    if meaning.unit != "norm1000":
        return meaning.unit
    corners_N4 = LAYOUTS[meaning.layout](raw.numbers_N4)
    if raw.format == "voc" and meaning.layout not in ("xyxy", "yxyx"):
        corners_N4 = corners_N4 + 1  # the reader subtracted 1 from the first two numbers
    return "norm999" if corners_N4.max() == 999 and (corners_N4 == 999).sum() >= 3 else "norm1000"
