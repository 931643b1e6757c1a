"""The shape of one object, and how instance files write it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coord_codec.files import InputError
from coord_codec.geometry.base import Coordinates, Geometry, flat, pairs
from coord_codec.geometry.registry import geometry_of
from coord_codec.grid import CoordGrid
from coord_codec.tokens import tokens_to_ints

_GRID = CoordGrid()
_VISIBILITY = (0, 1, 2)


@dataclass(frozen=True)
class Shape:
    """The shape of one object: `{"type": "polygon", "coordinates": [x1, y1, ...]}` in instance files.

    Attributes:
        type: name of its geometry.
        coordinates: x and y in turn as fractions of width and height, in canonical order; 0, 0 for a keypoint that is
            not labelled.
        names: of keypoints, one a point; empty for other geometries.
        visibility: of keypoints, as in COCO: 0 not labelled, 1 labelled but hidden, 2 visible.

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
        """The box around it; without area for a point."""
        return geometry_of(self.type).to_box(self.coordinates)

    def moved(self, left: float, top: float, width: float, height: float) -> Shape:
        """Return the shape in a window of its image, in fractions; points beyond it are moved to its edge."""
        moved = [(_within((x - left) / width), _within((y - top) / height)) for x, y in pairs(self.coordinates)]
        kept = [new if seen else (0.0, 0.0) for new, seen in zip(moved, self._seen(), strict=True)]
        return Shape(self.type, geometry_of(self.type).arrange(flat(kept)), self.names, self.visibility)

    def flip(self) -> Shape:
        """Return the shape in the image mirrored left to right; keypoints named left and right change places."""
        coordinates = geometry_of(self.type).flip(self.coordinates)
        if not self.names:
            return Shape(self.type, coordinates)
        place = {name: i for i, name in enumerate(self.names)}
        other = [place.get(_other_side(name), i) for i, name in enumerate(self.names)]
        points = pairs(coordinates)
        return Shape(self.type, flat([points[i] for i in other]), self.names, tuple(self.visibility[i] for i in other))

    def _seen(self) -> list[bool]:
        points = pairs(self.coordinates)
        return [v > 0 for v in self.visibility] if self.visibility else [True] * len(points)

    def to_json(self) -> dict[str, Any]:
        """Return the shape as instance files write it."""
        record: dict[str, Any] = {"type": self.type, "coordinates": list(self.coordinates)}
        if self.names:
            record |= {"names": list(self.names), "visibility": list(self.visibility)}
        return record


