"""Reads ground truth, from the annotations that `coord_codec` reads.

Shapes: I images, N objects, K categories; boxes are `xywh` in pixels, as in COCO.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coord_codec import AnnotationSet, Geometry, InputError, Shape, geometry_of, read_annotations, shape_of
from coord_codec.arguments import expect
from coord_codec.box_table import BoxFlag, BoxTable, to_pixels
from coord_codec.coco.reader import NOT_AROUND, is_larger
from coord_codec.commands.foreign import tool_of
from coord_codec.counts import counted
from coord_codec.files import read_json
from coord_eval.boxes.ground_truth import GroundTruth, ImageId
from coord_eval.boxes.pixels import from_corners
from coord_eval.intake.library_boxes import as_coco, boxes_by_image, is_by_position
from coord_eval.intake.results import plain_records
from coord_eval.intake.server_records import TEXTS
from coord_eval.intake.stated_shapes import SHAPES

if TYPE_CHECKING:
    from coord_codec import Instance

_ORDER = "the ground truth comes first, score(ground_truth, predictions), and is --ground-truth"
_PREPARE = "`coord-data prepare {} --out FOLDER` makes instance JSON lines of most formats, which are read here"
_HEAD = 1 << 20
"""Bytes of a file in which its first record is looked for."""
GroundTruthSource = str | Path | Mapping[Any, Any] | Sequence[Any] | AnnotationSet | GroundTruth
"""Types that `load_ground_truth` accepts."""


def load_ground_truth(
    source: GroundTruthSource, *, lenient: bool = False, geometry: str | Geometry = "box", as_stated: bool = False
) -> GroundTruth:
    """Load ground truth.

    Boxes of a COCO file stay in pixels, unrounded. A box of zero area is kept as ground truth, as in pycocotools.
    SourceRecords that an annotation set has left out are counted in the notes.

    Args:
        source: path of COCO JSON, instance JSON lines or a folder that `coord-data prepare` wrote, a COCO dictionary,
            instances, an annotation set as `coord_codec.read_annotations` returns it, supervision's `[(image_id,
            Detections), ...]`, torchmetrics' list of targets, or a `GroundTruth`, which is returned as it is
        lenient: leave out faulty records and count them in the notes, instead of raising; an annotation set is never
            checked again
        geometry: geometry of the objects that is scored in addition to their boxes
        as_stated: keep the outlines, masks or keypoints as a COCO file states them, for pycocotools, in place of
            one shape of the geometry for each object

    Raises:
        InputError: if a file cannot be read or a record is faulty; the message names file, record and field

    Example:
        >>> from coord_codec import Instance
        >>> cat = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}
        >>> ground_truth = load_ground_truth([Instance(image="a.jpg", width=100, height=50, objects=[cat])])
        >>> ground_truth.categories, ground_truth.boxes_N4.tolist()
        (('cat',), [[10.0, 10.0, 40.0, 20.0]])
    """
    if isinstance(source, GroundTruth):
        return source
    if isinstance(source, AnnotationSet):
        return _from_set(source, geometry)
    document = getattr(source, "dataset", source)  # of pycocotools' `COCO`
    if isinstance(document, str | Path) and Path(document).is_dir():
        document = _prepared_file(Path(document))
    by_position = is_by_position(document)
    if found := boxes_by_image(document, "ground truth"):
        document = as_coco(found)
    expect("ground truth", document, str, Path, Mapping, list, tuple)
    try:
        if isinstance(document, Mapping):
            document = {key: plain_records(rows) for key, rows in document.items()}
        rows = _annotations_in(document) if as_stated else None
        annotations = read_annotations(document, geometry="box" if rows is not None else geometry)
        if not lenient:
            annotations.check(training=False)
    except InputError as error:
        if _are_predictions(document):
            name = document if isinstance(document, str | Path) else "ground truth"
            raise InputError(f"{name}: these are predictions: {_ORDER}") from error
        if isinstance(document, str | Path) and (tool := tool_of(document) or _table(Path(document))):
            raise InputError(
                f"{document}: a file of {tool}, which is not read here: {_PREPARE.format(document)}"
            ) from error
        raise
    truth = replace(_from_set(annotations, "box" if rows is not None else geometry), by_position=by_position)
    if as_stated:
        own = (
            _stated(truth)
            if rows is None or annotations.table is None
            else map(rows.__getitem__, annotations.table.row_N)
        )
        truth = replace(truth, stated_N=_of_objects(own, len(truth.image_N)), shapes=None)
    return truth


def _table(path: Path) -> str:
    kind = path.suffix.lower()
    return f"the kind {kind}" if path.is_file() and kind in (".csv", ".tsv", ".parquet", ".xml", ".txt", ".zip") else ""


def _prepared_file(folder: Path) -> Path:
    """Return the records in a folder that `coord-data prepare` wrote.

    Raises:
        InputError: the folder is none, or has several such files
    """
    files = sorted(file for file in folder.glob("*.jsonl") if file.with_suffix(".summary.json").is_file())
    if len(files) == 1:
        return files[0]
    if files:
        raise InputError(
            f"{folder}: expected one set, found {', '.join(file.name for file in files)}; name one of them"
        )
    raise InputError(f"{folder}: expected a file of annotations, found a folder: {_PREPARE.format(folder)}")


def _are_predictions(document: Any) -> bool:
    """Return whether the first record of a file or list that is no ground truth is an answer or a result."""
    if isinstance(document, str | Path):
        try:
            with Path(document).open("rb") as file:
                head = file.read(_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n[")
            document = [json.JSONDecoder().raw_decode(head.decode("utf-8", "ignore"))[0]]
        except (OSError, ValueError):
            return False
    first = document[0] if isinstance(document, list | tuple) and document else None
    if not isinstance(first, Mapping) or "objects" in first or "annotations" in first:
        return False
    return "score" in first or any(key in first for key in TEXTS)


def _annotations_in(document: Any) -> Sequence[Any] | None:
    """Return the list of annotations of a COCO document or file; None for instances."""
    if isinstance(document, str | Path):
        if Path(document).suffix.lower() != ".json" or not Path(document).is_file():
            return None
        document = read_json(document)
    return document.get("annotations") if isinstance(document, Mapping) else None


def _of_objects(records: Iterable[Mapping[str, Any] | None], count: int) -> np.ndarray:
    """Return the fields that draw each object as a column [N] of objects."""
    column_N = np.empty(count, object)
    kept = (*SHAPES, "num_keypoints")
    column_N[:] = [record and {key: record[key] for key in kept if record.get(key) is not None} for record in records]
    return column_N


def _stated(truth: GroundTruth) -> Iterator[Mapping[str, Any] | None]:
    """Yield the fields of COCO for the shape of each object of instances."""
    for image, shape in zip(truth.image_N.tolist(), truth.shapes or (None,) * len(truth.image_N), strict=True):
        if shape is None:
            yield None
            continue
        width, height = truth.sizes_I2[image].tolist()
        points = [(x * width, y * height) for x, y in geometry_of(shape.type).outline(shape.coordinates)]
        if shape.visibility:
            yield {
                "keypoints": [v for (x, y), seen in zip(points, shape.visibility, strict=True) for v in (x, y, seen)]
            }
        else:
            yield {"segmentation": [[value for point in points for value in point]]}


def _from_set(annotations: AnnotationSet, geometry: str | Geometry) -> GroundTruth:
    # Boxes and areas of a COCO file are in pixels, so that small, medium and large do not depend on the image size.
    table, unsized = annotations.table, 0
    drawn: tuple[str, ...] = ()
    if table is None:
        table, unsized, drawn = _table_of(annotations.instances, [category.name for category in annotations.categories])
    notes = []
    if unsized:
        notes.append(f"{counted(unsized, 'image states', 'images state')} no size: no metrics by object size")
    if left_out := [problem for problem in annotations.problems if not problem.training_only]:
        # Reports are passed on, so they name the file without the folders of this machine.
        first = str(left_out[0]).replace(f"{annotations.root}/", "") if annotations.root else str(left_out[0])
        notes.append(f"{counted(len(left_out), 'fault')} in the ground truth, the records are left out: {first}")
    if NOT_AROUND in annotations.notes:
        notes.append(f"{NOT_AROUND}: {annotations.notes[NOT_AROUND]}; metrics follow bbox")
    width_N, height_N = table.sides_N2.T
    # A mask is smaller than its box, and never by so much.
    is_wrong_N = is_larger(table.area_N, width_N, height_N) | (table.area_N < 0.005 * (width_N * height_N))
    if disagreeing := int((is_wrong_N & ~table.has(BoxFlag.CROWD)).sum()):
        notes.append(
            f"{counted(disagreeing, 'object states', 'objects state')} an area larger than their box, or below .5 % of "
            "it: metrics of small, medium and large objects follow the stated area"
        )
    if zero_area := int((table.sides_N2 <= 0).any(axis=1).sum()):
        notes.append(counted(zero_area, "object has no area", "objects have no area") + " and cannot be matched")
    has_shapes = not geometry_of(geometry).is_box
    ids = [n if image_id is None else image_id for n, image_id in enumerate(annotations.image_ids)]
    order_I = None
    if ids != list(table.image_ids):
        index = {image_id: i for i, image_id in enumerate(table.image_ids)}
        order_I = np.array([index[image_id] for image_id in ids if image_id in index], np.int64)
    return GroundTruth.of(
        table,
        [category.id for category in annotations.categories],
        not unsized,
        root=annotations.root,
        notes=tuple(notes),
        shapes=_shapes(annotations, table, geometry) if has_shapes else None,
        drawn=drawn,
        order_I=order_I,
    )


def _shapes(annotations: AnnotationSet, table: BoxTable, geometry: str | Geometry) -> tuple[Shape | None, ...]:
    """Return the shape of each row of `table`, in which the targets of an image have the order of its instance."""
    ids = [i if item.image_id is None else item.image_id for i, item in enumerate(annotations.instances)]
    targets = {key: iter(item.targets) for key, item in zip(ids, annotations.instances, strict=True)}
    shapes: list[Shape | None] = []
    for image, is_target in zip(table.image_N.tolist(), table.has(BoxFlag.TARGET).tolist(), strict=True):
        image_id = table.image_ids[image]
        shape_object = next(targets[image_id], None) if is_target and image_id in targets else None
        shapes.append(None if shape_object is None else shape_of(shape_object, geometry))
    return tuple(shapes)


def _table_of(instances: Sequence[Instance], labels: Sequence[str]) -> tuple[BoxTable, int, tuple[str, ...]]:
    """Return instances as a table, the number of those without a size, and the geometries that they draw.

    A missing id becomes the index of the instance; if any states no size, all boxes stay fractions, of images of 1 x 1.
    """
    category = {name: k for k, name in enumerate(labels)}
    ids: list[ImageId] = [i if item.image_id is None else item.image_id for i, item in enumerate(instances)]
    if len(set(ids)) < len(ids):
        repeated = next(i for n, i in enumerate(ids) if i in ids[:n])
        raise InputError(f"ground truth: image_id {repeated!r} occurs twice; ids must be unique")
    order = sorted(range(len(ids)), key=lambda i: (isinstance(ids[i], str), ids[i]))
    unsized = sum(item.width is None or item.height is None for item in instances)
    sizes, rows, drawn = [], [], set()
    for image, position in enumerate(order):
        item = instances[position]
        width, height = (1.0, 1.0) if unsized else (float(item.width or 0), float(item.height or 0))
        sizes.append((width, height))
        for o in item.objects:
            area = np.nan if o.area is None else o.area
            flag = BoxFlag.CROWD if o.iscrowd else BoxFlag.TARGET
            rows.append((image, category[o.desc], *o.bbox, area, flag.value))
            if o.geometry is not None and not geometry_of(o.geometry.type).is_box:
                drawn.add(o.geometry.type)
    rows_N8 = np.array(rows, np.float64).reshape(-1, 8)
    sizes_I2 = np.array(sizes, np.float64).reshape(-1, 2)
    frame_N4 = np.tile(sizes_I2[rows_N8[:, 0].astype(np.int64)], 2)
    corners_N4 = rows_N8[:, 2:6] if unsized else to_pixels(rows_N8[:, 2:6], frame_N4, 1)
    sides_N2 = from_corners(corners_N4)[:, 2:]
    table = BoxTable.of(
        rows_N8[:, 0],
        rows_N8[:, 1],
        corners_N4,
        sides_N2=sides_N2,
        area_N=np.where(np.isnan(rows_N8[:, 6]), sides_N2[:, 0] * sides_N2[:, 1], rows_N8[:, 6]),
        flags_N=rows_N8[:, 7],
        image_ids=tuple(ids[position] for position in order),
        names=tuple(str(instances[position].image) for position in order),
        sizes_I2=sizes_I2,
        labels=labels,
    )
    return table, unsized, tuple(sorted(drawn))
