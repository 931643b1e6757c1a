"""Streams the lists of a large JSON document, or one that is a list, without holding the document in memory."""

from __future__ import annotations

import json
import os
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from pathlib import Path
from typing import IO, Any

from coord_codec.files import ARCHIVE_MESSAGE, ARCHIVE_PREFIXES, InputError, decode_whole
from coord_codec.json_numbers import NumberRows

_BLOCK = 1 << 20  # bytes read at a time
Part = tuple[str, int, Sequence[Any]]
"""A key of the document, the position of an element of its list, and the elements from there on: `NumberRows` if they
hold numbers alone."""


def stream_lists(path: str | os.PathLike[str], file: IO[bytes] | None = None) -> Iterator[tuple[str, int, Any]]:
    r"""Yield `(key, position, element)` for the elements of every list that is a top-level value, in document order.

    Any other value yields `(key, -1, value)` once, and an empty list `(key, -1, None)`.

    An open file at its beginning is left open; without one `path` is opened.

    Raises:
        InputError: if the file cannot be read, or is not a JSON object

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.json"
        >>> _ = path.write_text('{"info": {"year": 2017}, "images": [{"id": 1}, {"id": 2}]}')
        >>> list(stream_lists(path))
        [('info', -1, {'year': 2017}), ('images', 0, {'id': 1}), ('images', 1, {'id': 2})]
    """
    for key, first, values in stream_parts(path, file):
        for position, value in enumerate(values, first):
            yield key, position, value


def stream_parts(path: str | os.PathLike[str], file: IO[bytes] | None = None) -> Iterator[Part]:
    """Yield what `stream_lists` yields in parts: the key, the position of the first element, and some elements."""
    return _streamed(path, file, _Parser.lists)


def stream_list(path: str | os.PathLike[str]) -> Iterator[tuple[int, Sequence[Any]]]:
    r"""Yield the elements of a document that is a list in parts, each with the position of its first element.

    Raises:
        InputError: if the file cannot be read, or is not a JSON list

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.json"
        >>> _ = path.write_text('[{"id": 1}, {"id": 2}]')
        >>> [(first + n, value) for first, part in stream_list(path) for n, value in enumerate(part)]
        [(0, {'id': 1}), (1, {'id': 2})]
    """
    return ((first, values) for _, first, values in _streamed(path, None, _Parser.elements) if first >= 0)


def _streamed(
    path: str | os.PathLike[str], file: IO[bytes] | None, read: Callable[[_Parser], Iterator[Part]]
) -> Iterator[Part]:
    """Yield what a parser reads of a file, with its errors as those of the file."""
    try:
        with nullcontext(file) if file is not None else Path(path).open("rb") as content:
            parser = _Parser(content)
            yield from read(parser)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except UnicodeDecodeError as error:
        is_archive = error.object.startswith(ARCHIVE_PREFIXES)
        fault = ARCHIVE_MESSAGE if is_archive else "not UTF-8 text; save the file as UTF-8"
        raise InputError(f"{path}: {fault}") from None
    except json.JSONDecodeError as error:
        line = parser.lines_before + error.lineno
        raise InputError(f"{path}, line {line}: not JSON ({error.msg}); repair the file") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {parser.line}: not JSON ({error}); repair the file") from None


class _Parser:
    """Parses the file in parts: holds the current part of the text and the position up to which it was parsed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._decode = file, getincrementaldecoder("utf-8-sig")()
        self._scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
        self._text, self._place, self._ended, self._batch_tried, self.lines_before = "", 0, False, False, 0

    @property
    def line(self) -> int:
        """Number of the line up to which the file was parsed."""
        return self.lines_before + self._text.count("\n", 0, self._place) + 1

    def lists(self) -> Iterator[Part]:
        self._expect("{")
        if self._next() == "}":
            self._place += 1
        else:
            yield from self._members()
        self._end()

    def elements(self) -> Iterator[Part]:
        if self._next() != "[":
            raise ValueError("expected a list")
        yield from self._elements("")
        self._end()

    def _end(self) -> None:
        if self._next():
            raise ValueError(f"text after the end, beginning with {self._text[self._place : self._place + 20]!r}")

    def _members(self) -> Iterator[Part]:
        while True:
            key = self._value()
            if not isinstance(key, str):
                raise ValueError(f"expected a key in quotes, found {key!r:.40}")
            self._expect(":")
            if self._next() == "[":
                yield from self._elements(key)
            else:
                yield key, -1, [self._value()]
            if self._expect(",", "}") == "}":
                return

    def _elements(self, key: str) -> Iterator[Part]:
        self._place += 1
        self._batch_tried = False
        if self._next() == "]":
            self._place += 1
            yield key, -1, [None]
            return
        position = 0
        while True:
            values = self._batch() or [self._value()]
            yield key, position, values
            position += len(values)
            if self._expect(",", "]") == "]":
                return

    def _batch(self) -> Sequence[Any]:
        """Return the elements that are complete in this part of the text, decoded at once; empty if that fails.

        Text that decodes as a list between two added brackets consists of complete elements, wherever it was cut: at
        the last element of this part, or at the end of this list if another one follows.
        """
        if self._batch_tried:
            return []
        self._batch_tried = True
        for find, closing in ((self._text.rfind, "},"), (self._text.find, "}]")):
            end = find(closing, self._place) + 1
            text = self._text[self._place : end]
            try:
                values: Sequence[Any] = NumberRows.of(text) or decode_whole(f"[{text}]") if end else []
            except ValueError:
                continue
            if values:
                self._place = end
                return values
        return []

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._scan(self._text, self._place)
            except (ValueError, StopIteration) as error:  # the value is cut off, or is not JSON
                if self._ended:
                    raise error if isinstance(error, ValueError) else ValueError("expected a value") from None
            else:
                if end < len(self._text) or self._ended:  # a number may continue in the next part
                    self._place = end
                    return value
            self._read()

    def _next(self) -> str:
        """Return the next character that is not white space without consuming it; empty at the end of the file."""
        while True:
            self._place = WHITESPACE.match(self._text, self._place).end()
            if self._place < len(self._text):
                return self._text[self._place]
            if self._ended:
                return ""
            self._read()

    def _expect(self, *characters: str) -> str:
        character = self._next()
        if character not in characters:
            raise ValueError(f"expected {' or '.join(characters)}, found {character or 'the end of the file'}")
        self._place += 1
        return character

    def _read(self) -> None:
        self.lines_before += self._text.count("\n", 0, self._place)
        rest = self._text[self._place :]
        block = self._file.read(max(_BLOCK, len(rest)))  # doubling keeps repeated attempts at a long value linear
        self._text, self._place, self._ended = rest + self._decode.decode(block, not block), 0, not block
        self._batch_tried = False
