"""The geometries that an object can have: one table, each row of which says all that is known about a kind of shape.

Coordinates are numbers in [0, 1], most of them alternating x and y as fractions of the image's width and height. Only
this folder defines how many coordinates a shape has and what they mean.
"""

from coord_codec.geometry.base import Affine, Coordinates, Geometry, Number
from coord_codec.geometry.shape import Shape, read_shape, shape_of
from coord_codec.geometry.table import GEOMETRIES, GeometryName, geometry_of, geometry_table, register_geometry

__all__ = [
    "GEOMETRIES",
    "Affine",
    "Coordinates",
    "Geometry",
    "GeometryName",
    "Number",
    "Shape",
    "geometry_of",
    "geometry_table",
    "read_shape",
    "register_geometry",
    "shape_of",
]
