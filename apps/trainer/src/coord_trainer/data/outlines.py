"""Outlines of the generated shapes that are no boxes: polygons and turned boxes that fill a given box."""

from __future__ import annotations

import math

import numpy as np

from coord_codec import Object, shape_of

Point = tuple[float, float]
_CIRCLE = 12  # a multiple of four, so that it touches all sides of its box
_LARGEST_ANGLE = math.radians(30)


def outline(rng: np.random.Generator, shape: str, geometry: str, box: tuple[float, ...]) -> list[Point]:
    """Return the outline of a shape that fills a box.

    A polygon is a triangle with its tip anywhere above, a quadrilateral with a vertex on each side, or a dodecagon for
    a circle. An oriented box is a rectangle turned by up to 30 degrees either way, whatever the shape.

    Args:
        rng: draws what is free
        shape: `circle`, `square` or `triangle`
        geometry: `polygon` or `oriented`
        box: x1, y1, x2, y2 in [0, 1]
    """
    x1, y1, x2, y2 = box
    width, height = x2 - x1, y2 - y1
    if geometry == "oriented":
        return [(x1 + x, y1 + y) for x, y in _turned(rng, width, height)]
    if shape == "triangle":
        unit = [(rng.uniform(0.2, 0.8), 0.0), (1.0, 1.0), (0.0, 1.0)]
    elif shape == "square":
        a, b, c, d = rng.uniform(0.2, 0.8, 4)
        unit = [(a, 0.0), (1.0, b), (c, 1.0), (0.0, d)]
    else:
        angles = 2 * np.pi * np.arange(_CIRCLE) / _CIRCLE
        unit = [(0.5 + 0.5 * math.sin(t), 0.5 - 0.5 * math.cos(t)) for t in angles]
    return [(float(x1 + x * width), float(y1 + y * height)) for x, y in unit]


def _turned(rng: np.random.Generator, width: float, height: float) -> list[Point]:
    """Return the corners of a turned rectangle whose box has that width and height and begins at 0, 0."""
    largest = min(_LARGEST_ANGLE, 0.8 * math.atan(min(width / height, height / width)))
    angle = rng.uniform(0.1, largest)
    sin, cos = math.sin(angle), math.cos(angle)
    long = (width * cos - height * sin) / math.cos(2 * angle)
    short = (height * cos - width * sin) / math.cos(2 * angle)
    corners = [(short * sin, 0.0), (width, long * sin), (long * cos, height), (0.0, short * cos)]
    if rng.integers(2):
        corners = [(width - x, y) for x, y in corners]
    return corners


def shaped(found: Object, geometry: str) -> Object:
    """Return an object with the shape that its box has in a geometry; for a box nothing changes."""
    return found if geometry == "box" else found.model_copy(update={"geometry": shape_of(found, geometry)})
