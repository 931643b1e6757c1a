"""Coordinate tokens for vision-language models: from boxes to target text and token positions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coord_codec.annotate import annotate_coord_tokens
from coord_codec.grid import CoordGrid
from coord_codec.layout import SequenceLayout, find_layout
from coord_codec.layout_types import ObjectLayout, Omission, Reason
from coord_codec.markers import MARKERS, MarkerFamily
from coord_codec.order import Order, order_objects
from coord_codec.target import Form, Style, encode_target, select_objects
from coord_codec.tokens import (
    WILDCARD_TOKEN,
    coord_tokens,
    int_to_token,
    ints_to_tokens,
    is_coord_token,
    token_to_int,
    tokens_to_ints,
)
from coord_codec.vocab import CoordVocab

if TYPE_CHECKING:
    from coord_codec.instance_file import InstanceFile, Problem, read_instances, write_instances
    from coord_codec.instances import Instance, Object

__all__ = [
    "MARKERS",
    "WILDCARD_TOKEN",
    "CoordGrid",
    "CoordVocab",
    "Form",
    "Instance",
    "InstanceFile",
    "MarkerFamily",
    "Object",
    "ObjectLayout",
    "Omission",
    "Order",
    "Problem",
    "Reason",
    "SequenceLayout",
    "Style",
    "annotate_coord_tokens",
    "coord_tokens",
    "encode_target",
    "find_layout",
    "int_to_token",
    "ints_to_tokens",
    "is_coord_token",
    "order_objects",
    "read_instances",
    "select_objects",
    "token_to_int",
    "tokens_to_ints",
    "write_instances",
]

# The records need pydantic, whose import alone takes longer than everything else here together: it is put off
# until one of them is asked for.
_WITH_PYDANTIC = {
    "Instance": "instances",
    "InstanceFile": "instance_file",
    "Object": "instances",
    "Problem": "instance_file",
    "read_instances": "instance_file",
    "write_instances": "instance_file",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_PYDANTIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_WITH_PYDANTIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
