"""Turns the images and boxes that a format reader yields into instances, by the same rules for all formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from coord_codec import AnnotationSet, Category, CoordGrid, InputError, Instance, Object, Problem
from coord_codec.boxes import CLIP_PIXELS, OnBadBox, SmallBoxError, place_box
from coord_codec.records import check_description, with_uncertain
from coord_data.formats.raw import RawBox, RawImage, Reading

ImageSize = Callable[[str], "tuple[int, int] | None"]
_GRID = CoordGrid()
IGNORED = "regions that are not training targets and are ignored in scoring"
REFUSED = "images left out with an object that was refused (data.on_bad_box: drop_image)"


def collect(reading: Reading, on_bad_box: OnBadBox, image_size: ImageSize) -> AnnotationSet:
    """Return the instances of a reading, with a list of refused records and counts of repairs.

    Args:
        reading: result of a format reader
        on_bad_box: how a refused object affects its image
        image_size: looks up the width and height of an image whose record states none
    """
    problems: list[Problem] = []
    notes: Counter[str] = Counter()
    instances: list[Instance] = []
    first_uses: dict[int | str, str] = {}
    for raw in reading.images:
        name = _relative(raw.name, reading.root)
        fault = raw.fault or ("" if name else "expected the path of an image, found none")
        if raw.image_id is not None and first_uses.setdefault(raw.image_id, raw.where) is not raw.where:
            fault = f"image id {raw.image_id!r} is already used at {first_uses[raw.image_id]}"
        if fault:
            problems.append(Problem(raw.where, "", fault))
            continue
        notes.update(raw.notes)
        size = raw.size or image_size(name)
        objects, refused, target_refused = _objects(raw, size, problems, notes)
        if target_refused and on_bad_box == "drop_image":
            notes[REFUSED] += 1
            continue
        width, height = size or (None, None)
        id_field = {"image_id": raw.image_id} if raw.image_id is not None else {}
        fields = {"image": name, "width": width, "height": height, **id_field, **raw.extra, "objects": objects}
        instances.append(with_uncertain(Instance.model_construct(**fields), refused))
    names = sorted({o.desc for instance in instances for o in instance.objects})
    categories = tuple(Category(n, name) for n, name in enumerate(names, start=1))
    return AnnotationSet(tuple(instances), tuple(problems), categories, dict(notes), reading.root)


def _objects(
    raw: RawImage, size: tuple[int, int] | None, problems: list[Problem], notes: Counter[str]
) -> tuple[tuple[Object, ...], list[str], bool]:
    """Return the objects of an image, the descriptions of refused ones, and whether one of those is a target."""
    objects, refused, target_refused = [], [], False
    for box in raw.boxes:
        try:
            corners, clipped = _place(box, size)
        except ValueError as error:
            refused.append(box.desc)
            target_refused |= not isinstance(error, SmallBoxError) and not box.ignored
            problems.append(Problem(box.where, "", str(error), is_box=True))
            continue
        notes.update(box.notes)
        notes[f"boxes clipped by at most {CLIP_PIXELS:g} pixel"] += clipped
        notes[IGNORED] += box.ignored
        crowd = {"iscrowd": True} if box.ignored else {}
        objects.append(Object.model_construct(desc=box.desc, bbox=corners, **crowd))
    for name in [name for name, count in notes.items() if not count]:
        del notes[name]
    return tuple(objects), refused, target_refused


def _place(box: RawBox, size: tuple[int, int] | None) -> tuple[tuple[float, float, float, float], bool]:
    if box.fault:
        raise InputError(box.fault)
    check_description(box.desc)
    if len(box.corners_xyxy) != 4 or not all(abs(v) < float("inf") for v in box.corners_xyxy):
        raise InputError(f"expected four finite numbers, found {list(box.corners_xyxy)}")
    if box.unit == "pixels":
        if size is None:
            raise InputError("a box in pixels, but the size of its image is unknown: it is missing or not an image")
        return place_box(box.corners_xyxy, *size, grid=_GRID)
    slack = (CLIP_PIXELS / size[0], CLIP_PIXELS / size[1]) if size else (0.0, 0.0)
    return place_box(box.corners_xyxy, 1.0, 1.0, grid=_GRID, slack=slack)


def _relative(name: str, root: Path) -> str:
    """Return a path as records contain it: an absolute path below `root` becomes relative to it."""
    path = Path(name.replace("\\", "/"))
    if path.is_absolute():
        for base in (root, root.resolve()):
            if path.is_relative_to(base):
                return path.relative_to(base).as_posix()
    return path.as_posix() if name else ""
