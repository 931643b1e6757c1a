"""Rows of a JSON list that hold numbers alone, such as boxes without outlines, decoded a column at a time.

Nearly all of a large file of boxes are such rows, and nearly all of the time that they take is that of making and
asking a dictionary for each. Where all rows of a part have the text of the first one but for their digits, the digits
are one flat list, which the JSON parser decodes: what it refuses, and any other row, is decoded as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from coord_codec.files import decode_whole

if TYPE_CHECKING:
    import numpy as np

_DIGITS = b"0123456789.-+~"
"""Bytes of numbers, where `~` stands for the `e-` of an exponent."""
_OF_TEXT = bytes(set(range(128)) - set(_DIGITS) - set(b",: \t\r\n"))
_APART = bytes.maketrans(b":", b" ")
"""Parts a number from digits in the key before it, so that the parser refuses the two."""


class NumberRows(Sequence[dict[str, Any]]):
    """Rows that have the same keys in the same order, and under each a number or a list of as many numbers.

    As a sequence they are the dictionaries that the text holds, which are made when the first one is asked for.

    Attributes:
        widths: by key how many numbers a row has, None for one that is not in a list
        numbers: the numbers of all rows, one row after the other
    """

    def __init__(self, text: str, widths: dict[str, int | None], numbers: list[float]) -> None:
        self._text, self.widths, self.numbers = text, widths, numbers
        self._size = sum(width or 1 for width in widths.values())
        self._length = len(numbers) // self._size

    @classmethod
    def of(cls, text: str) -> NumberRows | None:
        """Return the rows of a text, which are parted by commas; None if a row holds more than numbers.

        Example:
            >>> rows = NumberRows.of('{"id": 7, "bbox": [1, 2.5]}, {"id": 8, "bbox": [3e-2, 4]}')
            >>> rows.widths, rows.column("id"), rows.place("bbox"), rows[1]
            ({'id': None, 'bbox': 2}, [7, 8], slice(1, 3, None), {'id': 8, 'bbox': [0.03, 4]})
        """
        text = text.strip()
        widths = _widths_of(text[: text.find("}") + 1]) if text.isascii() else None
        if not widths:
            return None
        commas = {key: "" if width is None else f"[{',' * (width - 1)}]" for key, width in widths.items()}
        form = "{" + ",".join(f'"{key}":{value}' for key, value in commas.items()) + "},"
        content = text.encode()
        if not (count := _equal_rows(content, form)) and b"~" not in content:
            content = content.replace(b"e-", b"~")
            count = _equal_rows(content, form)
        if not count:
            return None
        digits = content.translate(_APART, _OF_TEXT).replace(b"~", b"e-")
        try:
            rows = cls(text, widths, decode_whole(f"[{digits.decode()}]"))
        except ValueError:
            return None
        return rows if len(rows.numbers) == count * rows._size else None

    def place(self, key: str) -> slice:
        """Return where the numbers of a key stand in those of a row."""
        start = 0
        for name, width in self.widths.items():
            if name == key:
                return slice(start, start + (width or 1))
            start += width or 1
        raise KeyError(key)

    def column(self, key: str) -> list[float]:
        """Return the first number of each row under a key."""
        return self.numbers[self.place(key).start :: self._size]

    def array(self, key: str) -> np.ndarray:
        """Return the numbers [R, width] of each row under a key."""
        return self._array[:, self.place(key)]

    @cached_property
    def _array(self) -> np.ndarray:
        import numpy as np  # which commands that read no numbers leave out

        return np.array(self.numbers, np.float64).reshape(-1, self._size)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = decode_whole(f"[{self._text}]")
        return rows

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._rows[index]


def _equal_rows(content: bytes, form: str) -> int:
    """Return the number of rows of a text if they are equal but for their digits, and of a form; else 0."""
    skeleton = content.translate(None, _DIGITS)
    end = skeleton.find(b"}") + 1
    second = skeleton.find(b"{", 1)
    between = skeleton[end:second] if second > 0 else b","
    if b"".join((skeleton[:end] + between).split()) != form.encode():
        return 0
    count = skeleton.count(b"{")
    return count if skeleton + between == (skeleton[:end] + between) * count else 0


def _widths_of(first: str) -> dict[str, int | None] | None:
    """Return how many numbers the first row has under each key; None if it has anything else."""
    try:
        row = decode_whole(first)
    except ValueError:
        return None
    widths: dict[str, int | None] = {}
    for key, value in row.items() if isinstance(row, dict) else ():
        numbers = value if isinstance(value, list) else [value]
        if not key.replace("_", "a").isalpha() or not numbers or not {*map(type, numbers)} <= {int, float}:
            return None
        widths[key] = len(numbers) if isinstance(value, list) else None
    return widths
