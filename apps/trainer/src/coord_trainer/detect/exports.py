"""Exports predictions as pre-annotations for labelling tools, and moves aside what a user has changed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from coord_eval.labelling import EXPORTS, Records, coco_annotations
from coord_trainer.detect.written import tracked_names, write_tracked


def write_export(name: str, records: Records, folder: Path, categories: Mapping[str, int] | None = None) -> Path:
    """Write records in the format of a labelling tool; returns the file or folder.

    Args:
        name: one of `EXPORTS`
        records: records of predictions.jsonl; those without `objects` are left out
        folder: the output folder; an earlier export that a user has changed is moved aside
        categories: category ids by label for the COCO export
    """
    answered = [record for record in records if "objects" in record]
    make = partial(coco_annotations, categories=categories) if name == "coco" else EXPORTS[name]
    return write_tracked(folder, lambda part: make(answered, part))


def exports_in(folder: Path) -> list[str]:
    """Return the formats that an earlier call has exported into a folder."""
    return [name for name in EXPORTS if {name, f"{name}.json", f"{name}.xml"} & set(tracked_names(folder))]
