"""A JSON or JSON lines file that is opened once and parsed once, however many readers use it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from coord_codec.files import decode_text, numbered_lines, open_bytes, parse_json, parse_json_line, read_bytes

_HELD = 1 << 20
"""Number of bytes up to which a file is held in memory, so that it is opened once."""


class JsonFile:
    r"""The content of a file: its lines, which are streamed, its document, or the records on its lines.

    Each raises an `InputError` where the file cannot be read, is an archive, or is not JSON.

    Args:
        path: the file

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
        >>> _ = path.write_text('{"image": "a.jpg"}\n\n[]\n')
        >>> JsonFile(path).rows
        [(1, {'image': 'a.jpg'}), (3, 'expected a JSON object, found list')]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file."""
        return read_bytes(self.path)

    def open(self) -> IO[bytes]:
        """Open the file at its beginning; what is small, not regular or read already is held in memory."""
        is_large = "content" not in self.__dict__ and self.path.is_file() and self.path.stat().st_size > _HELD
        return open_bytes(self.path) if is_large else BytesIO(self.content)

    @cached_property
    def document(self) -> Any:
        """The value of the whole file."""
        return parse_json(decode_text(self.content, self.path), self.path)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield `(line number, line)` for each non-blank line, without a byte order mark."""
        return numbered_lines(self.open(), self.path)

    @cached_property
    def rows(self) -> list[tuple[int, dict[str, Any] | str]]:
        """The line number and record of each non-blank line; a message for a line that is no JSON object."""
        return [(number, parsed_line(line)) for number, line in self.lines()]


def parsed_line(line: bytes | str) -> dict[str, Any] | str:
    """Return the record of a line, or a message if it is no JSON object."""
    try:
        return parse_json_line(line)
    except ValueError as error:
        return str(error)
