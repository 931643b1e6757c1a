"""`ClassIds`: numbers labels, first those of the training, in the order in which they are met after that."""

from __future__ import annotations

from collections.abc import Iterable


class ClassIds:
    """Gives each label a number that stays.

    Example:
        >>> ids = ClassIds(["cat", "dog"])
        >>> ids.of("dog"), ids.of("zebra"), ids.of("cat"), ids.of("zebra")
        (1, 2, 0, 2)
        >>> ids.names
        ('cat', 'dog', 'zebra')
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def of(self, label: str) -> int:
        """Return the number of a label; a new one if it has none."""
        return self._numbers.setdefault(label, len(self._numbers))

    @property
    def names(self) -> tuple[str, ...]:
        """The labels in the order of their numbers."""
        return tuple(self._numbers)
