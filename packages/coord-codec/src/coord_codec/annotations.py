"""The one reader of annotations: COCO JSON and instance JSONL become an `AnnotationSet`.

Training, scoring, preparing and inspecting read the same set: what is left out of one is left out of the other, and
listed as a problem.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coord_codec.boxes import OnBadBox, SmallBoxError
from coord_codec.coco.document import is_coco, read_coco
from coord_codec.coco.shapes import in_place_of
from coord_codec.coco.tables import Category, CocoTables
from coord_codec.files import BACKSLASHES, InputError, name_on_disk, parse_json_line, read_json
from coord_codec.geometry import Geometry, geometry_of, shape_of
from coord_codec.grid import CoordGrid
from coord_codec.records import Instance, Object, Problem, parse_objects, parse_record, raise_for, with_uncertain

_GRID = CoordGrid()

ImageSize = Callable[[str], "tuple[int, int] | None"]
"""Looks up width and height in pixels of an image that states none, by its file name."""

_EXPECTED = (
    "expected COCO JSON (an object with the lists images, annotations and categories) or instance JSONL "
    '(one {"image": ..., "objects": [...]} a line)'
)


@dataclass(frozen=True)
class AnnotationSet:
    """The annotated images of a file, and everything that was left out of it.

    Attributes:
        instances: the images with their objects, boxes in [0, 1], in the order of the file.
        problems: what was left out, and why.
        categories: the categories by ascending id; for instance records the distinct descriptions, sorted, with ids
            from 1.
        notes: counted facts that are no faults, such as clipped boxes and crowd regions.
        root: the folder that image paths are relative to; None if unknown.
        tables: the pixel rows of a COCO file as it states them; None for instance records.
    """

    instances: Sequence[Instance]
    problems: tuple[Problem, ...] = ()
    categories: tuple[Category, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    root: Path | None = None
    tables: CocoTables | None = None

    def select(self, instances: Sequence[Instance]) -> AnnotationSet:
        """Return the set of some of its images, as training uses them.

        Of a COCO file's rows those remain that are training targets or crowd regions of the chosen images.

        Args:
            instances: instances of this set.
        """
        chosen = tuple(instances)
        tables = self.tables and self.tables.select({instance.image_id for instance in chosen})
        return replace(self, instances=chosen, tables=tables)

    def check(self, *, training: bool = True) -> None:
        """Raise an error if anything was left out.

        Args:
            training: whether faults count that concern training alone, see `Problem.training_only`.

        Raises:
            InputError: listing the first few problems.
        """
        faults = [problem for problem in self.problems if training or not problem.training_only]
        raise_for(faults, f"{len(faults)} problems in the annotations; mend or remove these records")


def read_annotations(
    source: str | os.PathLike[str] | Mapping[str, Any] | Sequence[Instance],
    images: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    image_size: ImageSize | None = None,
    on_bad_box: OnBadBox | None = None,
    geometry: str | Geometry = "box",
) -> AnnotationSet:
    """Read annotations; bad records are left out and listed.

    The format is told by the content, not by the suffix. In a COCO file a box that reaches out of its image by at
    most a pixel is clipped and counted; a record with any other fault is left out, an image with all its annotations.

    Args:
        source: path of COCO JSON, of instance JSONL or of a JSON list of instance records; a COCO dictionary; or
            instances.
        images: folder that image paths are relative to; the file's own folder if None.
        strict: raise instead of leaving anything out.
        image_size: looks up the size of an image that states none.
        on_bad_box: what a refused object does to its image, see `OnBadBox`, and leave out boxes that are thinner than
            a bin; None as scoring reads a file: a bad annotation of COCO alone, a bad line of an instance file whole.
        geometry: the shape that each target must have, a name of `GEOMETRIES`: of a COCO file from `segmentation` or
            `keypoints`, else from the box. What is no such shape is left out, and what only a box stands for is
            counted in the notes.

    Raises:
        InputError: if the source cannot be read or is neither format; in strict mode if anything is wrong in it.

    Example:
        >>> coco = {
        ...     "images": [{"id": 7, "file_name": "a.jpg", "width": 200, "height": 100}],
        ...     "categories": [{"id": 1, "name": "cat"}],
        ...     "annotations": [
        ...         {"image_id": 7, "category_id": 1, "bbox": [20, 10, 100, 50]},
        ...         {"image_id": 8, "category_id": 1, "bbox": [20, 10, 100, 50]},
        ...     ],
        ... }
        >>> found = read_annotations(coco)
        >>> found.instances[0].objects[0].bbox
        (0.1, 0.1, 0.6, 0.6)
        >>> print(*found.problems)
        annotations: annotations[1]: image_id: 8 is not the id of an image of this file, or of one that was left out
    """
    if images is not None and not Path(images).is_dir():
        raise InputError(f"{images}: expected a folder of images, found {_kind(Path(images))}")
    root = None if images is None else Path(images)
    kind = None if geometry_of(geometry).name == "box" else geometry_of(geometry)
    if isinstance(source, Mapping):
        found = _from_coco(source, "annotations", image_size, on_bad_box, kind, root)
    elif isinstance(source, (str, os.PathLike)):
        root = root or Path(source).parent
        found = _read_file(Path(source), image_size, on_bad_box, kind, root)
    else:
        found = with_shapes(_from_records(source, on_bad_box), kind, on_bad_box)
    found = replace(found if found.tables else _on_disk(found, root), root=root)
    if on_bad_box == "error":
        refused = [problem for problem in found.problems if problem.is_box]
        raise_for(refused, f"{len(refused)} objects are refused; mend them, or let on_bad_box leave them out")
    if strict:
        found.check()
    return found


def _on_disk(found: AnnotationSet, folder: Path | None) -> AnnotationSet:
    """Return a set whose images have the names of their files."""
    names = [name_on_disk(folder, instance.image) for instance in found.instances]
    changed = sum(name != instance.image for name, instance in zip(names, found.instances, strict=True))
    if not changed:
        return found
    instances = (i.model_copy(update={"image": name}) for i, name in zip(found.instances, names, strict=True))
    return replace(found, instances=tuple(instances), notes={**found.notes, BACKSLASHES: changed})


def _read_file(
    path: Path, image_size: ImageSize | None, on_bad_box: OnBadBox | None, kind: Geometry | None, root: Path
) -> AnnotationSet:
    if path.is_dir():
        raise InputError(f"{path}: expected a file of annotations, found a folder")
    first, single = _first_record(path)
    if first is not None and not (single and is_coco(first)):
        if single and "image" not in first and "objects" not in first:
            raise InputError(f"{path}: {_EXPECTED}, found an object with the keys {sorted(first)[:8]}")
        return with_shapes(_from_lines(path, on_bad_box), kind, on_bad_box)
    if first is None and path.suffix == ".jsonl" and not _is_list(path):
        return with_shapes(_from_lines(path, on_bad_box), kind, on_bad_box)
    document = read_json(path) if first is None else first
    if isinstance(document, dict):
        return _from_coco(document, str(path), image_size, on_bad_box, kind, root)
    if isinstance(document, list) and (not document or any(isinstance(r, dict) and "objects" in r for r in document)):
        return with_shapes(_from_records(document, on_bad_box, f"{path}: "), kind, on_bad_box)
    hint = "; a list of detections has no images and can be no ground truth" if isinstance(document, list) else ""
    raise InputError(f"{path}: {_EXPECTED}, found a JSON {type(document).__name__}{hint}")


def _is_list(path: Path) -> bool:
    """Return whether a file is a JSON list, and not lines of which the first is one."""
    with path.open("rb") as lines:
        first = next((line for line in lines if line.strip()), b"")
    if first.removeprefix(BOM_UTF8).lstrip()[:1] != b"[":
        return False
    try:
        return isinstance(read_json(path), list)
    except InputError:
        return False


def _first_record(path: Path) -> tuple[dict[str, Any] | None, bool]:
    """Return the object on the first line that is not blank, and whether nothing follows it; None if it is none."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.strip():
                    try:
                        return parse_json_line(line), not any(rest.strip() for rest in lines)
                    except ValueError:
                        return None, False
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    return {"image": ""}, False  # an empty file is an instance file without lines


