"""The views, which `register_view` extends."""

from __future__ import annotations

from collections.abc import Sequence

from coord_codec import InputError, geometry_of
from coord_codec.registry import Registry
from coord_detect.views.classes import Classes
from coord_detect.views.mirror import Mirror
from coord_detect.views.scale import Scale
from coord_detect.views.tiles import Tiles
from coord_detect.views.view import Question, View

VIEWS: Registry[type[View]] = Registry("view", ((row.name, row) for row in (Mirror, Scale, Tiles, Classes)))
"""The views by their names."""


def register_view(view: type[View]) -> None:
    """Add a view of your own; a file that is named in `plugins` may call this.

    Args:
        view: the class; registering the same class again changes nothing

    Raises:
        ValueError: another view has its name, or its example is not one of its words

    Example:
        >>> class Upside(Mirror):
        ...     name = example = "upside"
        ...     about = "the image upside down"
        ...
        ...     def looks(self, width, height, question):
        ...         return [Look(turns=2)]
        >>> from coord_detect.views.view import Look
        >>> register_view(Upside)
        >>> views_of(["upside"])[0].looks(8, 8, Question("?"))[0].turns
        2
        >>> VIEWS.remove("upside")
    """
    if ":" in view.name:
        raise ValueError(f"view {view.name!r}: expected a name without a colon")
    view.parse(view.example.partition(":")[2] or None)
    VIEWS.add(view.name, view)


def views_of(words: Sequence[str]) -> tuple[View, ...]:
    """Return the views that words name; a `ValueError` for a word that names none, or the same again."""
    found: list[View] = []
    for word in words:
        name, colon, argument = str(word).partition(":")
        if name not in VIEWS:
            known = ", ".join(row.example for row in VIEWS.values())
            raise ValueError(f"evaluation.views: expected views such as {known}, found {word!r}")
        try:
            found.append(VIEWS[name].parse(argument if colon else None))
        except ValueError as error:
            raise ValueError(f"evaluation.views: {word}: {error}") from None
    if len(set(found)) != len(found) or len(set(words)) != len(words):
        raise ValueError(f"evaluation.views: expected each view once, found {', '.join(map(str, words))}")
    return tuple(found)


def check_views(words: Sequence[str], question: Question) -> None:
    """Raise `InputError` with the reason if a view does not suit a question."""
    if words and not geometry_of(question.geometry).is_box:
        raise InputError(
            f"evaluation.views: only boxes are fused, and the geometry is {question.geometry}; leave the views out"
        )
    for word, view in zip(words, views_of(words), strict=True):
        if (reason := view.objection(question)) is not None:
            raise InputError(f"evaluation.views: {word}: {reason}; leave {word} out")
