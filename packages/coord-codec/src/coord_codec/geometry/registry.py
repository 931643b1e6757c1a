"""Every geometry by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from coord_codec.geometry.base import Geometry, GeometryName
from coord_codec.geometry.box import BoxGeometry
from coord_codec.geometry.keypoints import KeypointsGeometry
from coord_codec.geometry.oriented import OrientedGeometry
from coord_codec.geometry.point import PointGeometry
from coord_codec.geometry.polygon import PolygonGeometry

__all__ = ["GEOMETRIES", "GeometryName", "geometry_of"]

_ALL = (BoxGeometry(), PointGeometry(), PolygonGeometry(), OrientedGeometry(), KeypointsGeometry())
GEOMETRIES: Mapping[str, Geometry] = MappingProxyType({kind.name: kind for kind in _ALL})
"""Geometries by name: `box` x1, y1, x2, y2; `point` x, y; `polygon` x and y of each vertex; `oriented` four corners;
`keypoints` x and y of each name."""


def geometry_of(name: str | Geometry) -> Geometry:
    """Return the geometry with this name; a `Geometry` is returned unchanged.

    Raises:
        ValueError: for an unknown name

    Example:
        >>> geometry_of("point").most
        2
    """
    if isinstance(name, Geometry):
        return name
    if name not in GEOMETRIES:
        raise ValueError(f"geometry: expected one of {', '.join(GEOMETRIES)}, found {name!r}")
    return GEOMETRIES[name]
