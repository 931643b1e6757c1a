"""How the four numbers of a box are read: their order, their unit, and what has been done to all boxes.

The inspection searches for the reading under which the boxes fit the pixels, and its findings name it;
`prepare --read-as` applies it. Both compute the boxes here, so that the file that is written has the boxes that were
compared with the pixels.

Shapes: N boxes, I images.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coord_codec import InputError
from coord_codec.box_transforms import COMMON_INPUTS, LAYOUTS, TURNS, resized_sizes
from coord_codec.origins import ORIGINS, Origin

PER_IMAGE = {"unit": 1.0, "percent": 100.0, "norm1000": 1000.0, "norm999": 999.0}
"""Width and height of every image in the units that are relative to the image."""
UNITS = ("pixels", "stated", *PER_IMAGE)
"""Names of the units: pixels of the files, pixels of the sizes that the annotations state, and those of `PER_IMAGE`."""

CopyKind = Literal["times", "square", "padded", "longer", "area", "input28", "input32"]
KINDS: tuple[CopyKind, ...] = ("times", "square", "padded", "longer", "area")
OF_ONE_SIZE = 3
"""Number of these kinds, from the first, that differ if all images have the same size."""
_OF_FACTOR: dict[int, CopyKind] = {28: "input28", 32: "input32"}
INPUTS: dict[CopyKind, tuple[int, int]] = {_OF_FACTOR[factor]: (factor, low) for factor, low, _ in COMMON_INPUTS}
"""Side of a token's square and least pixels of the copies that models receive, whose `value` is the most pixels."""
_FRACTIONS = 10
"""Side below which numbers are fractions of an image instead of pixels."""


@dataclass(frozen=True)
class Copy:
    """Size of resized copies of all images, in whose pixels the numbers are.

    Attributes:
        kind: meaning of `value`: factor `times` the size of the files; side of a `square` that each image fills; side
            of a `padded` square with the image at its centre; `longer` side; side of a square of the same `area`; or
            the most pixels of an image as models receive it, with sides that are multiples of 28 or 32
        value: the factor, the side in pixels, or the pixels
    """

    kind: CopyKind
    value: float

    def __str__(self) -> str:
        return f"{self.kind}:{self.value:.0f}" if self.kind in INPUTS else f"{self.kind}:{self.value:.5g}"

    @property
    def words(self) -> str:
        """Description of the copies for messages.

        Example:
            >>> Copy("square", 10).words, Copy("square", 9.5).words
            ('10 x 10 pixels', '9.5 times the fractions of the images')
        """
        if self.kind == "padded" and self.value == 1:
            return "a square with the image at its centre"
        if self.kind == "times":
            return f"{self.value:.3g} times the size of the files"
        if self.kind in INPUTS:
            return f"at most {self.value:,.0f} pixels, as a model receives them: multiples of {INPUTS[self.kind][0]}"
        if self.value < _FRACTIONS:
            return f"{self.value:.3g} times the fractions of the images"
        return {
            "square": "{0:.0f} x {0:.0f} pixels",
            "padded": "a square of {:.0f} pixels with the image at its centre",
            "longer": "a longer side of {:.0f} pixels",
            "area": "an area of {0:.0f} x {0:.0f} pixels",
        }[self.kind].format(self.value)

    def sizes(self, sizes_I2: np.ndarray) -> np.ndarray:
        """Return width and height of the images inside the copies, without padding.

        Example:
            >>> Copy("longer", 320).sizes(np.array([[640.0, 480.0]])).tolist()
            [[320.0, 240.0]]
        """
        if self.kind == "square":
            return np.full_like(sizes_I2, self.value)
        if self.kind in INPUTS:
            resized_I2, known_I = sizes_I2.copy(), np.isfinite(sizes_I2).all(axis=1)
            resized_I2[known_I] = resized_sizes(sizes_I2[known_I], *INPUTS[self.kind], int(self.value))
            return resized_I2
        sizes: np.ndarray = sizes_I2 * self.value
        if self.kind == "times":
            return sizes
        is_area = self.kind == "area"
        side_I1 = np.sqrt(sizes_I2.prod(axis=1, keepdims=True)) if is_area else sizes_I2.max(axis=1, keepdims=True)
        sizes /= side_I1
        return sizes

    def margins(self, sizes_I2: np.ndarray) -> np.ndarray:
        """Return the padding left of and above the images inside the copies, as fractions of the images."""
        if self.kind != "padded":
            return np.zeros_like(sizes_I2)
        inside_I2 = self.sizes(sizes_I2)
        margins: np.ndarray = (self.value - inside_I2) / 2 / inside_I2
        return margins