def _within(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _other_side(name: str) -> str:
    if "left" in name:
        return name.replace("left", "right")
    return name.replace("right", "left")


@dataclass(frozen=True)
class InBins:
    """A shape whose numbers the record calls bins."""

    shape: Any


def read_shape(value: Any) -> Shape:
    """Return the shape that a record states, in canonical order.

    Args:
        value: `{"type": ..., "coordinates": [...]}`, for keypoints also `names` and `visibility`; coordinates are
            numbers in [0, 1] or coordinate tokens, x and y in turn or in pairs. `InBins` around it: numbers are bins.

    Raises:
        ValueError: for an unknown type, or coordinates that are no shape of it. Outlines with holes, several outlines
            and run-length encoded masks are none.

    Example:
        >>> read_shape({"type": "polygon", "coordinates": [[0.9, 0.5], [0.5, 0.1], [0.1, 0.5]]}).coordinates
        (0.5, 0.1, 0.9, 0.5, 0.1, 0.5)
    """
    in_bins = isinstance(value, InBins)
    value = value.shape if isinstance(value, InBins) else value
    if isinstance(value, Shape):
        return value
    if not isinstance(value, Mapping) or "type" not in value:
        hint = "; run-length encoded masks are not read, turn them into polygons" if _is_mask(value) else ""
        raise InputError(f'expected {{"type": ..., "coordinates": [...]}}, found {value!r:.80}{hint}')
    kind = geometry_of(value["type"])
    coordinates = _coordinates(value.get("coordinates"), in_bins)
    if kind.name != "keypoints":
        return Shape(kind.name, kind.arrange(coordinates))
    return keypoints(coordinates, value.get("names"), value.get("visibility"))


def keypoints(coordinates: Coordinates, names: Any, visibility: Any) -> Shape:
    """Return named points; those that are not labelled are put to 0, 0.

    Raises:
        ValueError: names or visibilities are not one a point, or no point is labelled.
    """
    count = len(coordinates) // 2
    if not isinstance(names, (list, tuple)) or len(set(map(str, names))) != count:
        raise InputError(f"names: expected {count} different names, one for each point, found {names!r:.80}")
    visibility = [2] * count if visibility is None else visibility
    if not isinstance(visibility, (list, tuple)) or len(visibility) != count or not set(visibility) <= {*_VISIBILITY}:
        raise InputError(f"visibility: expected 0, 1 or 2 for each of {count} points, found {visibility!r:.80}")
    points = [p if v else (0.0, 0.0) for p, v in zip(pairs(coordinates), visibility, strict=True)]
    arranged = geometry_of("keypoints").arrange(flat(points))
    return Shape("keypoints", arranged, tuple(map(str, names)), tuple(int(v) for v in visibility))


class Shaped(Protocol):
    """An object of a record: a description, a box, and a shape where it is more than its box."""

    @property
    def desc(self) -> str:
        """What it is."""

    @property
    def bbox(self) -> tuple[float, float, float, float]:
        """The box around it, `x1, y1, x2, y2` in [0, 1]."""

    @property
    def geometry(self) -> Shape | None:
        """Its shape."""


def shape_of(obj: Shaped, geometry: str | Geometry) -> Shape:
    """Return the shape of an object in a geometry: its own one, or what its box is in that geometry.

    Raises:
        InputError: the object has no such shape and its box does not say it.

    Example:
        >>> from coord_codec import Object
        >>> shape_of(Object(desc="cat", bbox=(0.1, 0.2, 0.3, 0.6)), "polygon").coordinates
        (0.1, 0.2, 0.3, 0.2, 0.3, 0.6, 0.1, 0.6)
    """
    kind = geometry_of(geometry)
    if obj.geometry is not None and obj.geometry.type == kind.name:
        return obj.geometry
    coordinates = kind.from_box(obj.bbox)
    if coordinates is None:
        raise InputError(f"geometry: expected {kind.name}, found none of {obj.desc!r}")
    return Shape(kind.name, coordinates)


def _coordinates(values: Any, in_bins: bool) -> Coordinates:
    values = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(values, (list, tuple)) and values and all(isinstance(v, (list, tuple)) for v in values):
        if any(isinstance(v, (list, tuple)) for pair in values for v in pair) or any(len(pair) != 2 for pair in values):
            raise InputError(
                f"coordinates: expected x and y in turn or in pairs, found lists of {len(values[0])}: holes and "
                "several outlines are not written, keep the largest outline"
            )
        values = [c for pair in values for c in pair]
    if not isinstance(values, (list, tuple)) or not values:
        raise InputError(f"coordinates: expected a list of x and y in turn, found {values!r:.80}")
    if any(isinstance(v, str) for v in values):
        return tuple(_GRID.dequantize(k) for k in tokens_to_ints(values, _GRID))
    if not all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in values):
        raise InputError(f"coordinates: expected numbers or coordinate tokens, found {list(values)!r:.80}")
    if in_bins:
        if any(v % 1 != 0 for v in values):
            raise InputError(f"coordinates: expected whole numbers (coord_space is 'bins'), found {list(values)!r:.80}")
        return tuple(_GRID.dequantize(int(v)) for v in values)
    for v in values:
        _GRID.quantize(v)  # raises for what the grid cannot hold
    return tuple(_within(float(v)) for v in values)


def _is_mask(value: Any) -> bool:
    return isinstance(value, Mapping) and "counts" in value
