"""Known descriptions as token sequences, and what may follow the beginning of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class DescriptionTrie:
    """Which tokens continue a description towards a known one.

    Args:
        descriptions: token ids of each known description.

    Raises:
        ValueError: none is known, or one is empty.
    """

    def __init__(self, descriptions: Iterable[Sequence[int]]) -> None:
        known = {tuple(ids) for ids in descriptions}
        if not known or () in known:
            raise ValueError("descriptions: expected at least one, none of them empty")
        self.longest = max(map(len, known))
        self._left: dict[tuple[int, ...], int] = {}
        self._next: dict[tuple[int, ...], list[int]] = {}
        for ids in sorted(known):
            for cut in range(len(ids) + 1):
                beginning = ids[:cut]
                self._left[beginning] = min(self._left.get(beginning, len(ids)), len(ids) - cut)
                following = self._next.setdefault(beginning, [])
                if cut < len(ids) and ids[cut] not in following:
                    following.append(ids[cut])

    def following(self, beginning: tuple[int, ...]) -> list[int]:
        """Tokens after which it is still the beginning of a known description."""
        return self._next.get(beginning, [])

    def left(self, beginning: tuple[int, ...]) -> int:
        """Fewest tokens until it is a known description; 0 where it is one, or can never become one."""
        return self._left.get(beginning, 0)
