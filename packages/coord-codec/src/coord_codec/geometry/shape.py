"""The shape of one object, and its format in instance files."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coord_codec.arguments import plain
from coord_codec.files import InputError
from coord_codec.geometry.base import MIRROR, Affine, Coordinates, Geometry, clamp, flat, pairs
from coord_codec.geometry.table import geometry_of
from coord_codec.grid import CoordGrid
from coord_codec.tokens import tokens_to_ints

_GRID = CoordGrid()


@dataclass(frozen=True)
class Shape:
    """The shape of one object: `{"type": "polygon", "coordinates": [x1, y1, ...]}` in instance files.

    Attributes:
        type: name of its geometry
        coordinates: the numbers of its geometry in canonical order, of most geometries alternating x and y as fractions
            of width and height; 0, 0 for a keypoint that is not labelled
        names: names of the keypoints, one for each point; empty for other geometries
        visibility: visibility of the keypoints, as in COCO: 0 not labelled, 1 labelled but hidden, 2 visible

    Example:
        >>> read_shape({"type": "point", "coordinates": [0.25, 0.5]}).box
        (0.25, 0.5, 0.25, 0.5)
    """

    type: str
    coordinates: Coordinates
    names: tuple[str, ...] = ()
    visibility: tuple[int, ...] = ()

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The box around the shape; for a point it has zero area."""
        return geometry_of(self.type).to_box(self.coordinates)

    def moved(self, left: float, top: float, width: float, height: float) -> Shape:
        """Return the shape relative to a window of the image, given in fractions; points outside are clamped to it."""
        return self.transform(Affine.window(left, top, width, height))

    def flip(self) -> Shape:
        """Return the shape in the image mirrored left to right; left and right keypoints are swapped."""
        return self.transform(MIRROR)

    def transform(self, change: Affine) -> Shape:
        """Return the shape in a changed image; where left and right are swapped, keypoints are too.

        Raises:
            ValueError: there is no such shape in the changed image.
        """
        coordinates = geometry_of(self.type).transform(self.coordinates, change)
        if not self.names or not change.mirrors:
            return Shape(self.type, coordinates, self.names, self.visibility)
        index = {name: i for i, name in enumerate(self.names)}
        sides = [("left", "right") if "left" in name else ("right", "left") for name in self.names]
        order = [
            index.get(name.replace(*side), i) for i, (name, side) in enumerate(zip(self.names, sides, strict=True))
        ]
        points = pairs(coordinates)
        return Shape(self.type, flat([points[i] for i in order]), self.names, tuple(self.visibility[i] for i in order))

    def to_json(self) -> dict[str, Any]:
        """Return the shape in the format of instance files."""
        record: dict[str, Any] = {"type": self.type, "coordinates": list(self.coordinates)}
        if self.names:
            record |= {"names": list(self.names), "visibility": list(self.visibility)}
        return record


@dataclass(frozen=True)
class InBins:
    """A shape whose coordinates are bins."""

    shape: Any


def read_shape(value: Any) -> Shape:
    """Return the shape of a record, in canonical order.

    Args:
        value: `{"type": ..., "coordinates": [...]}`, for keypoints also `names` and `visibility`; coordinates are
            numbers in [0, 1] or coordinate tokens, flat or in pairs of x and y. If wrapped in `InBins`, numbers are
            bins

    Raises:
        ValueError: for an unknown type, or coordinates that are not a valid shape of it, such as outlines with holes,
            several outlines or run-length encoded masks

    Example:
        >>> read_shape({"type": "polygon", "coordinates": [[0.9, 0.5], [0.5, 0.1], [0.1, 0.5]]}).coordinates
        (0.5, 0.1, 0.9, 0.5, 0.1, 0.5)
    """
    in_bins = isinstance(value, InBins)
    value = value.shape if isinstance(value, InBins) else value
    if isinstance(value, Shape):
        return value
    if not isinstance(value, Mapping) or "type" not in value:
        is_mask = isinstance(value, Mapping) and "counts" in value
        hint = "; run-length encoded masks are not supported, convert them to polygons" if is_mask else ""
        raise InputError(f'expected {{"type": ..., "coordinates": [...]}}, found {value!r:.80}{hint}')
    kind = geometry_of(value["type"])
    coordinates = _coordinates(value.get("coordinates"), in_bins)
    if kind.named:
        return named_points(kind, coordinates, value.get("names"), value.get("visibility"))
    return Shape(kind.name, kind.arrange(coordinates))


