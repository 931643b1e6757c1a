"""A file or folder of annotations, which is opened once and parsed once, however many readers use it."""

from __future__ import annotations

import codecs
import tarfile
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any

from coord_codec.arguments import expect
from coord_codec.files import ARCHIVE_PREFIXES, InputError, decode_text
from coord_codec.json_file import JsonFile, parsed_line
from coord_codec.json_stream import stream_lists
from coord_data.looking.image_paths import in_any_case, is_hidden

_HEAD = 1 << 16
_LINES = (".jsonl", ".ndjson", ".odgt")
_KEYS = 20
"""Number of keys that are read of a JSON file."""
_COCO = frozenset({"images", "annotations"})
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class _Beginning:
    """What the beginning of a file tells: its bytes, and what `Source.keys` and `Source.first_image` return."""

    content: bytes = b""
    keys: frozenset[str] = frozenset()
    keys_below: frozenset[str] = frozenset()
    first_image: Any = None


class Source(JsonFile):
    """Annotations that a user named, read as far as their use requires and kept as long as the source is.

    What cannot be read is an `InputError`, as for `JsonFile`.

    Args:
        path: the file or folder that is read
        named: the path that the user named, which may be the folder of `path`; `path` if None
        format: name of the format, as `open_source` recognised it; empty before
    """

    def __init__(self, path: Path, named: Path | None = None, format: str = "") -> None:
        expect("path", path, Path)
        super().__init__(path)
        self.named = named or path
        self.format = format
        self.read_as: str | None = None
        """How the boxes of a packed source are read (`--read-as`), if not as its format has them."""
        self.notes: tuple[str, ...] = ()
        """Notes for the user on how the source was opened."""
        self._files: dict[Path, Source] = {}

    def __repr__(self) -> str:
        return f"Source({str(self.path)!r}, format={self.format!r})"

    def with_content(self, content: bytes) -> Source:
        """Return the source as if its file had another content."""
        again = copy(self)
        kept = {name: vars(self)[name] for name in ("path", "named", "format", "read_as", "notes")}
        again.__dict__ = {**kept, "_files": {}}
        again.__dict__["content"] = content
        return again

    @cached_property
    def is_dir(self) -> bool:
        """Whether the source is a folder."""
        return self.path.is_dir()

    @cached_property
    def _beginning(self) -> _Beginning:
        if self.is_dir:
            return _Beginning()
        with self.open() as file:
            return _inspect(file, self.path)

    @cached_property
    def head(self) -> str:
        """The beginning of a file as text; empty for a folder."""
        return _decoded(self._beginning.content)

    @property
    def is_archive(self) -> bool:
        """Whether the file is an archive, or compressed."""
        content = self._beginning.content
        return content.startswith(ARCHIVE_PREFIXES) or (not self.is_dir and tarfile.is_tarfile(BytesIO(content)))

    @property
    def keys(self) -> tuple[frozenset[str], frozenset[str]]:
        """The first keys of a JSON object and of its first value; empty for other content."""
        return self._beginning.keys, self._beginning.keys_below

    @property
    def first_image(self) -> Any:
        """The first element of the list `images` of a JSON object; None if there is none."""
        return self._beginning.first_image

    @cached_property
    def record(self) -> dict[str, Any] | None:
        """The first record of a JSON lines file, or of a JSON list; None for anything else."""
        if self.head[:1] == "{":
            first, _, rest = self.head.partition("\n")
            record = parsed_line(first)
            return record if isinstance(record, dict) and (rest.strip() or self.path.suffix in _LINES) else None
        if self.head[:1] == "[" and isinstance(self.document, list) and self.document:
            return self.document[0] if isinstance(self.document[0], dict) else None
        return None

    def records(self) -> Iterator[tuple[str, dict[str, Any] | str]]:
        """Yield place and content of each record of JSON lines or a JSON list; an error message for a bad one."""
        if self.is_dir:
            raise InputError(f"{self.path}: expected a file of records, found a folder; name the file in it")
        if self.head[:1] == "[":
            for index, record in enumerate(self.document):
                yield f"{self.path}: record {index}", record if isinstance(record, dict) else "expected an object"
            return
        yield from ((f"{self.path}:{number}", parsed_line(line)) for number, line in self.lines())

    @cached_property
    def table(self) -> str:
        """The text of a file in UTF-8, or in UTF-16 with a byte order mark, as spreadsheets save it."""
        if self.content[:2] not in _UTF16:
            return self.text
        try:
            return self.content.decode("utf-16")
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: not UTF-16 text (byte {error.start}); save the file as UTF-8") from error

    @cached_property
    def text(self) -> str:
        """The text of a UTF-8 file."""
        return decode_text(self.content, self.path)

    def file(self, path: Path) -> Source:
        """Return a file that belongs to this source; it is kept, for the steps of a reader that need it again."""
        if path == self.path:
            return self
        return self._files.setdefault(path, Source(path))

    def glob(self, *patterns: str) -> list[Path]:
        """Return the sorted files of a folder that match, with suffixes in any case and without hidden files."""
        paths = (path for pattern in patterns for path in self.path.glob(in_any_case(pattern))) if self.is_dir else ()
        return sorted(path for path in paths if path.is_file() and not is_hidden(path, self.path))


def _decoded(content: bytes) -> str:
    return content.decode("utf-16" if content[:2] in _UTF16 else "utf-8-sig", errors="replace").lstrip()


def _inspect(file: IO[bytes], path: Path) -> _Beginning:
    """Return the beginning of a file; a JSON object is parsed until its keys and its first image are known."""
    content = file.read(_HEAD)
    text = _decoded(content)
    if text[:1] != "{" or _is_record(text):
        return _Beginning(content)
    file.seek(0)
    keys, below, first = list[str](), frozenset[str](), None
    try:
        for key, position, value in stream_lists(path, file):
            if not keys and position < 0 and isinstance(value, Mapping):
                below = frozenset(islice(value, _KEYS))
            if position <= 0 and _COCO.isdisjoint(keys):
                keys.append(key)
            if key == "images":
                first = value if position == 0 else None
            if key == "images" or (len(keys) > _KEYS and _COCO.isdisjoint(keys)):
                break
    except InputError:  # the reader reports it
        keys = [] if _COCO.isdisjoint(keys) else keys
    return _Beginning(content, frozenset(keys), below, first)


def _is_record(text: str) -> bool:
    """Return whether a text begins with a record on a line, which other lines follow."""
    first, _, rest = text.partition("\n")
    return isinstance(parsed_line(first), dict) and first.strip() != "{}" and bool(rest.strip())
