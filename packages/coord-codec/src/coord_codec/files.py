"""Reading and writing of files: what cannot be read is an `InputError` with file and line; writes are atomic."""

from __future__ import annotations

import json
import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any


class InputError(ValueError):
    """Invalid user input: a file, a field or an argument.

    The message names the field or file, what was expected, what was found and what to do next. Commands print it
    without a traceback and exit with code 2.

    Example:
        >>> finite_numbers([0.1, float("nan")], 2, "bbox")
        Traceback (most recent call last):
        coord_codec.files.InputError: bbox: expected finite numbers, found nan
    """


class RunError(Exception):
    """Work that has begun and cannot finish: a full disk, a killed process, a file that changed. Exit code 1.

    The message names what failed and what to do next; commands print it without a traceback.

    Example:
        >>> raise RunError("out.jsonl: cannot be written (no space left on device); free some space and repeat")
        Traceback (most recent call last):
        coord_codec.files.RunError: out.jsonl: cannot be written (no space left on device); free some space and repeat
    """


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file, with or without byte order mark."""
    return decode_text(read_bytes(path), path)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file."""
    with open_bytes(path) as file:
        return file.read()


def open_bytes(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading."""
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error


def decode_text(content: bytes, path: str | os.PathLike[str]) -> str:
    r"""Return the text of a UTF-8 file, with or without byte order mark; every line ends in `\n`."""
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        is_archive = error.object.startswith(ARCHIVE_PREFIXES)
        fault = ARCHIVE_MESSAGE if is_archive else f"not UTF-8 text (byte {error.start}); save the file as UTF-8"
        raise InputError(f"{path}: {fault}") from error


ARCHIVE_PREFIXES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"7z\xbc\xaf", b"\xfd7zX", b"Rar!", b"(\xb5/\xfd")
"""The first bytes of zip, gzip, bzip2, 7z, xz, rar and zstd files."""
ARCHIVE_MESSAGE = "an archive; unpack it, and name the file in it"


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file."""
    return parse_json(read_text(path), path)


def parse_json(text: str, path: str | os.PathLike[str]) -> Any:
    """Return the value of a JSON file."""
    try:
        return decode_json(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}); repair the file") from error
    except RecursionError as error:
        raise InputError(f"{path}: JSON nested too deeply; repair the file") from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise InputError(f"{path}: not usable JSON ({error}); repair the file") from error


def decode_json(text: str) -> Any:
    """Return the same value as `json.loads`, decoded by pydantic in two fifths of the time."""
    try:
        return decode_whole(text)
    except (ValueError, TypeError):  # too deeply nested or invalid: `json` raises the better error
        return json.loads(text)


def decode_whole(text: str) -> Any:
    """Return the value of a text that may be cut off.

    Raises:
        ValueError: it is, or is too deeply nested; without a place, which would take as long again
    """
    from pydantic_core import from_json  # a slow import, so only when needed

    return from_json(text)


