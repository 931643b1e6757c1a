"""Reads COCO JSON and instance JSONL into an `AnnotationSet`.

Training, scoring, preparation and inspection all use this reader, so that they use the same records. Every record that
is left out is listed as a problem.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from coord_codec.arguments import expect
from coord_codec.boxes import OnBadBox, SmallBoxError
from coord_codec.coco.shapes import in_place_of
from coord_codec.coco.tables import Category, ImageId, categories_named, is_coco, not_coco
from coord_codec.counts import counted
from coord_codec.files import BACKSLASHES, InputError, name_on_disk
from coord_codec.geometry import Geometry, geometry_of, shape_of
from coord_codec.grid import CoordGrid
from coord_codec.json_file import JsonFile, parsed_line
from coord_codec.problems import Problem, UniqueIds, raise_for, raise_for_refused

if TYPE_CHECKING:
    from coord_codec.box_table import BoxTable
    from coord_codec.coco.document import CocoContent, CocoLists
    from coord_codec.records import Instance, Object

_GRID = CoordGrid()

ImageSize = Callable[[str], "tuple[int, int] | None"]
"""Function that returns width and height in pixels for an image's file name, or None if they are unknown."""

EXPECTED = (
    "expected COCO JSON (an object with the lists images, annotations and categories) or instance JSONL "
    '(one {"image": ..., "objects": [...]} per line)'
)


