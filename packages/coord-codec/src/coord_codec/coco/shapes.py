"""Converts COCO `segmentation` outlines and `keypoints` from pixels to shapes in [0, 1]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coord_codec.boxes import CLIP_PIXELS
from coord_codec.fields import outline_beside, rotated_corners, turn_of
from coord_codec.files import InputError, finite_numbers
from coord_codec.geometry import Coordinates, Geometry, Shape
from coord_codec.geometry.shape import named_points
from coord_codec.grid import CoordGrid

_GRID = CoordGrid()
SEVERAL = "objects of several outlines: the largest one is used"
HOLES = "outlines of several rings (parts, or a hole) joined to one, of which the largest is used"
REPEATED = "outlines with repeated vertices, which are used once"
CLIPPED = f"shapes clipped by at most {CLIP_PIXELS:g} pixel"
ROTATED = "rotated boxes, read as oriented boxes; bbox is the upright box around each"


def turned_outline(
    record: Mapping[str, Any], bbox_xywh: Sequence[float], largest: Callable[[], float] | None = None
) -> list[float] | None:
    """Return the corners of the oriented box that an annotation states beside its unturned one; None if it has none.

    It is also None for an annotation with an outline, which its box encloses, unless that is the unturned box.
    See `turn_of` for `largest`.
    """
    x, y, width, height = bbox_xywh
    corners = (x, y, x + width, y + height)
    if (stated := record.get("segmentation")) and not _is_upright_box(stated, corners):
        return None
    if outline := outline_beside(record, corners):
        return outline
    degrees = turn_of(record, largest)
    return rotated_corners(bbox_xywh, degrees) if degrees else None


def _is_upright_box(segmentation: Any, corners_xyxy: Sequence[float]) -> bool:
    """Return whether a segmentation is the outline of the upright box itself."""
    if not isinstance(segmentation, (list, tuple)) or len(segmentation) != 1:
        return False
    outline = segmentation[0]
    if not isinstance(outline, (list, tuple)) or len(outline) not in (8, 10):
        return False
    vertices = set(zip(outline[::2], outline[1::2], strict=True))
    x1, y1, x2, y2 = corners_xyxy
    return vertices == {(x1, y1), (x2, y1), (x2, y2), (x1, y2)}


def coco_shape(
    record: Mapping[str, Any],
    kind: Geometry,
    bbox: tuple[float, float, float, float],
    size: tuple[int, int],
    names: Sequence[str] | None,
    notes: Counter[str],
) -> Shape:
    """Return the shape of an annotation that training uses.

    Without a segmentation the shape is derived from the box; of several outlines the largest is used; a segmentation
    of four vertices is an oriented box. The notes count derived shapes and annotations with several outlines.

    The box is in [0, 1], the size of the image in pixels, and `names` are those of its category's keypoints.

    Raises:
        InputError: `field: fault`, for masks in run-length encoding, and outlines that cross themselves, have fewer
            than three vertices or lie outside their image
        SmallBoxError: if the shape is too small for the grid, or none of its keypoints is labelled

    Example:
        >>> from coord_codec import geometry_of
        >>> record = {"segmentation": [[10, 10, 50, 10, 50, 40]]}
        >>> coco_shape(record, geometry_of("polygon"), (0.1, 0.1, 0.5, 0.4), (100, 100), None, Counter()).coordinates
        (0.1, 0.1, 0.5, 0.1, 0.5, 0.4)
    """
    own = Counter[str]()  # a shape that is refused is in no other count
    try:
        shape = _own_shape(record, kind, size, names, own)
        if shape is None:
            coordinates = kind.from_box(bbox)
            if coordinates is None:
                raise InputError(f"expected a {kind.name} geometry, found none")
            own[in_place_of(kind)] += 1
            shape = Shape(kind.name, coordinates)
        kind.written(shape.coordinates, _GRID)
    except ValueError as error:
        error_type = type(error) if isinstance(error, InputError) else InputError
        raise error_type(f"{kind.coco_field or 'bbox'}: {error}") from None
    notes.update(own)
    return shape


def in_place_of(kind: Geometry) -> str:
    """Return the note that counts objects whose shape is derived from the box."""
    return f"objects without a {kind.name} geometry: {kind.from_box_words} used"


def _own_shape(
    record: Mapping[str, Any], kind: Geometry, size: tuple[int, int], names: Sequence[str] | None, notes: Counter[str]
) -> Shape | None:
    """Return the shape that is in the record itself, or None if it has none of this geometry."""
    if kind.named:
        return _named_points(record, kind, size, names, notes)
    stated = record.get(kind.coco_field) if kind.coco_field else None
    if not stated:
        return None
    if isinstance(stated, Mapping):
        raise InputError("expected outlines, found a mask in run-length encoding: turn it into polygons")
    if not isinstance(stated, (list, tuple)):
        raise InputError(f"expected a list of outlines, found {type(stated).__name__}")
    parsed = (finite_numbers(outline, None, f"outline {i}") for i, outline in enumerate(stated))
    outlines = [outline for outline in parsed if outline]
    chosen = kind.choose_outline(outlines)
    if chosen is None:
        return None
    if len(outlines) > 1:
        notes[SEVERAL] += 1
    notes[HOLES] += chosen not in outlines
    shape = Shape(kind.name, kind.arrange(_fractions(chosen, size, notes)))
    if len(shape.coordinates) < len(chosen):
        notes[REPEATED] += 1
    return shape


def _named_points(
    record: Mapping[str, Any], kind: Geometry, size: tuple[int, int], names: Sequence[str] | None, notes: Counter[str]
) -> Shape:
    if not names:
        raise InputError("expected the names of keypoints in the category, found none")
    values = finite_numbers(record.get(str(kind.coco_field)), 3 * len(names), f"of {len(names)} names")
    visibility = [int(v) for v in values[2::3]]
    points = [
        c for x, y, v in zip(values[::3], values[1::3], visibility, strict=True) for c in ((x, y) if v else (0, 0))
    ]
    return named_points(kind, _fractions(tuple(points), size, notes), tuple(names), visibility)


def _fractions(pixels: Coordinates, size: tuple[int, int], notes: Counter[str]) -> Coordinates:
    """Return pixel coordinates as fractions of the image, clipped if they lie outside it by at most a pixel."""
    clipped = False
    fractions = []
    for i, value in enumerate(pixels):
        side = size[i % 2]
        if not -CLIP_PIXELS <= value <= side + CLIP_PIXELS:
            raise InputError(f"{value:g} lies outside its image, which is {size[0]} x {size[1]} pixels")
        inside = min(max(value, 0.0), float(side))
        clipped |= inside != value
        fractions.append(inside / side)
    notes[CLIPPED] += clipped
    return tuple(fractions)
