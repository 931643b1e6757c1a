"""The geometries that an object can have: reads, validates, orders, converts and quantises their coordinates.

Coordinates alternate x and y, as fractions of the image's width and height. Only this folder defines how many
coordinates a shape has.
"""

from coord_codec.geometry.base import Coordinates, Geometry, GeometryName
from coord_codec.geometry.kinds import GEOMETRIES, geometry_of
from coord_codec.geometry.shape import Shape, read_shape, shape_of

__all__ = ["GEOMETRIES", "Coordinates", "Geometry", "GeometryName", "Shape", "geometry_of", "read_shape", "shape_of"]
