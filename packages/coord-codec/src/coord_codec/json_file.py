"""A JSON or JSON lines file that is opened once and parsed once, however many readers use it."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

from coord_codec.files import (
    ARCHIVE_MESSAGE,
    ARCHIVE_PREFIXES,
    InputError,
    decode_text,
    parse_json,
    parse_json_line,
    read_bytes,
)


class JsonFile:
    r"""The content of a file in memory: its lines, its document, or the records on its lines.

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
        """The bytes of the file.

        Raises:
            InputError: the file cannot be read.
        """
        return read_bytes(self.path)

    @cached_property
    def document(self) -> Any:
        """The value of the whole file.

        Raises:
            InputError: the file cannot be read or is not JSON.
        """
        return parse_json(decode_text(self.content, self.path), self.path)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield `(line number, line)` for each non-blank line, without a byte order mark.

        Raises:
            InputError: the file cannot be read or is an archive.
        """
        if self.content.startswith(ARCHIVE_PREFIXES):
            raise InputError(f"{self.path}: {ARCHIVE_MESSAGE}")
        for number, line in enumerate(BytesIO(self.content), start=1):
            text = line.removeprefix(BOM_UTF8) if number == 1 else line
            if text.strip():
                yield number, text

    @cached_property
    def rows(self) -> list[tuple[int, dict[str, Any] | str]]:
        """The line number and record of each non-blank line; a message for a line that is no JSON object.

        Raises:
            InputError: the file cannot be read or is an archive.
        """
        return [(number, _parsed(line)) for number, line in self.lines()]


def _parsed(line: bytes) -> dict[str, Any] | str:
    try:
        return parse_json_line(line)
    except ValueError as error:
        return str(error)
