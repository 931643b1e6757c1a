"""Reads instance JSONL, or a JSON list of instance records, as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

from coord_codec import BoxTable, Category
from coord_codec.annotations import ValidInstances, records_in
from coord_codec.coco.tables import categories_named
from coord_data.looking.image_paths import found_here
from coord_data.records import batch_of
from coord_data.sources.source import Source

PART = 128
"""Number of images that are examined before training; faults of all boxes can be detected with 30 or more."""


class LineRecords:
    """The records of a file, read as they are asked for.

    Args:
        source: the file
        valid: its valid records
        folder: folder that image paths are relative to

    Attributes:
        problems: what was left out so far
        notes: counts of notes so far
        table: None, as only COCO files state boxes in pixels
    """

    table: BoxTable | None = None

    def __init__(self, source: Source, valid: ValidInstances, folder: Path) -> None:
        self.source, self.folder, self._valid = source, folder, valid
        self.problems, self.notes = valid.problems, valid.notes

    def batches(self, size: int) -> Iterator[pa.RecordBatch]:
        """Yield the valid records in the order of the file, so many at a time."""
        remaining = iter(self._valid)
        while instances := list(islice(remaining, size)):
            here = found_here([instance.image for instance in instances], self.folder)
            for row, instance in enumerate(instances) if here else ():
                if (found := here.get(instance.image)) is not None:
                    instances[row] = instance.model_copy(update={"image": found.name})
                    self.notes.update(found.notes)
            yield batch_of(instances)

    @property
    def categories(self) -> tuple[Category, ...]:
        """The categories of the records that were read."""
        return categories_named(self._valid.names)

    def part(self) -> str:
        """Return `PART` or more evenly spaced records as they are in the file, as an instance file."""
        total = sum(1 for _ in records_in(self.source) or ())
        drawn = islice(records_in(self.source) or (), 0, None, max(1, total // PART))
        lines = (r.decode(errors="replace").strip() if isinstance(r, bytes) else json.dumps(r) for r, _ in drawn)
        return "".join(line + "\n" for line in lines)
