"""Encodes the objects of an image as the target text that a model learns to generate.

The text of one object, `cat` with bins 12, 34, 56, 78, is

    markers, obj, tokens:   <obj_start>cat<|coord_12|><|coord_34|><|coord_56|><|coord_78|><obj_end>
    markers, obj, numbers:  <obj_start>cat(12,34),(56,78)<obj_end>
    markers, qwen, tokens:  <|object_ref_start|>cat<|object_ref_end|><|box_start|><|coord_12|>...<|box_end|>
    markers, qwen, numbers: <|object_ref_start|>cat<|object_ref_end|><|box_start|>(12,34),(56,78)<|box_end|>
    json, tokens:           [{"desc": "cat", "bbox": [<|coord_12|>, ..., <|coord_78|>]}]
    json, numbers:          [{"bbox_2d": [12, 34, 56, 78], "label": "cat"}]

Other geometries than the box have their own number of coordinates (`coord_codec.geometry`): a point is (12,34), a
polygon (12,34),(56,34),(56,78), and the numbers of a geometry that does not consist of points are in one bracket. JSON
uses the keys of the geometry.

Objects are not separated, or by `, ` in JSON. The text of an image without objects is empty, or `[]`. The forms
"qwen, numbers" and "json, numbers" are those of the Qwen-VL models.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from coord_codec.arguments import expect
from coord_codec.files import InputError
from coord_codec.geometry import Coordinates, Geometry, geometry_of
from coord_codec.geometry.shape import coordinates_in
from coord_codec.grid import CoordGrid
from coord_codec.tokens import coord_tokens
from coord_codec.vocab import MarkerFamily, marker_family

if TYPE_CHECKING:
    from coord_codec.records import Instance, Object

Order = Literal["top_left", "given", "random", "size"]
"""Order of the objects in the target: by (y1, x1), as in the record, shuffled with a seed, or largest first."""
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
    """Return the objects in a new list, sorted as requested.

    Args:
        objects: anything with a `.bbox` (x1, y1, x2, y2)
        order: "top_left": by (y1, x1); "size": largest area first; "given": unchanged; "random": a shuffle that
            depends only on `seed` and the number of objects. Ties keep their original order
        seed: seed for "random"; use a different one for each image (and epoch) to get different shuffles

    Raises:
        ValueError: for an unknown order

    Example:
        >>> from coord_codec import Object
        >>> low, high = Object(desc="low", bbox=[0, 0.5, 1, 1]), Object(desc="high", bbox=[0.5, 0, 1, 0.5])
        >>> [o.desc for o in order_objects([low, high])]
        ['high', 'low']
    """
    expect("objects", objects, Iterable)
    ordered = list(objects)
    for obj in ordered:
        _expect("objects", obj, "bbox", "Object")
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
    """Return the objects of the target text in order, without crowd regions, and how many the limit leaves out.

    Args:
        instance: the image's record
        order: see `order_objects`
        max_objects: maximum number of objects, of which the first are kept; None keeps all
        seed: see `order_objects`

    Raises:
        ValueError: for an unknown order or a limit below 1

    Example:
        >>> from coord_codec import Instance
        >>> boxes = [{"desc": "low", "bbox": [0, 0.5, 1, 1]}, {"desc": "high", "bbox": [0.5, 0, 1, 0.5]}]
        >>> kept, left_out = select_objects(Instance(image="a.jpg", objects=boxes), max_objects=1)
        >>> kept[0].desc, left_out
        ('high', 1)
    """
    _expect("instance", instance, "targets", "Instance")
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
    """Return the target text of an image; the module's docstring shows every format.

    Args:
        instance: the image's record
        markers: the marker family; has no effect in style "json"
        style: "markers", or "json" for JSON text
        form: "tokens" for coordinate tokens, "numbers" for bins as plain text
        order: see `order_objects`
        max_objects: maximum number of objects; `select_objects` returns how many that leaves out
        seed: see `order_objects`
        grid: the grid on which coordinates are quantised
        geometry: the shape to write for each object: a name of `GEOMETRIES`, or a geometry with its own options

    Raises:
        InputError: if an object has no such geometry, or its shape is too small for the grid
        ValueError: for an unknown option, or a description that contains a marker of a custom family, which would
            make the text ambiguous (`Object` already refuses markers of the families in `MARKERS`)

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
                "remove it, or choose other markers"
            )
    return "".join(_marked_object(o, kind, family, form, grid) for o in objects)


def coordinates_of(obj: Object, geometry: str | Geometry = "box", grid: CoordGrid = _DEFAULT_GRID) -> Coordinates:
    """Return the ground-truth coordinates of an object before quantisation, in the order of its target text.

    Args:
        obj: the object
        geometry: see `encode_target`
        grid: the grid on which the coordinates are quantised

    Raises:
        InputError: if the object has no such geometry, or its shape is too small for the grid

    Example:
        >>> from coord_codec import Object
        >>> coordinates_of(Object(desc="cat", bbox=(0.1, 0.2, 0.3, 0.6)), "point")
        (0.2, 0.4)
    """
    _expect("obj", obj, "bbox", "Object")
    kind = geometry_of(geometry)
    return kind.written(coordinates_in(obj, kind), grid)


def _expect(name: str, value: object, attribute: str, kind: str) -> None:
    """Raise an error for a value without the attribute; records are not imported here, so that this stays light."""
    if not hasattr(value, attribute):
        raise InputError(f"{name}: expected {kind}, found {type(value).__name__} ({value!r:.60})")


@lru_cache(maxsize=8)
def _tokens(grid: CoordGrid) -> list[str]:
    """Return the token of each bin of a grid."""
    return coord_tokens(grid)


def _marked_object(obj: Object, kind: Geometry, family: MarkerFamily, form: Form, grid: CoordGrid) -> str:
    bins = kind.to_bins(coordinates_in(obj, kind), grid)
    if form == "tokens":
        tokens = _tokens(grid)
        box = "".join([tokens[k] for k in bins])
    else:  # the numbers of each point, or of the whole shape, are in one bracket
        groups = (bins[start : start + kind.step] for start in range(0, len(bins), kind.step))
        box = ",".join(f"({','.join(map(str, group))})" for group in groups)
    start, *inner, end = family.tokens
    return f"{start}{obj.desc}{''.join(inner)}{box}{end}"


def _json_object(obj: Object, kind: Geometry, form: Form, grid: CoordGrid) -> str:
    bins = kind.to_bins(coordinates_in(obj, kind), grid)
    desc = json.dumps(obj.desc, ensure_ascii=False)
    token_key, number_key = kind.keys
    if form == "tokens":
        return f'{{"desc": {desc}, "{token_key}": [{", ".join([_tokens(grid)[k] for k in bins])}]}}'
    return f'{{"{number_key}": {bins}, "label": {desc}}}'