def inflate(boxes_N4: np.ndarray, factor: float) -> np.ndarray:
    """Return the boxes resized about their centres.

    Example:
        >>> inflate(np.array([[0.4, 0.4, 0.6, 0.8]]), 2).round(3).tolist()
        [[0.3, 0.2, 0.7, 1.0]]
    """
    centre_N4 = np.tile((boxes_N4[:, :2] + boxes_N4[:, 2:]) / 2, 2)
    inflated_N4: np.ndarray = centre_N4 + (boxes_N4 - centre_N4) * factor
    return inflated_N4


_ROTATED = {180: 3, 90: 6, 270: 8}
"""Orientation, numbered as in EXIF, that undoes a rotation by so many degrees."""
_DIRECTIONS = {"moved-left": (1, 0), "moved-right": (-1, 0), "moved-up": (0, 1), "moved-down": (0, -1)}
"""What has been done to the boxes, and the direction in which it is undone."""


def _within(moved_N4: np.ndarray, boxes_N4: np.ndarray) -> np.ndarray:
    """Return boxes that end at the border of their image where they were inside it: their objects do."""
    inside_N4 = (boxes_N4 >= 0) & (boxes_N4 <= 1)
    return np.where(inside_N4, moved_N4.clip(0, 1), moved_N4)


STORED = "stored"
"""Name of the change of boxes that do not follow the EXIF orientation of their image."""
_UNDO: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "mirrored": lambda boxes_N4, _: TURNS[2](boxes_N4),
    "upside-down": lambda boxes_N4, _: TURNS[4](boxes_N4),
    "rotated": lambda boxes_N4, degrees: TURNS[_ROTATED[int(degrees)]](boxes_N4),
    "stored": lambda boxes_N4, orientation: TURNS[int(orientation) or 1](boxes_N4),
    "scaled": lambda boxes_N4, factor: boxes_N4 / factor,
    "enlarged": lambda boxes_N4, factor: _within(inflate(boxes_N4, 1 / factor), boxes_N4),
}


@dataclass(frozen=True)
class Change:
    """Something that has been done to all boxes, and that reading them undoes.

    Attributes:
        name: `mirrored`, `upside-down`, `rotated` (90, 180 or 270 degrees with the image), `scaled` (all coordinates
            times a factor), `enlarged` (each box about its centre, by a factor), `moved-left`, `-right`, `-up`,
            `-down`, or `stored` (drawn on the stored pixels, without the EXIF orientation of the image)
        value: degrees, factor, pixels, fraction of the image, or its orientation; 0 where the name says all
        in_pixels: whether a move is in pixels, the same in every image, and not a fraction of the image
    """

    name: str
    value: float = 0.0
    in_pixels: bool = False

    def __str__(self) -> str:
        if self.name in _DIRECTIONS:
            return f"{self.name}:{self.value:.4g}px" if self.in_pixels else f"{self.name}:{100 * self.value:.4g}%"
        if self.name == STORED:
            return self.name
        return f"{self.name}:{self.value:.4g}" if self.value else self.name

    def undone(self, boxes_N4: np.ndarray, size_N2: np.ndarray) -> np.ndarray:
        """Return the boxes before the change.

        Args:
            boxes_N4: corners in [0, 1]
            size_N2: width and height in pixels of the image of each box
        """
        if self.name not in _DIRECTIONS:
            return _UNDO[self.name](boxes_N4, self.value)
        step_N2 = np.array(_DIRECTIONS[self.name]) * self.value / (size_N2 if self.in_pixels else 1)
        moved_N4: np.ndarray = boxes_N4 + np.broadcast_to(np.tile(step_N2, 2), boxes_N4.shape)
        return moved_N4


_WORDS = (
    f"an order ({', '.join(LAYOUTS)}), a unit ({', '.join(UNITS)}, or the side of a copy such as square:640, "
    "padded:640, longer:640, area:640, times:0.5, input28:1003520), where pixels begin and end "
    f"({', '.join(ORIGINS)}), mirrored, upside-down, rotated:90, stored (before the EXIF orientation), "
    "scaled:0.95, enlarged:1.1, moved-left:12px (or -right, -up, -down; or 2%)"
)
_WORD = re.compile(r"(?P<name>[a-z0-9-]+)(?::(?P<value>[0-9.]+(?:e-?[0-9]+)?)(?P<unit>px|%)?)?")


