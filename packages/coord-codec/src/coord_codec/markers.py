"""Marker families: the tokens that open and close an object in the target text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from coord_codec.tokenizer_ids import single_token_ids


@dataclass(frozen=True)
class MarkerFamily:
    """The tokens around an object's description and coordinates.

    Attributes:
        name: the key in `MARKERS`.
        tokens: (start, end), written around description and coordinates together, or
            (description start, description end, box start, box end).
    """

    name: str
    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) not in (2, 4) or len(set(self.tokens)) != len(self.tokens):
            raise ValueError(
                f"marker family {self.name!r}: expected 2 or 4 different tokens, found {self.tokens!r}"
            )

    def ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Return the ids of the tokens, in order: what `find_layout` takes.

        Raises:
            ValueError: if the tokenizer lacks a marker or splits it into several tokens.
        """
        advice = (
            f"the marker family {self.name!r} needs them: add them with tokenizer.add_tokens(list(MARKERS"
            f"[{self.name!r}].tokens)) and train their rows, or choose a family the tokenizer knows"
        )
        return tuple(single_token_ids(tokenizer, self.tokens, what="marker", advice=advice))


MARKERS: Mapping[str, MarkerFamily] = MappingProxyType(
    {
        "obj": MarkerFamily("obj", ("<obj_start>", "<obj_end>")),
        "qwen": MarkerFamily(
            "qwen", ("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>")
        ),
    }
)
"""Families by name: `obj` is a pair of our own, which a vocabulary must be extended by; `qwen` is the four tokens
that pretrained Qwen checkpoints know already."""

# Anything spelled like a control token, known or not: a tokenizer reads it as one wherever it stands.
_CONTROL = re.compile(
    r"<\|[^\s<>|]+\|>|" + "|".join(re.escape(token) for family in MARKERS.values() for token in family.tokens)
)


def marker_family(markers: str | MarkerFamily) -> MarkerFamily:
    """Return the family of that name; a `MarkerFamily` passes through.

    Raises:
        ValueError: for an unknown name.
    """
    if isinstance(markers, MarkerFamily):
        return markers
    if markers not in MARKERS:
        raise ValueError(f"markers: expected one of {sorted(MARKERS)} or a MarkerFamily, found {markers!r}")
    return MARKERS[markers]


def find_control_token(text: str) -> str | None:
    """Return the first marker, coordinate token or other `<|...|>` token spelled in `text`, or None."""
    match = _CONTROL.search(text)
    return match[0] if match else None
