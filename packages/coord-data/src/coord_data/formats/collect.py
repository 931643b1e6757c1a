"""Turns the images and objects that a format reader yields into instances, by the same rules for all formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from coord_codec import AnnotationSet, CoordGrid, Geometry, InputError, Instance, Object, Problem, Shape, geometry_of
from coord_codec.boxes import CLIP_PIXELS, OnBadBox, SmallBoxError, widened
from coord_codec.coco.shapes import coco_shape
from coord_codec.coco.tables import categories_named
from coord_codec.geometry.base import Box
from coord_codec.problems import UniqueIds, check_description
from coord_codec.records import with_uncertain
from coord_data.sources.raw import RawImage, RawObject, Reading

ImageSize = Callable[[str], "tuple[int, int] | None"]
_NOMINAL = (1000, 1000)
"""Size of an image whose size is unknown, for shapes in fractions."""

IGNORED = "regions that are not training targets and are ignored in scoring"
REFUSED = "images left out with an object that was refused (on_bad_box: drop_image)"


def collect(
    reading: Reading,
    on_bad_box: OnBadBox,
    image_size: ImageSize,
    geometry: str | Geometry = "box",
    image_fault: Callable[[str], Problem | None] | None = None,
) -> AnnotationSet:
    """Return the instances of a reading, with a list of refused records and counts of repairs.

    The size of an image whose record states none is looked up, and `image_fault` returns why an image cannot be
    used, which is told once in place of each of its boxes in pixels.
    """
    kind = geometry_of(geometry)
    problems: list[Problem] = []
    notes: Counter[str] = Counter()
    images: list[tuple[RawImage, str, tuple[int, int] | None] | Problem] = []
    ids = UniqueIds()
    for raw in reading.images:
        name = raw.name
        fault = raw.fault or ("" if name else "expected the path of an image, found none")
        repeated = ids.fault(raw.image_id, raw.where)
        if repeated or fault:
            images.append(repeated or Problem(raw.where, "", fault))
            continue
        items, size = tuple(raw.objects), raw.size or image_size(name)
        needs_size = size is None and any(item.unit == "pixels" and not item.fault for item in items)
        unusable = image_fault(name) if needs_size and image_fault is not None else None
        images.append(unusable or (raw._replace(objects=items), name, size))
    usable = [image for image in images if not isinstance(image, Problem)]
    places = iter(_places([(stated, size) for raw, _, size in usable for stated in raw.objects]))
    instances: list[Instance] = []
    for image in images:
        if isinstance(image, Problem):
            problems.append(image)
            continue
        raw, name, size = image
        notes.update(raw.notes)
        objects: list[Object] = []
        refused: list[str] = []
        target_refused = False
        for stated in raw.objects:
            try:
                fields = _fields(stated, size, next(places), kind, notes)
            except ValueError as error:
                refused.append(stated.desc)
                target_refused |= not isinstance(error, SmallBoxError) and not stated.ignored
                problems.append(Problem(stated.where, "", str(error), is_box=True))
                continue
            notes.update(stated.notes)
            if kind.is_box:
                notes.update(stated.as_box)
            notes[IGNORED] += stated.ignored
            crowd: dict[str, Any] = {"iscrowd": True} if stated.ignored else {}
            objects.append(Object.model_construct(desc=stated.desc, **fields, **crowd))
        if target_refused and on_bad_box == "drop_image":
            notes[REFUSED] += 1
            continue
        width, height = size or (None, None)
        id_field = {"image_id": raw.image_id} if raw.image_id is not None else {}
        values = {"image": name, "width": width, "height": height, **id_field, **raw.extra, "objects": tuple(objects)}
        instances.append(with_uncertain(Instance.model_construct(**values), refused))
    categories = categories_named({o.desc for instance in instances for o in instance.objects})
    return AnnotationSet(tuple(instances), tuple(problems), categories, dict(+notes), reading.root)


_Place = tuple[Box, bool]
"""A box in [0, 1], and whether it was clipped."""


def _places(objects: Sequence[tuple[RawObject, tuple[int, int] | None]]) -> list[_Place | ValueError | None]:
    """Return the place of each object in an image of a size, or why it has none; None for a point."""
    # Not above: the names of formats are listed, in settings and help, without NumPy.
    import numpy as np

    from coord_codec.placing import place

    places: list[_Place | ValueError | None] = [None] * len(objects)
    rows: list[int] = []
    extents: list[tuple[float, float]] = []
    sizes: list[tuple[float, float]] = []
    for n, (stated, size) in enumerate(objects):
        try:
            _check(stated, size)
        except ValueError as error:
            places[n] = error
            continue
        if not stated.is_point:
            rows.append(n)
            extents.append(_extent(stated, size))
            sizes.append(size or (np.inf, np.inf))
    boxes_M4 = np.array([objects[n][0].corners_xyxy for n in rows], np.float64).reshape(-1, 4)
    extent_M2, size_M2 = (np.array(values, np.float64).reshape(-1, 2) for values in (extents, sizes))
    placed = place(boxes_M4, extent_M2, CLIP_PIXELS * extent_M2 / size_M2, CoordGrid())
    for m, box in enumerate(placed.fractions_N4.tolist()):
        places[rows[m]] = placed.faults.get(m) or ((box[0], box[1], box[2], box[3]), bool(placed.clipped_N[m]))
    return places


def _check(stated: RawObject, size: tuple[int, int] | None) -> None:
    """Check what makes an object one of its image, apart from where it lies."""
    if stated.fault:
        raise InputError(stated.fault)
    check_description(stated.desc)
    if len(stated.corners_xyxy) != 4 or not all(abs(v) < float("inf") for v in stated.corners_xyxy):
        raise InputError(f"expected four finite numbers, found {list(stated.corners_xyxy)}")
    if stated.unit == "pixels" and size is None:
        raise InputError("a box in pixels, but the size of its image is unknown: it is missing or not an image")


def _extent(stated: RawObject, size: tuple[int, int] | None) -> tuple[float, float]:
    """Return width and height of an image in the unit of an object."""
    return (float(size[0]), float(size[1])) if stated.unit == "pixels" and size is not None else (1.0, 1.0)


def _fields(
    stated: RawObject,
    size: tuple[int, int] | None,
    placed: _Place | ValueError | None,
    kind: Geometry,
    notes: Counter[str],
) -> dict[str, Any]:
    """Return the box of an object in [0, 1] and, if targets are no boxes, its shape."""
    if isinstance(placed, ValueError):
        raise placed
    if placed is None:
        return _point(stated, _extent(stated, size), kind)
    box, clipped = placed
    from coord_codec.placing import CLIPPED

    fields: dict[str, Any] = {"bbox": box}
    if not (kind.is_box or stated.ignored):
        # One conversion for all formats: that of COCO, in pixels.
        size = size or _NOMINAL
        record = {"segmentation": stated.outlines, "keypoints": list(stated.keypoints)}
        if stated.unit == "fractions":
            record["segmentation"] = [_scaled(outline, size) for outline in stated.outlines]
            record["keypoints"] = _scaled(stated.keypoints, (*size, 1.0))
        fields["geometry"] = coco_shape(record, kind, box, size, stated.keypoint_names, notes)
    notes[CLIPPED] += clipped
    return fields


def _point(stated: RawObject, extent: tuple[float, float], kind: Geometry) -> dict[str, Any]:
    if not kind.fits(2) or kind.named:
        raise InputError(f"a point, found where a {kind.name} is wanted; the geometry point reads it")
    x, y = stated.corners_xyxy[0] / extent[0], stated.corners_xyxy[1] / extent[1]
    if not (0 <= x <= 1 and 0 <= y <= 1):
        raise InputError(f"({stated.corners_xyxy[0]:g}, {stated.corners_xyxy[1]:g}) lies outside its image")
    return {"bbox": widened((x, y, x, y)), "geometry": Shape(kind.name, kind.arrange((x, y)))}


def _scaled(values: Sequence[float], scale: Sequence[float]) -> list[float]:
    return [value * scale[i % len(scale)] for i, value in enumerate(values)]