def named_points(kind: Geometry, coordinates: Coordinates, names: Any, visibility: Any) -> Shape:
    """Return a shape of named points; unlabelled points are set to 0, 0."""
    kind.check_count(coordinates)
    count = len(pairs(coordinates))
    if not isinstance(names, (list, tuple)) or len(set(map(str, names))) != count:
        raise InputError(f"names: expected {count} different names, one for each point, found {names!r:.80}")
    visibility = [2] * count if visibility is None else visibility
    is_list = isinstance(visibility, (list, tuple)) and len(visibility) == count
    if not is_list or any(v not in (0, 1, 2) for v in visibility):
        raise InputError(f"visibility: expected 0, 1 or 2 for each of {count} points, found {visibility!r:.80}")
    points = [p if v else (0.0, 0.0) for p, v in zip(pairs(coordinates), visibility, strict=True)]
    return Shape(kind.name, kind.arrange(flat(points)), tuple(map(str, names)), tuple(int(v) for v in visibility))


class Shaped(Protocol):
    """An object of a record: a description, a box, and optionally a shape."""

    @property
    def desc(self) -> str:
        """The description."""

    @property
    def bbox(self) -> tuple[float, float, float, float]:
        """The box around the object, `x1, y1, x2, y2` in [0, 1]."""

    @property
    def geometry(self) -> Shape | None:
        """The shape; None if the object has only a box."""


def shape_of(obj: Shaped, geometry: str | Geometry) -> Shape:
    """Return the shape of an object in a geometry: its own shape, or one derived from its box.

    Raises:
        InputError: if the object has no such shape and it cannot be derived from the box

    Example:
        >>> from coord_codec import Object
        >>> shape_of(Object(desc="cat", bbox=(0.1, 0.2, 0.3, 0.6)), "polygon").coordinates
        (0.1, 0.2, 0.3, 0.2, 0.3, 0.6, 0.1, 0.6)
    """
    kind = geometry_of(geometry)
    own = obj.geometry
    return own if own is not None and own.type == kind.name else Shape(kind.name, coordinates_in(obj, kind))


def coordinates_in(obj: Shaped, kind: Geometry) -> Coordinates:
    """Return the coordinates of an object in a geometry: of its own shape, or of one derived from its box."""
    own = obj.geometry
    coordinates = own.coordinates if own is not None and own.type == kind.name else kind.from_box(obj.bbox)
    if coordinates is None:
        raise InputError(f"geometry: expected {kind.name}, found none for {obj.desc!r}")
    return coordinates


def _coordinates(values: Any, in_bins: bool) -> Coordinates:
    values = plain(values)
    if isinstance(values, (list, tuple)) and values and all(isinstance(v, (list, tuple)) for v in values):
        if any(isinstance(v, (list, tuple)) for pair in values for v in pair) or any(len(pair) != 2 for pair in values):
            raise InputError(
                f"coordinates: expected alternating x and y, or pairs, found lists of {len(values[0])}: holes and "
                "several outlines are not supported, keep the largest outline"
            )
        values = [c for pair in values for c in pair]
    if not isinstance(values, (list, tuple)) or not values:
        raise InputError(f"coordinates: expected a list of alternating x and y, found {values!r:.80}")
    if any(isinstance(v, str) for v in values):
        return tuple(_GRID.dequantize(k) for k in tokens_to_ints(values, _GRID))
    if not all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in values):
        raise InputError(f"coordinates: expected numbers or coordinate tokens, found {list(values)!r:.80}")
    if in_bins:
        if any(v % 1 != 0 for v in values):
            raise InputError(f"coordinates: expected whole numbers (coord_space is 'bins'), found {list(values)!r:.80}")
        return tuple(_GRID.dequantize(int(v)) for v in values)
    for v in values:
        _GRID.quantize(v)  # raises an error for values outside [0, 1]
    return tuple(clamp(float(v)) for v in values)
