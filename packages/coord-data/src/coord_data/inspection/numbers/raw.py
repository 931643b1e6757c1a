"""A data set that `inspect` was asked to examine, before it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coord_data.rules import Format, ReadingRules
from coord_data.source import Source


@dataclass(frozen=True)
class DataSource:
    """Annotations of any supported format, their image folder, and whether images may lie outside of it."""

    annotations: Path | Source
    images: Path | None = None
    format: Format = "auto"
    allow_outside: bool = False

    @property
    def rules(self) -> ReadingRules:
        """How the annotations are read: a refused object does not affect its image."""
        return ReadingRules(
            images=self.images, format=self.format, allow_outside=self.allow_outside, on_bad_box="drop_box"
        )
