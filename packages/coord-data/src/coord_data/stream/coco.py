"""Reads COCO annotations in one pass, with the result of `read_annotations` but without the document in memory.

Images, categories and annotations may come in any order, so that all must be read before the first image is complete.
Until then an annotation is ten numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from coord_codec import InputError
from coord_codec.annotations import EXPECTED
from coord_codec.box_table import BoxFlag
from coord_codec.boxes import OnBadBox
from coord_codec.coco.document import CocoLists, content_of
from coord_codec.coco.reader import CocoReader, numbered
from coord_codec.coco.tables import LISTS, not_coco
from coord_codec.geometry import Geometry
from coord_codec.records import UNCERTAIN
from coord_data.looking.image_file import ImageFolder
from coord_data.looking.image_paths import found_here
from coord_data.records import batch_of_columns
from coord_data.sources.source import Source
from coord_data.stream.lines import PART


class CocoRecords:
    """The images of a COCO file with their objects.

    Args:
        source: the file
        lists: its lists
        on_bad_box: how images with refused objects are treated
        kind: the shape of every target; None for boxes
        folder: the folder of the images, which tells the size of one that states none

    Attributes:
        problems: what was left out
        notes: counts of notes
        categories: categories by ascending id

    Raises:
        InputError: the file lacks one of the lists, or no annotation belongs to one of its images.
    """

    def __init__(
        self, source: Source, lists: CocoLists, on_bad_box: OnBadBox, kind: Geometry | None, folder: ImageFolder
    ) -> None:
        self.source, self.folder = source, folder.root
        annotations = lists.annotations
        if not lists.keys.issuperset(LISTS):
            raise InputError(f"{source.path}: {EXPECTED}, found {not_coco({key: [] for key in lists.keys})}")
        images, notes = lists.images, Counter[str]()
        names = [row["file_name"] for row in images if isinstance(row, dict) and isinstance(row.get("file_name"), str)]
        here = found_here(names, folder.root)
        for row in images if here else ():
            if isinstance(row, dict) and row.get("file_name") in here:
                found = here[row["file_name"]]
                row["file_name"] = found.name
                notes.update(found.notes)
        drawn = [images[i * len(images) // PART] for i in range(PART)] if len(images) > PART else images
        ids = {numbered(image["id"]) for image in drawn if isinstance(image, dict) and _has_id(image)}
        self._part = {"images": drawn, "annotations": annotations.of_images(ids), "categories": lists.categories}
        further = annotations.other.values()
        reader = CocoReader(lists.categories, images, str(source.path), folder.size, folder.root, further)
        reader.notes.update(notes)
        self._content = content_of(annotations, reader, on_bad_box, kind)
        self.problems, self.notes = list(self._content.problems), Counter(self._content.notes)
        self.categories, self.table = self._content.categories, self._content.table

    def batches(self, size: int) -> Iterator[pa.RecordBatch]:
        """Yield the records in the order of the images in the file, so many at a time."""
        content, table = self._content, self.table
        image_R, rows_M, starts_R1 = content.records
        names = pa.array(table.labels, pa.string())
        area_M = np.where(table.has(BoxFlag.AREA)[rows_M], table.area_N[rows_M], np.nan)
        crowd_M = table.has(BoxFlag.CROWD)[rows_M]
        for start in range(0, len(content.images), size):
            images = content.images[start : start + size]
            starts = starts_R1[start : start + size + 1]
            extras = (
                self._extra(int(image_R[start + n]), rows_M[starts[n] : starts[n + 1]]) for n in range(len(images))
            )
            rows_m, own = rows_M[starts[0] : starts[-1]], slice(starts[0], starts[-1])
            yield batch_of_columns(
                image=[image.file_name for image in images],
                width=[image.width for image in images],
                height=[image.height for image in images],
                image_id=[json.dumps(image.id) for image in images],
                starts=starts - starts[0],
                desc=names.take(pa.array(table.label_N[rows_m])),
                bbox=content.fractions_N4[rows_m].ravel(),
                crowd=crowd_M[own],
                area=pa.array(area_M[own], from_pandas=True),  # NaN is none
                extra=list(extras),
            )

    def _extra(self, image: int, rows: np.ndarray) -> str | None:
        """Return further keys of an image and of its objects as JSON; None if there are none."""
        uncertain = self._content.uncertain.get(image)
        if uncertain is None and not self._content.shapes:
            return None
        of_record = {} if uncertain is None else {UNCERTAIN: sorted(uncertain)}
        shapes = [self._content.shapes.get(row) for row in rows.tolist()]
        of_objects = [{} if shape is None else {"geometry": shape.to_json()} for shape in shapes]
        return json.dumps((of_record, of_objects)) if of_record or any(of_objects) else None

    def part(self) -> str:
        """Return `PART` evenly spaced images with their unchanged annotations, as a COCO file."""
        return json.dumps(self._part)


def _has_id(row: dict[str, Any]) -> bool:
    return isinstance(row.get("id"), int | str)
