"""Coordinate tokens for vision-language models: from annotations and boxes to target text and token positions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coord_codec.boxes import SmallBoxError
from coord_codec.files import InputError, RunError
from coord_codec.geometry import GEOMETRIES, Geometry, Shape, geometry_of, register_geometry, shape_of
from coord_codec.grid import CoordGrid

if TYPE_CHECKING:
    from coord_codec.annotate import annotate_coord_tokens
    from coord_codec.annotations import AnnotationSet, read_annotations
    from coord_codec.box_table import BoxFlag, BoxTable, to_pixels
    from coord_codec.coco.tables import Category
    from coord_codec.instance_file import InstanceFile, read_instances, write_instances
    from coord_codec.layout import ObjectLayout, Omission, Reason, SequenceLayout, find_layout
    from coord_codec.problems import Problem
    from coord_codec.records import Instance, Object
    from coord_codec.target import Form, Order, Style, coordinates_of, encode_target, order_objects, select_objects
    from coord_codec.tokens import (
        WILDCARD_TOKEN,
        coord_tokens,
        int_to_token,
        ints_to_tokens,
        is_coord_token,
        token_to_int,
        tokens_to_ints,
    )
    from coord_codec.vocab import MARKERS, CoordVocab, MarkerFamily

__all__ = [
    "GEOMETRIES",
    "MARKERS",
    "WILDCARD_TOKEN",
    "AnnotationSet",
    "BoxFlag",
    "BoxTable",
    "Category",
    "CoordGrid",
    "CoordVocab",
    "Form",
    "Geometry",
    "InputError",
    "Instance",
    "InstanceFile",
    "MarkerFamily",
    "Object",
    "ObjectLayout",
    "Omission",
    "Order",
    "Problem",
    "Reason",
    "RunError",
    "SequenceLayout",
    "Shape",
    "SmallBoxError",
    "Style",
    "annotate_coord_tokens",
    "coord_tokens",
    "coordinates_of",
    "encode_target",
    "find_layout",
    "geometry_of",
    "int_to_token",
    "ints_to_tokens",
    "is_coord_token",
    "order_objects",
    "read_annotations",
    "read_instances",
    "register_geometry",
    "select_objects",
    "shape_of",
    "to_pixels",
    "token_to_int",
    "tokens_to_ints",
    "write_instances",
]

# Who reads boxes needs no target text, and who writes one no NumPy and no pydantic: modules are imported on first use.
_MODULES = {
    "annotate": ("annotate_coord_tokens",),
    "annotations": ("AnnotationSet", "read_annotations"),
    "box_table": ("BoxFlag", "BoxTable", "to_pixels"),
    "coco.tables": ("Category",),
    "instance_file": ("InstanceFile", "read_instances", "write_instances"),
    "layout": ("ObjectLayout", "Omission", "Reason", "SequenceLayout", "find_layout"),
    "problems": ("Problem",),
    "records": ("Instance", "Object"),
    "target": ("Form", "Order", "Style", "coordinates_of", "encode_target", "order_objects", "select_objects"),
    "tokens": (
        *("WILDCARD_TOKEN", "coord_tokens", "int_to_token", "ints_to_tokens", "is_coord_token", "token_to_int"),
        "tokens_to_ints",
    ),
    "vocab": ("MARKERS", "CoordVocab", "MarkerFamily"),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