def parse_json_line(line: str | bytes) -> dict[str, Any]:
    """Parse one line of a JSON lines file.

    Raises:
        ValueError: if the line is not UTF-8, not JSON or not an object; the message does not name the file
    """
    if isinstance(line, bytes):
        try:
            line = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"expected UTF-8 text, found {error.object[error.start : error.end]!r}") from None
    try:
        record = decode_json(line.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected a JSON object on one line, found text that is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, found {type(record).__name__}")
    return record


def numbered_lines(file: IO[bytes], path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Yield `(line number, line)` for each line that is not blank, without a byte order mark, and close the file."""
    with file:
        for number, line in enumerate(file, start=1):
            if number == 1 and line.startswith(ARCHIVE_PREFIXES):
                raise InputError(f"{path}: {ARCHIVE_MESSAGE}")
            text = line.removeprefix(BOM_UTF8) if number == 1 else line
            if text.strip():
                yield number, text


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(line number, record)` for each non-blank line; the file is streamed."""
    for number, line in numbered_lines(open_bytes(path), path):
        try:
            record = parse_json_line(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}; write one object per line") from error
        yield number, record


_NUMERIC = frozenset({int, float})


def finite_numbers(value: object, count: int | None, where: str) -> tuple[float, ...]:
    """Return a list of finite numbers as floats.

    Args:
        value: the value from the file
        count: expected number of values; None for any number
        where: file, line and field for the message

    Raises:
        InputError: if the type or the length is different, or a value is NaN or infinite
    """
    if not isinstance(value, (list, tuple)) or (count is not None and len(value) != count):
        expected = "a list of numbers" if count is None else f"{count} numbers"
        raise InputError(f"{where}: expected {expected}, found {value!r:.80}")
    numbers = [v.item() if hasattr(v, "dtype") and hasattr(v, "item") else v for v in value]
    for number in numbers:
        # `isinstance` would accept bool, a subclass of int.
        if type(number) not in _NUMERIC or not abs(number) <= sys.float_info.max:
            raise InputError(f"{where}: expected finite numbers, found {number!r:.80}")
    return tuple(map(float, numbers))


def identifier(value: object, where: str) -> int | str:
    """Return an image or category id; `42.0` becomes 42."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise InputError(f"{where}: expected a whole number or text, found {value!r:.80}")


BACKSLASHES = "image paths with backslashes, found with slashes"


def name_on_disk(folder: str | os.PathLike[str] | None, name: str) -> str:
    r"""Return an image path, with backslashes replaced by slashes if the file exists only under that name.

    Example:
        >>> name_on_disk("images", "sub\\gone.png")
        'sub\\gone.png'
    """
    # A Path raises for a name that is too long for any file.
    if folder is None or "\\" not in name or os.path.isfile(Path(folder, name)):  # noqa: PTH113
        return name
    with_slashes = PurePosixPath(name.replace("\\", "/")).as_posix()
    return with_slashes if os.path.isfile(Path(folder, with_slashes)) else name  # noqa: PTH113


def path_inside(folder: str | os.PathLike[str], name: str | os.PathLike[str]) -> Path:
    """Return the resolved path of a file that must lie inside a folder.

    Names come from annotations, which are not trusted: `../../secret.png` and links out of the folder are refused.

    Raises:
        InputError: if the file lies outside the folder, or the name is not a valid file name

    Example:
        >>> path_inside("images", "../secret.png")
        Traceback (most recent call last):
        coord_codec.files.InputError: ../secret.png: lies outside the folder images
    """
    try:
        base = Path(folder).resolve()
        path = (base / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # an invalid name or a circle of links
        raise InputError(f"{name!s:.80}: no file can have this name") from error
    if not path.is_relative_to(base):
        raise InputError(f"{name}: lies outside the folder {folder}")
    return path


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for atomic writing: it appears complete under its name, or not at all.

    The content is written to a temporary file in the same folder, which is flushed to disk and renamed if the block
    ends without an error. Devices and pipes are written to directly. Lone surrogates, which models can generate, have
    no UTF-8 form and are written as `?`.

    Args:
        path: the file; its folder must exist. A symbolic link is followed
        mode: `"w"` for UTF-8 text, `"wb"` for bytes

    Raises:
        OSError: if the file cannot be written; an existing file of that name stays as it was

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> with atomic_write(path) as file:
        ...     _ = file.write("text")
        >>> path.read_text()
        'text'
    """
    target = Path(path).resolve()
    encoding = {} if "b" in mode else {"encoding": "utf-8", "errors": "replace"}
    if target.exists() and not target.is_file() and not target.is_dir():
        with target.open(mode, **encoding) as file:  # type: ignore[call-overload]
            yield file
        return
    # `tempfile` would restrict the permissions. The name is shortened to stay within the file system's limit, which
    # counts bytes: up to four for a character.
    temporary = target.with_name(f".{target.name[:32]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with temporary.open(mode.replace("w", "x"), **encoding) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 text file atomically, see `atomic_write`; its folder is made if it is missing."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text)
