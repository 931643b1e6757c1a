"""The table of geometries: rows by name, and how a user adds one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from coord_codec.geometry.base import Geometry
from coord_codec.geometry.kinds import BUILT_IN
from coord_codec.registry import Registry

GEOMETRIES: Registry[Geometry] = Registry("geometry", ((row.name, row) for row in BUILT_IN))
"""Geometries by name, those of `register_geometry` included."""


class KnownGeometry:
    """Validates the name of a geometry in a pydantic model, at that time: users may register their own later."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Return the schema that pydantic asks for."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._check, handler(source))

    @staticmethod
    def _check(name: str) -> str:
        if name not in GEOMETRIES:
            raise ValueError(_unknown(name))
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(GEOMETRIES)


GeometryName = Annotated[str, KnownGeometry()]
"""Name of a geometry, a key of `GEOMETRIES`; as the type of a field of a pydantic model it is validated."""


def _unknown(name: object) -> str:
    return (
        f"expected one of {', '.join(GEOMETRIES)}, found {name!r:.80}; one of your own has to be added by "
        "coord_codec.register_geometry first"
    )


def register_geometry(geometry: Geometry, *, replace: bool = False) -> Geometry:
    """Add a geometry to the table, after which every part of this project knows its name.

    Args:
        geometry: the row, an instance of a subclass of `Geometry`
        replace: whether a geometry of the same name may be replaced

    Returns:
        The geometry. A file that is run again, as a notebook or two imports do, replaces its own row.

    Raises:
        ValueError: if the name or a JSON key is taken, an attribute is missing, or the example of the geometry is not a
            valid shape

    Example:
        >>> class Segment(Geometry):
        ...     name, about = "segment", "x and y of both ends"
        ...     least = most = 4
        ...     keys = ("segment", "segment_2d")
        ...     example = (0.1, 0.2, 0.5, 0.4)
        ...     closed = False
        ...     similarity = "nearness"
        ...     def from_box(self, bbox):
        ...         return bbox
        >>> register_geometry(Segment(), replace=True).fits(4)
        True
        >>> GEOMETRIES.remove("segment")
    """
    label = f"geometry {getattr(geometry, 'name', type(geometry).__name__)}"
    required = ("name", "about", "least", "most", "keys", "example")
    if missing := [attribute for attribute in required if not hasattr(geometry, attribute)]:
        raise ValueError(f"{label}: expected the class attributes {', '.join(required)}, found no {missing[0]}")
    if not geometry.name.isidentifier():
        raise ValueError(f"{label}: name: expected letters, digits and underscores, found {geometry.name!r}")
    for other in GEOMETRIES.values():
        if other.name != geometry.name and (shared := set(other.keys) & set(geometry.keys)):
            raise ValueError(f"{label}: keys: {min(shared)!r} is a key of the geometry {other.name} already")
    if not 1 < geometry.least <= geometry.most or not geometry.fits(geometry.most):
        raise ValueError(
            f"{label}: expected 1 < least <= most, and most - least in steps of {geometry.step} (the length of "
            f"numbers), found {geometry.least} and {geometry.most}"
        )
    try:
        example = geometry.arrange(tuple(geometry.example))
        geometry.to_box(example)
        geometry.flip(example)
        if not geometry.outline(example):
            raise ValueError("outline: expected points, found none")
    except (ValueError, NotImplementedError, IndexError, TypeError) as error:
        raise ValueError(f"{label}: its example {geometry.example} is no valid shape: {error}") from error
    known = GEOMETRIES.get(geometry.name)
    again = known is not None and _origin(known) == _origin(geometry)
    return GEOMETRIES.add(geometry.name, geometry, replace=replace or again)


def _origin(geometry: Geometry) -> tuple[str, str]:
    """Return the name of a row's class and the file that defines it, which two imports of a file have in common."""
    kind = type(geometry)
    return kind.__qualname__, kind.arrange.__code__.co_filename


def geometry_of(name: str | Geometry) -> Geometry:
    """Return the geometry with this name; a `Geometry` is returned unchanged.

    Raises:
        ValueError: for an unknown name

    Example:
        >>> geometry_of("point").most
        2
    """
    if isinstance(name, Geometry):
        return name
    if not isinstance(name, str) or name not in GEOMETRIES:
        raise ValueError(f"geometry: {_unknown(name)}")
    return GEOMETRIES[name]


def geometry_table() -> str:
    """Return the table in Markdown, as the documentation shows it.

    Example:
        >>> print(geometry_table().splitlines()[2])
        | `box` | x1, y1, x2, y2: two corners | 4 | `bbox`, `bbox_2d` | `bbox` | `box_iou` |
    """
    head = ("geometry", "coordinates", "how many", "keys in JSON", "in COCO files", "similarity")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in GEOMETRIES.values():
        keys = ", ".join(f"`{key}`" for key in row.keys)
        source = (
            f"`{row.coco_field}`" if row.coco_field else row.from_box_words.removesuffix(" is").removesuffix(" are")
        )
        measure = f"`{getattr(row.similarity, 'name', row.similarity)}`"
        lines.append(f"| `{row.name}` | {row.about} | {row.counts} | {keys} | {source} | {measure} |")
    return "\n".join(lines) + "\n"
