"""Reads instance JSONL, or a JSON list of instance records, as a stream."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from coord_codec import BoxTable, Category, Problem
from coord_codec.annotations import records_in, valid_instances
from coord_codec.coco.tables import categories_named
from coord_codec.geometry import geometry_of
from coord_data.looking.image_paths import found_here
from coord_data.records import batch_of
from coord_data.sources.object_rules import ObjectRules
from coord_data.sources.source import Source

PART = 128
"""Number of images that are examined before training; faults of all boxes can be detected with 30 or more."""


class LineRecords:
    """The records of a file, read as they are asked for.

    Args:
        source: the file
        records: each record of the file and its place
        rules: how it is read
        folder: folder that image paths are relative to

    Attributes:
        problems: what was left out so far
        notes: counts of notes so far
        table: None, as only COCO files state boxes in pixels
    """

    table: BoxTable | None = None

    def __init__(self, source: Source, records: Iterator[tuple[Any, str]], rules: ObjectRules, folder: Path) -> None:
        self.source, self.folder, self.problems, self.notes = source, folder, list[Problem](), Counter[str]()
        self._names: set[str] = set()
        kind = geometry_of(rules.geometry)
        shared = self.problems, self.notes, self._names
        self._instances = valid_instances(records, rules.on_bad_box, None if kind.is_box else kind, folder, *shared)

    def batches(self, size: int) -> Iterator[pa.RecordBatch]:
        """Yield the valid records in the order of the file, so many at a time."""
        while instances := list(islice(self._instances, size)):
            here = found_here([instance.image for instance in instances], self.folder)
            for row, instance in enumerate(instances) if here else ():
                if (found := here.get(instance.image)) is not None:
                    instances[row] = instance.model_copy(update={"image": found.name})
                    self.notes.update(found.notes)
            yield batch_of(instances)

    @property
    def categories(self) -> tuple[Category, ...]:
        """The categories of the records that were read."""
        return categories_named(self._names)

    def part(self) -> str:
        """Return `PART` or more evenly spaced records as they are in the file, as an instance file."""
        total = sum(1 for _ in records_in(self.source) or ())
        drawn = islice(records_in(self.source) or (), 0, None, max(1, total // PART))
        lines = (r.decode(errors="replace").strip() if isinstance(r, bytes) else json.dumps(r) for r, _ in drawn)
        return "".join(line + "\n" for line in lines)