@dataclass(frozen=True)
class AnnotationSet:
    """The annotated images of a file, and a list of what was left out.

    Attributes:
        instances: images and their objects, with boxes in [0, 1], in the order of the file
        problems: what was left out, and why
        categories: categories by ascending id; for instance records the distinct descriptions, sorted, with ids from 1
        notes: counts of events that are not faults, such as clipped boxes and crowd regions
        root: folder that image paths are relative to; None if unknown
        table: rows of a COCO file in pixels as written, with images by ascending id, numbers before text, and labels in
            the order of `categories`; None for instance records. To read a COCO file for its boxes alone costs no more
            than its columns: `read_annotations(path).table`, of which the instances are made when they are first used
    """

    instances: Sequence[Instance]
    problems: tuple[Problem, ...] = ()
    categories: tuple[Category, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    root: Path | None = None
    table: BoxTable | None = None

    @property
    def image_ids(self) -> list[ImageId | None]:
        """The id of each image in the order of the file."""
        ids = getattr(self.instances, "image_ids", None)
        return [instance.image_id for instance in self.instances] if ids is None else ids

    def select(self, instances: Sequence[Instance]) -> AnnotationSet:
        """Return the subset with these images, as training uses them.

        From `table` it keeps the training targets and crowd regions of the selected images.
        """
        selected = tuple(instances)
        table = self.table
        if table is not None:
            table = used_in_training(table, {instance.image_id for instance in selected})
        return replace(self, instances=selected, table=table)

    def check(self, *, training: bool = True) -> None:
        """Raise an `InputError` with the first problems if anything was left out.

        Without `training`, faults that matter for training only are no reason, see `Problem.training_only`.
        """
        faults = [problem for problem in self.problems if training or not problem.training_only]
        raise_for(faults, f"{counted(len(faults), 'problem')} in the annotations; mend or remove these records")


def read_annotations(
    source: str | os.PathLike[str] | JsonFile | Mapping[str, Any] | Sequence[Instance],
    images: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    image_size: ImageSize | None = None,
    on_bad_box: OnBadBox | None = None,
    geometry: str | Geometry = "box",
) -> AnnotationSet:
    """Read annotations; invalid records are left out and listed as problems.

    The format is detected from the content, not the file name. In a COCO file a box that extends beyond its image by
    at most one pixel is clipped and counted; a record with any other fault is left out, an image with its annotations.

    Args:
        source: path of COCO JSON, of instance JSONL or of a JSON list of instance records, or a `JsonFile` of it; a
            COCO dictionary; or instances
        images: folder that image paths are relative to; the file's own folder if None
        strict: raise an error instead of leaving anything out
        image_size: looks up the size of images that have none in the file
        on_bad_box: how to treat images with invalid boxes, see `OnBadBox`; boxes thinner than a bin are then left out
            too. None, as in scoring, leaves out single COCO annotations, or whole lines of an instance file
        geometry: the shape of every target, a name of `GEOMETRIES`. In a COCO file it is taken from `segmentation` or
            `keypoints`, or derived from the box, which the notes count. Objects without such a shape are left out

    Raises:
        InputError: if the source cannot be read or has neither format; in strict mode if any record is invalid; for
            COCO JSON if NumPy is not installed (`coord-codec[images]`)

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
        annotations: annotations[1]: image_id: 8 is not the id of an image of this file, or that row was left out
    """
    expect("source", source, str, os.PathLike, JsonFile, Mapping, Sequence)
    expect("images", images, str, os.PathLike, type(None))
    if images is not None and not Path(images).is_dir():
        found = "a file" if Path(images).exists() else "nothing there"
        raise InputError(f"{images}: expected a folder of images, found {found}")
    root = None if images is None else Path(images)
    kind = None if geometry_of(geometry).is_box else geometry_of(geometry)
    if isinstance(source, (str, os.PathLike)):
        source = JsonFile(source)
    if isinstance(source, Mapping):
        annotations = _from_coco(source, "annotations", image_size, on_bad_box, kind, root)
    elif isinstance(source, JsonFile):
        root, lists = root or source.path.parent, _streamed(source, whole=kind is not None)
        records = None if lists is not None else records_in(source)
        if records is None:
            document = source.document if lists is None else lists
            annotations = _from_coco(document, str(source.path), image_size, on_bad_box, kind, root)
        else:
            annotations = _collect(records, on_bad_box, kind, root)
    else:
        records = ((record, f"instances[{i}]") for i, record in enumerate(source))
        annotations = _collect(records, on_bad_box, kind, root)
    annotations = replace(annotations, root=root)
    if on_bad_box == "error":
        raise_for_refused(annotations.problems)
    if strict:
        annotations.check()
    return annotations


def records_in(file: JsonFile) -> Iterator[tuple[Any, str]] | None:
    """Return each record of instance JSONL, as a line, or of a JSON list, with its place; None for a JSON object.

    Raises:
        InputError: the file cannot be read, or has other content.
    """
    path = file.path
    if path.is_dir():
        raise InputError(f"{path}: expected a file of annotations, found a folder")
    lines = file.lines()
    _, first_line = next(lines, (0, b""))
    is_only_line = next(lines, None) is None
    record = parsed_line(first_line)
    if isinstance(record, str):  # no JSON object
        is_json_lines = not first_line or (path.suffix == ".jsonl" and not _is_list(file, first_line))
    else:
        is_json_lines = not (is_only_line and is_coco(record))
        if is_json_lines and is_only_line and not record.keys() & {"image", "objects"}:
            raise InputError(f"{path}: {EXPECTED}, found {not_coco(record)}")
    if is_json_lines:
        return ((line, f"{path}:{number}") for number, line in file.lines())
    document = file.document
    if isinstance(document, dict):
        return None
    if isinstance(document, list) and (not document or any(isinstance(r, dict) and "objects" in r for r in document)):
        return ((record, f"{path}: instances[{i}]") for i, record in enumerate(document))
    hint = "; a list of detections has no images and can be no ground truth" if isinstance(document, list) else ""
    raise InputError(f"{path}: {EXPECTED}, found a JSON {type(document).__name__}{hint}")


def _is_list(file: JsonFile, first_line: bytes) -> bool:
    """Return whether the whole file is one JSON list."""
    try:
        return first_line.lstrip()[:1] == b"[" and isinstance(file.document, list)
    except InputError:
        return False


def _streamed(file: JsonFile, whole: bool) -> CocoLists | None:
    """Return the lists of COCO JSON that was not parsed before; None for anything else, which is read as a whole."""
    if "document" in file.__dict__ or not file.path.is_file() or file.path.suffix == ".jsonl":
        return None
    try:
        from coord_codec.coco.document import stream_coco

        lists = stream_coco(file, whole)
    except (ModuleNotFoundError, InputError):
        return None
    return lists if lists.images and lists.categories and lists.annotations.count else None


def _from_coco(
    document: Mapping[str, Any] | CocoLists,
    source: str,
    image_size: ImageSize | None,
    on_bad_box: OnBadBox | None,
    kind: Geometry | None,
    root: Path | None,
) -> AnnotationSet:
    if isinstance(document, Mapping) and not is_coco(document):
        raise InputError(f"{source}: {EXPECTED}, found {not_coco(document)}")
    try:
        from coord_codec.coco.document import read_coco
    except ModuleNotFoundError as error:
        message = f"{source}: COCO JSON is read by {error.name}, which is not installed: install coord-codec[images]"
        raise InputError(message) from None
    content = read_coco(document, source, image_size, on_bad_box, kind, root)
    kept_ids = {image.id for image in content.images}
    table = used_in_training(content.table, kept_ids) if on_bad_box else content.table
    instances = _OnFirstUse(content, bool(on_bad_box))
    return AnnotationSet(instances, content.problems, content.categories, content.notes, None, table)


class _OnFirstUse(Sequence["Instance"]):
    """The records of a COCO file, which are made when the first one is asked for."""

    def __init__(self, content: CocoContent, with_uncertain: bool) -> None:
        self._content, self._with_uncertain = content, with_uncertain

    @cached_property
    def _made(self) -> tuple[Instance, ...]:
        return tuple(self._content.instances(self._with_uncertain))

    @property
    def image_ids(self) -> list[ImageId]:
        """The id of each record, none of which is made for it."""
        return [image.id for image in self._content.images]

    def __len__(self) -> int:
        return len(self._content.images)

    @overload
    def __getitem__(self, index: int) -> Instance: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Instance, ...]: ...
    def __getitem__(self, index: int | slice) -> Instance | tuple[Instance, ...]:
        return self._made[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made == tuple(other)

    __hash__ = None  # type: ignore[assignment]


def used_in_training(table: BoxTable, image_ids: Collection[ImageId | None]) -> BoxTable:
    """Return the images with these ids, and of their boxes the training targets and crowd regions."""
    from coord_codec.box_table import BoxFlag

    chosen = table.of_images([image_id in image_ids for image_id in table.image_ids])
    return chosen.take(chosen.has(BoxFlag.TARGET | BoxFlag.CROWD))


def _collect(
    records: Iterable[tuple[Any, str]], on_bad_box: OnBadBox | None, kind: Geometry | None, folder: Path | None
) -> AnnotationSet:
    valid = ValidInstances(records, on_bad_box, kind, folder)
    instances = tuple(valid)
    return AnnotationSet(instances, tuple(valid.problems), categories_named(valid.names), dict(+valid.notes))


class ValidInstances:
    """The valid records of instance JSONL or of a list, in their order, read as they are asked for.

    Args:
        records: each record in the form of `parse_record`, and its place in the source
        on_bad_box: see `read_annotations`
        kind: the shape of every target; None for boxes
        folder: folder that image paths are relative to; None if unknown

    Attributes:
        problems: what was left out so far
        notes: counts of notes so far
        names: the descriptions of the objects so far
    """

    def __init__(
        self,
        records: Iterable[tuple[Any, str]],
        on_bad_box: OnBadBox | None,
        kind: Geometry | None,
        folder: Path | None,
    ) -> None:
        self._records, self._on_bad_box, self._kind, self._folder = records, on_bad_box, kind, folder
        self.problems, self.notes, self.names = list[Problem](), Counter[str](), set[str]()

    def __iter__(self) -> Iterator[Instance]:
        from coord_codec.records import parse_record  # pydantic, which a COCO file does not need

        ids = UniqueIds()
        for record, where in self._records:
            instance, faults = parse_record(record, where, self._on_bad_box)
            self.problems += faults
            if instance is None:
                continue
            if repeated := ids.fault(instance.image_id, where):
                self.problems.append(repeated)
                continue
            self.names.update([obj.desc for obj in instance.objects])
            if self._kind is not None:
                instance, faults = _with_shapes(instance, where, self._kind, self._on_bad_box, self.notes)
                self.problems += faults
            if instance is not None:
                name = name_on_disk(self._folder, instance.image)
                self.notes[BACKSLASHES] += name != instance.image
                yield instance if name == instance.image else instance.model_copy(update={"image": name})


def _with_shapes(
    instance: Instance, where: str, kind: Geometry, on_bad_box: OnBadBox | None, notes: Counter[str]
) -> tuple[Instance | None, list[Problem]]:
    """Return the record with every target in a geometry, or None if it is left out, and its problems."""
    from coord_codec.records import with_uncertain

    objects: list[Object] = []
    refused: list[str] = []
    problems: list[Problem] = []
    is_invalid = False
    for i, obj in enumerate(instance.objects):
        try:
            objects.append(obj if obj.iscrowd else _with_shape(obj, kind, notes))
        except InputError as error:  # noqa: PERF203 - of one object
            refused.append(obj.desc)
            problems.append(Problem(where, f"objects[{i}].geometry", str(error), True, is_box=True))
            is_invalid |= not isinstance(error, SmallBoxError)
    if is_invalid and on_bad_box == "drop_image":
        return None, problems
    return with_uncertain(instance.model_copy(update={"objects": tuple(objects)}), refused), problems


def _with_shape(obj: Object, kind: Geometry, notes: Counter[str]) -> Object:
    shape = shape_of(obj, kind)
    kind.written(shape.coordinates, _GRID)
    if obj.geometry is None or obj.geometry.type != kind.name:
        notes[in_place_of(kind)] += 1
    return obj if obj.geometry is shape else obj.model_copy(update={"geometry": shape})
