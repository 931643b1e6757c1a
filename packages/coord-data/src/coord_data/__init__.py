"""Read object annotations of any format, check them against the pixels, and prepare them for training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coord_data.api import inspect, load, prepare
    from coord_data.finding import Finding
    from coord_data.finding_codes import FINDING_CODES, FindingCode
    from coord_data.formats.annotation_format import AnnotationFormat, Evidence, Example
    from coord_data.formats.registry import format_table, open_source, register_reader
    from coord_data.inspection.examine import Examination, examine
    from coord_data.inspection.rules import InspectionRules
    from coord_data.looking.look import look_at
    from coord_data.looking.looks import ImageFile
    from coord_data.preparing.merging import merge_prepared
    from coord_data.reading.image_set import ImageSet, gather_evidence, load_annotated
    from coord_data.reading.rules import ReadingRules
    from coord_data.sources.raw import RawImage, RawObject, Reading
    from coord_data.sources.source import Source

# Modules are imported on first use, so that a command line shows its help and refuses a typing error at once.
_MODULES = {
    "coord_data.sources.raw": ("RawImage", "RawObject", "Reading"),
    "coord_data.formats.registry": ("format_table", "open_source", "register_reader"),
    "coord_data.formats.annotation_format": ("AnnotationFormat", "Evidence", "Example"),
    "coord_data.looking.look": ("look_at",),
    "coord_data.looking.looks": ("ImageFile",),
    "coord_data.reading.image_set": ("ImageSet", "gather_evidence", "load_annotated"),
    "coord_data.inspection.examine": ("Examination", "examine"),
    "coord_data.finding": ("Finding",),
    "coord_data.finding_codes": ("FINDING_CODES", "FindingCode"),
    "coord_data.inspection.rules": ("InspectionRules",),
    "coord_data.api": ("inspect", "load", "prepare"),
    "coord_data.preparing.merging": ("merge_prepared",),
    "coord_data.reading.rules": ("ReadingRules",),
    "coord_data.sources.source": ("Source",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "FINDING_CODES",
    "AnnotationFormat",
    "Evidence",
    "Examination",
    "Example",
    "Finding",
    "FindingCode",
    "ImageFile",
    "ImageSet",
    "InspectionRules",
    "RawImage",
    "RawObject",
    "Reading",
    "ReadingRules",
    "Source",
    "examine",
    "format_table",
    "gather_evidence",
    "inspect",
    "load",
    "load_annotated",
    "look_at",
    "merge_prepared",
    "open_source",
    "prepare",
    "register_reader",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from coord_codec.other_words import missing_name

        raise missing_name(__name__, name, __all__)
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
