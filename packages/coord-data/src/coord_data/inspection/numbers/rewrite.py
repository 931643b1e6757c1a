"""Corrections in words and formulas that convert the four numbers of a box to the order and unit of their format.

A correction reads: take the four numbers of each box as `x, y, w, h` and write `x - w / 2, y - h / 2, w, h`. Its
formulas are Python expressions, in which W and H are the width and height of the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coord_data.inspection.numbers.copies import Copy

NAMES = {
    "xyxy": "x1, y1, x2, y2",
    "xywh": "x, y, w, h",
    "cxcywh": "cx, cy, w, h",
    "yxyx": "y1, x1, y2, x2",
    "yxhw": "y, x, h, w",
    "cycxhw": "cy, cx, h, w",
}
"""Names of the four numbers of each order in the formulas."""
_SIDES = ("W", "H")
_PER_IMAGE = {"unit": "1", "percent": "100", "norm1000": "1000", "norm999": "999"}
"""Width and height of every image in units that are relative to the image."""


def reorder(actual: str, declared: str) -> str:
    """Return the correction of the order of the numbers.

    Example:
        >>> reorder("xyxy", "xywh")
        'take the four numbers of each box as `x1, y1, x2, y2` and write `x1, y1, x2 - x1, y2 - y1`'
    """
    low, high, centre, size = (
        [template.format(a=a, s=s) for a, s in ("xw", "yh")]
        for template in {
            "x1": ("{a}1", "{a}2", "({a}1 + {a}2) / 2", "{a}2 - {a}1"),
            "x": ("{a}", "{a} + {s}", "{a} + {s} / 2", "{s}"),
            "cx": ("c{a} - {s} / 2", "c{a} + {s} / 2", "c{a}", "{s}"),
        }[NAMES[actual].split(", ")[actual.startswith(("y", "cy"))]]
    )
    written = {"xyxy": (low, high), "xywh": (low, size), "cxcywh": (centre, size)}[declared]
    return _line(actual, [*written[0], *written[1]])


def rescale(layout: str, actual: str | Copy, declared: str) -> str:
    """Return the correction of the unit, from the actual unit or the pixels of a copy to the declared unit.

    Example:
        >>> rescale("xyxy", "percent", "unit")
        'take the four numbers of each box as `x1, y1, x2, y2` and write `x1 / 100, y1 / 100, x2 / 100, y2 / 100`'
    """
    factors = [_factor(actual, declared, side) for side in _SIDES]
    if not isinstance(actual, Copy) or actual.kind != "padded":
        return _line(layout, [f"{name}{factors[k % 2]}" for k, name in enumerate(_names(layout))])
    to_pixels = f" * max(W, H) / {actual.value:.5g}"
    from_pixels = [_product([], []) if declared == "pixels" else _factor("pixels", declared, side) for side in _SIDES]
    written = []
    for k, name in enumerate(_names(layout)):
        margin = f" - (max(W, H) - {_SIDES[k % 2]}) / 2"
        is_place = k < 2 or layout == "xyxy"
        scaled = f"{name}{to_pixels}{margin}" if is_place else f"{name}{to_pixels}"
        written.append(f"({scaled}){from_pixels[k % 2]}" if from_pixels[k % 2] else scaled)
    return _line(layout, written)


def move(layout: str, x: str, y: str) -> str:
    """Return the correction that adds `x` and `y` to the position.

    Example:
        >>> move("xywh", "-40", "0.02 * H")
        "take the four numbers of each box as `x, y, w, h` and write `x - 40, y + 0.02 * H, w, h`, \
with W and H the image's width and height"
    """
    added = [f" - {v[1:]}" if v.startswith("-") else f" + {v}" if v else "" for v in (x, y)]
    written = [name + added[k % 2] * (k < 2 or layout == "xyxy") for k, name in enumerate(_names(layout))]
    return _line(layout, written)


def length(value: float, declared: str, side: str, in_pixels: bool = False) -> str:
    """Return a formula for a number of pixels, or a fraction of a side, in the declared unit; empty for 0.

    Example:
        >>> length(-40, "unit", "W", in_pixels=True), length(0.02, "pixels", "H"), length(0.02, "norm1000", "H")
        ('-40 / W', '0.02 * H', '20')
    """
    if not value:
        return ""
    if not in_pixels and declared == "norm1000":
        return f"{value * 1000:.4g}"
    return f"{value:.4g}{_factor('pixels' if in_pixels else 'unit', declared, side)}"


def stretch(layout: str, factor: float) -> str:
    """Return the correction that multiplies all numbers.

    Example:
        >>> stretch("cxcywh", 1.05)
        'take the four numbers of each box as `cx, cy, w, h` and write `cx * 1.05, cy * 1.05, w * 1.05, h * 1.05`'
    """
    return _line(layout, [f"{name} * {factor:.4g}" for name in _names(layout)])


def inflate(layout: str, factor: float) -> str:
    """Return the correction that multiplies the sides and keeps the centres.

    Example:
        >>> inflate("cxcywh", 0.9)
        'take the four numbers of each box as `cx, cy, w, h` and write `cx, cy, w * 0.9, h * 0.9`'
    """
    f, half = f"{factor:.4g}", f"{(1 - float(f'{factor:.4g}')) / 2:.4g}"
    written = {
        "cxcywh": ["cx", "cy", f"w * {f}", f"h * {f}"],
        "xywh": [f"x + w * {half}", f"y + h * {half}", f"w * {f}", f"h * {f}"],
        "xyxy": [*(f"{a}1 + ({a}2 - {a}1) * {half}" for a in "xy"), *(f"{a}2 - ({a}2 - {a}1) * {half}" for a in "xy")],
    }[layout]
    return _line(layout, written)


def turn(layout: str, orientation: int, declared: str) -> str:
    """Return the correction that rotates or mirrors boxes by an orientation numbered as in EXIF, as `TURNS` does.

    Example:
        >>> turn("xywh", 2, "pixels")
        "take the four numbers of each box as `x, y, w, h` and write `W - x - w, y, w, h`, \
with W and H the image's width and height"
    """
    axes_swapped, flipped = orientation > 4, {2: "x", 3: "xy", 4: "y", 6: "x", 8: "y"}[orientation]
    written: list[str] = []
    for k in range(4):
        axis, is_low = "xy"[k % 2], k < 2
        names = _names(layout)[1 - k % 2 :: 2] if axes_swapped else _names(layout)[k % 2 :: 2]
        zoom = (" * W / H", " * H / W")[k % 2] if axes_swapped and declared == "pixels" else ""
        low, high = (f"{n}{zoom}" for n in names)
        if axis not in flipped or (layout != "xyxy" and not is_low):
            written.append(low if is_low else high)
            continue
        extent = _SIDES[k % 2] if declared == "pixels" else _PER_IMAGE[declared]
        coordinate = {"xyxy": high if is_low else low, "xywh": f"{low} - {high}", "cxcywh": low}[layout]
        written.append(f"{extent} - {coordinate}")
    return _line(layout, written)


def _names(layout: str) -> list[str]:
    return NAMES[layout].split(", ")


def _line(layout: str, written: Sequence[str]) -> str:
    line = f"take the four numbers of each box as `{NAMES[layout]}` and write `{', '.join(written)}`"
    return line + ", with W and H the image's width and height" * ("W" in line or "H" in line)


def _factor(actual: str | Copy, declared: str, side: str) -> str:
    """Return the multiplications and divisions that convert a number along a side of the image."""
    times, over = _in_pixels(actual, side)
    unit_over, unit_times = ([], []) if declared in ("pixels", "stated") else ([side], [_PER_IMAGE[declared]])
    return _product([*times, *unit_times], [*over, *unit_over])


def _in_pixels(actual: str | Copy, side: str) -> tuple[list[str], list[str]]:
    if isinstance(actual, Copy):
        value = f"{actual.value:.5g}"
        extent = {"times": "1", "square": side, "longer": "max(W, H)", "padded": "max(W, H)", "area": "(W * H) ** 0.5"}
        return [extent[actual.kind]], [value]
    return ([], []) if actual in ("pixels", "stated") else ([side], [_PER_IMAGE[actual]])


def _product(times: Sequence[str], over: Sequence[str]) -> str:
    numerators, denominators = Counter(times) - Counter(over), Counter(over) - Counter(times)
    signs = [(" * ", v) for v in numerators.elements()] + [(" / ", v) for v in denominators.elements()]
    return "".join(sign + value for sign, value in signs if value != "1")