@dataclass(frozen=True)
class ReadAs:
    """A reading of box numbers; what is None is as the format has it.

    Attributes:
        layout: order of the four numbers, a key of `coord_codec.box_transforms.LAYOUTS`
        unit: a name of `UNITS`, or the copy in whose pixels the numbers are
        changes: what has been done to all boxes, undone from the first to the last
        origin: where the pixels of the writer begin and end

    Example:
        >>> reading = ReadAs.parse("xywh,percent,moved-left:2%")
        >>> print(reading)
        xywh,percent,moved-left:2%
        >>> size_N2 = np.array([[640, 480]])
        >>> reading.corners(np.array([[10, 20, 30, 40]]), size_N2, size_N2).round(3).tolist()
        [[0.12, 0.2, 0.42, 0.6]]
    """

    layout: str | None = None
    unit: str | Copy | None = None
    changes: tuple[Change, ...] = ()
    origin: Origin | None = None

    @classmethod
    def parse(cls, text: str) -> ReadAs:
        """Return the reading that a command line names."""
        words = [word.strip() for word in text.split(",")]
        origins = [ORIGINS[word] for word in words if word in ORIGINS]
        parts = [w if w in LAYOUTS or w in UNITS else _copy_or_change(w) for w in words if w not in ORIGINS]
        layouts = [part for part in parts if isinstance(part, str) and part in LAYOUTS]
        units = [part for part in parts if part in UNITS or isinstance(part, Copy)]
        changes = (part for part in parts if isinstance(part, Change))
        for what, named in (("order", layouts), ("unit", units), ("origin", [origin.word for origin in origins])):
            if len(named) > 1:
                raise InputError(f"--read-as {text}: expected one {what}, found {' and '.join(map(str, named))}")
        layout, unit, origin = next(iter(layouts), None), next(iter(units), None), next(iter(origins), None)
        return cls(layout, unit, tuple(changes), origin)

    def __str__(self) -> str:
        origin = self.origin and self.origin.word
        return ",".join(str(part) for part in (self.layout, self.unit, origin, *self.changes) if part is not None)

    def of_format(self, layout: str, unit: str) -> ReadAs:
        """Return the reading with order and unit of a format where none are named."""
        return replace(self, layout=self.layout or layout, unit=unit if self.unit is None else self.unit)

    def of_image(self, orientation: int) -> ReadAs:
        """Return the reading for an image with this EXIF orientation."""
        changes = (replace(change, value=orientation) if change.name == STORED else change for change in self.changes)
        return replace(self, changes=tuple(changes))

    def corners(self, numbers_N4: np.ndarray, size_N2: np.ndarray, stated_N2: np.ndarray) -> np.ndarray:
        """Return corners in [0, 1].

        Args:
            numbers_N4: the four numbers of each box, as the file states them
            size_N2: width and height in pixels of the image file of each box
            stated_N2: width and height that the annotations state

        Raises:
            ValueError: order or unit is None, or an origin is named for numbers that are no pixels.
        """
        if self.layout is None or self.unit is None:
            raise ValueError(f"expected an order and a unit, found {self.layout} and {self.unit}; see `of_format`")
        margin_N2 = np.zeros_like(size_N2, np.float64)
        if isinstance(self.unit, Copy):
            divisor_N2, margin_N2 = self.unit.sizes(size_N2 * 1.0), self.unit.margins(size_N2 * 1.0)
        elif self.unit in PER_IMAGE:
            divisor_N2 = np.full_like(size_N2, PER_IMAGE[self.unit], np.float64)
        else:
            divisor_N2 = stated_N2 if self.unit == "stated" else size_N2
        corners_N4 = LAYOUTS[self.layout](numbers_N4)
        if self.origin is not None:
            if self.unit in PER_IMAGE:
                raise InputError(f"--read-as {self}: expected numbers in pixels, found {self.unit}")
            corners_N4 = np.stack(self.origin.corners(corners_N4.T), axis=1)
        boxes_N4: np.ndarray = corners_N4 / np.tile(divisor_N2, 2) - np.tile(margin_N2, 2)
        for change in self.changes:
            boxes_N4 = change.undone(boxes_N4, size_N2)
        return boxes_N4


def _copy_or_change(word: str) -> Copy | Change:
    """Return the copy or the change that a word names."""
    match = _WORD.fullmatch(word)
    name, value, unit = match.group("name", "value", "unit") if match else ("", None, None)
    if name in ("mirrored", "upside-down", STORED) and value is None:
        return Change(name)
    try:
        number = float(value or 0)
    except ValueError:
        number = 0.0
    if number > 0:
        kind = next((kind for kind in (*KINDS, *INPUTS) if kind == name), None)
        if kind is not None and unit is None:
            return Copy(kind, number)
        if name in _DIRECTIONS and unit is not None:
            return Change(name, number if unit == "px" else number / 100, unit == "px")
        if unit is None and (name in ("scaled", "enlarged") or (name == "rotated" and number in _ROTATED)):
            return Change(name, number)
    raise InputError(f"--read-as: expected {_WORDS}, found {word!r}")
