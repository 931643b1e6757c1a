"""The labels of an image as answers have them, and where names and coordinates stand in that text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coord_codec import Instance, Object, encode_target, order_objects
from coord_codec.vocab import marker_family
from coord_detect.settings.sections import Asking

Span = tuple[int, int]
"""First character of a part of the text, and the one after its last."""
_TOKEN = re.compile(r"<\|coord_\d+\|>")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class LabelSpans:
    """Where a label of a record stands in the text: its description, and each of its coordinates."""

    index: int
    name: Span
    coordinates: tuple[Span, ...]


@dataclass(frozen=True)
class LabelText:
    """An answer made of labels, which it has in their order."""

    text: str
    labels: tuple[LabelSpans, ...]


def write_labels(instance: Instance, indices: Sequence[int], data: Asking, coord_tokens: bool) -> LabelText:
    """Return the answer that consists of the labels of a record at `indices`, in the given order.

    Raises:
        InputError: a label has no such geometry

    Example:
        >>> box = {"desc": "cat", "bbox": [0.1, 0.25, 0.5, 0.75]}
        >>> written = write_labels(Instance(image="a.jpg", objects=[box]), [0], Asking(markers="obj"), True)
        >>> start, end = written.labels[0].name
        >>> written.text[start:end], len(written.labels[0].coordinates)
        ('cat', 4)
    """
    is_json = data.style == "json"
    text, labels = "[" if is_json else "", list[LabelSpans]()
    for index in indices:
        text += ", " if is_json and labels else ""
        piece = _piece(instance, instance.objects[index], data, coord_tokens)
        name, coordinates = _parts(piece, instance.objects[index].desc, data, coord_tokens)
        moved = tuple((start + len(text), end + len(text)) for start, end in coordinates)
        labels.append(LabelSpans(index, (name[0] + len(text), name[1] + len(text)), moved))
        text += piece
    return LabelText(text + ("]" if is_json else ""), tuple(labels))


def label_order(instance: Instance, data: Asking) -> tuple[list[int], int]:
    """Return the places of a record's labels in the order of an answer, and the number beyond `data.max_objects`.

    Crowd regions are no labels. Where training draws the order at random, it is that of the record.
    """
    places = {id(o): place for place, o in enumerate(instance.objects)}
    ordered = order_objects(instance.targets, "given" if data.order == "random" else data.order)
    indices = [places[id(o)] for o in ordered]
    return indices[: data.max_objects], max(len(indices) - data.max_objects, 0)


def _piece(instance: Instance, obj: Object, data: Asking, coord_tokens: bool) -> str:
    form: Any = "tokens" if coord_tokens else "numbers"
    alone = instance.model_copy(update={"objects": (obj,)})
    text = encode_target(alone, markers=data.markers, style=data.style, form=form, geometry=data.shape)
    return text[1:-1] if data.style == "json" else text


def _parts(piece: str, desc: str, data: Asking, coord_tokens: bool) -> tuple[Span, list[Span]]:
    """Return where the name and the coordinates stand in the text of one object."""
    if data.style != "json":
        start = len(marker_family(data.markers).tokens[0])
        name, rest = (start, start + len(desc)), (start + len(desc), len(piece))
    else:
        quoted = json.dumps(desc, ensure_ascii=False)
        start = len('{"desc": ') if coord_tokens else len(piece) - 1 - len(quoted)
        name = (start + 1, start + len(quoted) - 1)
        rest = (name[1], len(piece)) if coord_tokens else (piece.index("["), start)
    found = (_TOKEN if coord_tokens else _NUMBER).finditer(piece, *rest)
    return name, [match.span() for match in found]
