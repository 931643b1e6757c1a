"""The shapes that an object can have: how each is written as coordinates, read back, validated, ordered and converted.

Coordinates are x and y in turn, as fractions of the image's width and height. Nothing outside this folder knows how
many coordinates a shape has.
"""

from coord_codec.geometry.base import Coordinates, Geometry
from coord_codec.geometry.registry import GEOMETRIES, GeometryName, geometry_of
from coord_codec.geometry.shape import Shape, read_shape, shape_of

__all__ = ["GEOMETRIES", "Coordinates", "Geometry", "GeometryName", "Shape", "geometry_of", "read_shape", "shape_of"]
