"""The order in which an image's objects are written."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Literal, Protocol, TypeVar

Order = Literal["top_left", "given", "random", "size"]
"""How objects follow one another in the target: by (y1, x1), as they come, shuffled by a seed, largest first."""


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
