"""The text a model learns to answer with.

One object, `cat` with bins 12, 34, 56, 78, reads

    markers, obj, tokens:   <obj_start>cat<|coord_12|><|coord_34|><|coord_56|><|coord_78|><obj_end>
    markers, obj, numbers:  <obj_start>cat(12,34),(56,78)<obj_end>
    markers, qwen, tokens:  <|object_ref_start|>cat<|object_ref_end|><|box_start|><|coord_12|>...<|box_end|>
    markers, qwen, numbers: <|object_ref_start|>cat<|object_ref_end|><|box_start|>(12,34),(56,78)<|box_end|>
    json, tokens:           [{"desc": "cat", "bbox": [<|coord_12|>, ..., <|coord_78|>]}]
    json, numbers:          [{"bbox_2d": [12, 34, 56, 78], "label": "cat"}]

An object of another geometry than the box has as many coordinates as `coord_codec.geometry` says, x and y in turn: a
point writes (12,34), a polygon (12,34),(56,34),(56,78); in JSON under the keys of its geometry.

Objects follow each other without anything between them, or with `, ` in JSON. An image without objects is the
empty text, or `[]`. The qwen and JSON number forms are those of the Qwen-VL models.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from coord_codec.geometry.base import Coordinates, Geometry
from coord_codec.geometry.registry import geometry_of
from coord_codec.geometry.shape import shape_of
from coord_codec.grid import CoordGrid
from coord_codec.tokens import ints_to_tokens
from coord_codec.vocab import MarkerFamily, marker_family

if TYPE_CHECKING:
    from coord_codec.records import Instance, Object

Order = Literal["top_left", "given", "random", "size"]
"""How objects follow one another in the target: by (y1, x1), as they come, shuffled by a seed, largest first."""
Style = Literal["markers", "json"]
"""Marker tokens around each object, or JSON text."""
Form = Literal["tokens", "numbers"]
"""Coordinates as tokens, or as plain numbers 0..999."""
_DEFAULT_GRID = CoordGrid()


class _HasBox(Protocol):
    @property
    def bbox(self) -> tuple[float, float, float, float]: ...


_T = TypeVar("_T", bound=_HasBox)


def order_objects(objects: Iterable[_T], order: Order = "top_left", seed: int | str = 0) -> list[_T]:
    """Return the objects in a new list, in the given order.

    Args:
        objects: anything with a `.bbox` (x1, y1, x2, y2).
        order: "top_left": by (y1, x1), as one reads; "size": largest area first; "given": as they come;
            "random": a shuffle that depends on `seed` and the number of objects alone. Ties keep the order
            given.
        seed: for "random"; use another one per image (and per epoch) to have them differ.

    Raises:
        ValueError: for an unknown order.

    Example:
        >>> from coord_codec import Object
        >>> low, high = Object(desc="low", bbox=[0, 0.5, 1, 1]), Object(desc="high", bbox=[0.5, 0, 1, 0.5])
        >>> [o.desc for o in order_objects([low, high])]
        ['high', 'low']
    """
    ordered = list(objects)
    if order == "top_left":
        ordered.sort(key=lambda o: (o.bbox[1], o.bbox[0]))
    elif order == "size":
        ordered.sort(key=lambda o: -(o.bbox[2] - o.bbox[0]) * (o.bbox[3] - o.bbox[1]))
    elif order == "random":
        random.Random(seed).shuffle(ordered)
    elif order != "given":
        raise ValueError(f"order: expected 'top_left', 'size', 'given' or 'random', found {order!r}")
    return ordered


def select_objects(
    instance: Instance, order: Order = "top_left", max_objects: int | None = None, seed: int | str = 0
) -> tuple[list[Object], int]:
    """Return the objects that are written, in order, and how many the limit leaves out; crowd regions are none.

    Args:
        instance: the image's record.
        order: see `order_objects`.
        max_objects: keep the first so many of that order; None keeps all.
        seed: see `order_objects`.

    Raises:
        ValueError: for an unknown order or a limit below 1.

    Example:
        >>> from coord_codec import Instance
        >>> boxes = [{"desc": "low", "bbox": [0, 0.5, 1, 1]}, {"desc": "high", "bbox": [0.5, 0, 1, 0.5]}]
        >>> kept, left_out = select_objects(Instance(image="a.jpg", objects=boxes), max_objects=1)
        >>> kept[0].desc, left_out
        ('high', 1)
    """
    if max_objects is not None and max_objects < 1:
        raise ValueError(f"max_objects: expected None or at least 1, found {max_objects!r}")
    ordered = order_objects(instance.targets, order, seed)
    kept = ordered[:max_objects]
    return kept, len(ordered) - len(kept)


def encode_target(
    instance: Instance,
    *,
    markers: str | MarkerFamily = "qwen",
    style: Style = "markers",
    form: Form = "tokens",
    order: Order = "top_left",
    max_objects: int | None = None,
    seed: int | str = 0,
    grid: CoordGrid = _DEFAULT_GRID,
    geometry: str | Geometry = "box",
) -> str:
    """Return the target text of an image; the module's docstring shows every kind.

    Args:
        instance: the image's record.
        markers: the marker family; without effect in style "json".
        style: "markers", or "json" for JSON text.
        form: "tokens" for coordinate tokens, "numbers" for bins as plain text.
        order: see `order_objects`.
        max_objects: write the first so many; `select_objects` tells how many that leaves out.
        seed: see `order_objects`.
        grid: the grid the boxes are quantised on.
        geometry: what is written of each object: a name of `GEOMETRIES`, or a geometry with options of its own.

    Raises:
        InputError: an object has no such geometry, or one that is too small for the grid.
        ValueError: for an unknown option, or a description that holds a marker of a family of your own (those of
            the known families no `Object` can hold): the layout of such a text would be another one.

    Example:
        >>> from coord_codec import Instance
        >>> instance = Instance(image="a.jpg", objects=[{"desc": "cat", "bbox": [0.1, 0.25, 0.5, 0.75]}])
        >>> encode_target(instance, markers="obj")
        '<obj_start>cat<|coord_100|><|coord_250|><|coord_500|><|coord_750|><obj_end>'
        >>> encode_target(instance, style="json", form="numbers")
        '[{"bbox_2d": [100, 250, 500, 750], "label": "cat"}]'
    """
    if style not in ("markers", "json"):
        raise ValueError(f"style: expected 'markers' or 'json', found {style!r}")
    if form not in ("tokens", "numbers"):
        raise ValueError(f"form: expected 'tokens' or 'numbers', found {form!r}")
    family, kind = marker_family(markers), geometry_of(geometry)
    objects, _ = select_objects(instance, order, max_objects, seed)
    if style == "json":
        return "[" + ", ".join(_json_object(o, kind, form, grid) for o in objects) + "]"
    for obj in objects:
        if token := next((token for token in family.tokens if token in obj.desc), None):
            raise ValueError(
                f"expected a description without the markers of {family.name!r}, found {token} in {obj.desc!r}: "
                "take it out, or choose other markers"
            )
    return "".join(_marked_object(o, kind, family, form, grid) for o in objects)


def coordinates_of(obj: Object, geometry: str | Geometry = "box", grid: CoordGrid = _DEFAULT_GRID) -> Coordinates:
    """Return the true coordinates of an object whose bins its target holds, in the order of the text.

    Args:
        obj: the object.
        geometry: as for `encode_target`.
        grid: the grid the coordinates are quantised on.

    Raises:
        InputError: the object has no such geometry, or one that is too small for the grid.

    Example:
        >>> from coord_codec import Object
        >>> coordinates_of(Object(desc="cat", bbox=(0.1, 0.2, 0.3, 0.6)), "point")
        (0.2, 0.4)
    """
    kind = geometry_of(geometry)
    return kind.written(shape_of(obj, kind).coordinates, grid)


def _marked_object(obj: Object, kind: Geometry, family: MarkerFamily, form: Form, grid: CoordGrid) -> str:
    bins = [grid.quantize(c) for c in coordinates_of(obj, kind, grid)]
    points = zip(bins[::2], bins[1::2], strict=True)
    box = "".join(ints_to_tokens(bins, grid)) if form == "tokens" else ",".join(f"({x},{y})" for x, y in points)
    if len(family.tokens) == 2:
        start, end = family.tokens
        return f"{start}{obj.desc}{box}{end}"
    ref_start, ref_end, box_start, box_end = family.tokens
    return f"{ref_start}{obj.desc}{ref_end}{box_start}{box}{box_end}"


def _json_object(obj: Object, kind: Geometry, form: Form, grid: CoordGrid) -> str:
    bins = [grid.quantize(c) for c in coordinates_of(obj, kind, grid)]
    desc = json.dumps(obj.desc, ensure_ascii=False)
    token_key, number_key = kind.keys
    if form == "tokens":
        return f'{{"desc": {desc}, "{token_key}": [{", ".join(ints_to_tokens(bins, grid))}]}}'
    return f'{{"{number_key}": {bins}, "label": {desc}}}'