def _from_coco(
    document: Mapping[str, Any],
    source: str,
    image_size: ImageSize | None,
    on_bad_box: OnBadBox | None,
    kind: Geometry | None,
    root: Path | None,
) -> AnnotationSet:
    if not is_coco(document):
        raise InputError(f"{source}: {_EXPECTED}, found an object with the keys {sorted(map(str, document))[:8]}")
    instances, problems, notes, categories, tables = read_coco(document, source, image_size, on_bad_box, kind, root)
    found = AnnotationSet(instances, problems, categories, notes, None, tables)
    return found.select(instances) if on_bad_box else found


def _from_lines(path: Path, on_bad_box: OnBadBox | None) -> AnnotationSet:
    return _collect(_lines(path), on_bad_box)


def _lines(path: Path) -> Iterator[tuple[bytes, str]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield line, f"{path}:{number}"


def _from_records(records: Sequence[Any], on_bad_box: OnBadBox | None, prefix: str = "") -> AnnotationSet:
    return _collect(((record, f"{prefix}instances[{i}]") for i, record in enumerate(records)), on_bad_box)


def _collect(records: Any, on_bad_box: OnBadBox | None) -> AnnotationSet:
    instances: list[Instance] = []
    problems: list[Problem] = []
    for instance, faults in _judge(records, on_bad_box):
        problems += faults
        if instance is not None:
            instances.append(instance)
    names = sorted({o.desc for instance in instances for o in instance.objects})
    categories = tuple(Category(number, name) for number, name in enumerate(names, start=1))
    return AnnotationSet(tuple(instances), tuple(problems), categories)


def with_shapes(
    annotations: AnnotationSet, geometry: str | Geometry | None, on_bad_box: OnBadBox | None = None
) -> AnnotationSet:
    """Return a set of instance records whose targets have a shape of that geometry; others are left out and listed.

    Args:
        annotations: without the rows of a COCO file.
        geometry: a name of `GEOMETRIES`, or None for no change.
        on_bad_box: what an object without such a shape does to its image; one that is too small goes alone.

    Example:
        >>> from coord_codec import Instance
        >>> boxes = [{"desc": "cat", "bbox": [0.1, 0.2, 0.3, 0.6]}]
        >>> found = with_shapes(read_annotations([Instance(image="a.jpg", objects=boxes)]), "point")
        >>> found.instances[0].objects[0].geometry.coordinates, *found.notes
        ((0.2, 0.4), 'objects that state no point geometry: the centre of the box is taught')
    """
    if geometry is None or geometry_of(geometry).name == "box":
        return annotations
    kind = geometry_of(geometry)
    notes, problems, kept = Counter(annotations.notes), list(annotations.problems), []
    for number, instance in enumerate(annotations.instances):
        shaped = [found if found.iscrowd else _shaped(found, kind, notes) for found in instance.objects]
        where = f"instances[{number}] ({instance.image})"
        for place, found in enumerate(shaped):
            if isinstance(found, InputError):
                problems.append(Problem(where, f"objects[{place}].geometry", str(found), True, is_box=True))
        if on_bad_box == "drop_image" and any(_is_wrong(found) for found in shaped):
            continue
        objects = tuple(found for found in shaped if isinstance(found, Object))
        refused = (o.desc for o, found in zip(instance.objects, shaped, strict=True) if isinstance(found, InputError))
        kept.append(with_uncertain(instance.model_copy(update={"objects": objects}), refused))
    return replace(annotations, instances=tuple(kept), problems=tuple(problems), notes=dict(+notes))


def _is_wrong(found: Object | InputError) -> bool:
    """Whether an object was refused for more than being too small."""
    return isinstance(found, InputError) and not isinstance(found, SmallBoxError)


def _shaped(found: Object, kind: Geometry, notes: Counter[str]) -> Object | InputError:
    try:
        shape = shape_of(found, kind)
        kind.written(shape.coordinates, _GRID)
    except InputError as error:
        return error
    if found.geometry is None or found.geometry.type != kind.name:
        notes[in_place_of(kind)] += 1
    return found if found.geometry is shape else found.model_copy(update={"geometry": shape})


def _judge(records: Any, on_bad_box: OnBadBox | None) -> Iterator[tuple[Instance | None, list[Problem]]]:
    seen: dict[int | str, str] = {}
    for record, where in records:
        if on_bad_box:
            instance, faults = parse_objects(record, where, on_bad_box)
        else:
            instance, faults = (record, []) if isinstance(record, Instance) else parse_record(record, where)
        if instance is not None and instance.image_id is not None:
            first = seen.setdefault(instance.image_id, where)
            if first is not where:
                message = f"expected an id of its own, found {instance.image_id!r}, which {first} has already"
                instance, faults = None, [*faults, Problem(where, "image_id", message)]
        yield instance, faults


def _kind(path: Path) -> str:
    return "a file" if path.exists() else "nothing there"
