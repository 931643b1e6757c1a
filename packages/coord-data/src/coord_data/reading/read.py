"""Reads annotations of any format: the source is recognised, and the row of its format reads it by the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coord_codec import InputError
from coord_codec.geometry import geometry_of
from coord_codec.problems import raise_for_refused
from coord_data.formats.annotation_format import Evidence
from coord_data.formats.registry import FORMATS, open_source
from coord_data.reading.rules import ReadingRules
from coord_data.sources.source import Source


def read_source(path: Path | Source, images: Path | None = None, format: str = "auto", **rules: Any) -> Evidence:
    """Read annotations of any format by some of the `ReadingRules`, and the defaults of the others; see `read_by`."""
    return read_by(path, ReadingRules(images=images, format=format, **rules))


def read_by(path: Path | Source, rules: ReadingRules) -> Evidence:
    """Read annotations of any format by all rules but those about images: `allow_outside`, `classes` and `strict`.

    Raises:
        InputError: the source cannot be read, or (`on_bad_box` is `error`) an object is refused.
    """
    if rules.images is not None and not rules.images.is_dir():
        raise InputError(f"images: expected a folder of images, found nothing of that kind at {rules.images}")
    if rules.read_as is not None and not geometry_of(rules.geometry).is_box:
        raise InputError(f"read_as {rules.read_as}: it applies to boxes, found geometry {rules.geometry}; read boxes")
    source = open_source(path, rules.format, rules.fields)
    found = FORMATS[source.format].evidence(source, rules)
    if rules.on_bad_box == "error":
        raise_for_refused(found.annotations.problems)
    return found
