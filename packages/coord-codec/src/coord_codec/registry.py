"""A table of rows by name that users may extend: geometries, formats, loss terms, metrics, rewards, views, families."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from coord_codec.files import InputError

Row = TypeVar("Row")


class Registry(dict[str, Row]):
    """Rows by name, in the order in which they are shown and tried: a dictionary that rows are added to by name.

    Args:
        noun: what a row is, in messages
        built_in: the rows that always stay, with their names

    Example:
        >>> shapes = Registry("shape", [("box", 4)])
        >>> shapes.add("point", 2)
        2
        >>> list(shapes), shapes["point"]
        (['box', 'point'], 2)
        >>> shapes.remove("point")
        >>> shapes.remove("box")
        Traceback (most recent call last):
        coord_codec.files.InputError: shape 'box': expected a registered one, found a built-in one
    """

    def __init__(self, noun: str, built_in: Iterable[tuple[str, Row]] = ()) -> None:
        super().__init__(built_in)
        self.noun = noun
        self.seal()

    def seal(self) -> None:
        """Take the rows that are there now as the built-in ones."""
        self._built_in = frozenset(self)

    def add(self, name: str, row: Row, *, replace: bool = False, first: bool = False) -> Row:
        """Add a row, which with `first` is tried first, and return it; adding an equal one again changes nothing.

        Raises:
            InputError: there is another row of this name, and `replace` is not set.
        """
        if not replace and name in self and self[name] != row:
            raise InputError(f"{self.noun} {name!r}: there is one of this name already; choose another name")
        others = dict(self) if first else {}
        if first:
            self.clear()
        self[name] = row
        self.update((other, kept) for other, kept in others.items() if other != name)
        return row

    def remove(self, name: str) -> None:
        """Remove a row that was added.

        Raises:
            InputError: there is none of this name, or it is built in.
        """
        if name not in self or name in self._built_in:
            found = "a built-in" if name in self else "no"
            raise InputError(f"{self.noun} {name!r}: expected a registered one, found {found} one")
        del self[name]

    @property
    def added(self) -> frozenset[str]:
        """Names of the rows that are not built in."""
        return frozenset(self) - self._built_in
