"""Reading and writing of files: errors that name file and line, and atomic writes."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, Any


class InputError(ValueError):
    """A mistake in what the user gave: a file, a field, an argument.

    The message names the field or file, what was expected, what was found and what to do next. Command lines print
    it without a traceback and exit with code 2.

    Example:
        >>> finite_numbers([0.1, float("nan")], 2, "bbox")
        Traceback (most recent call last):
        coord_codec.files.InputError: bbox: expected finite numbers, found nan
    """


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file, with or without byte order mark.

    Raises:
        InputError: if the file is missing, unreadable or not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {_no_text(error)}") from error


_PACKED = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"7z\xbc\xaf", b"\xfd7zX", b"Rar!", b"(\xb5/\xfd")
"""How zip, gzip, bzip2, 7z, xz, rar and zstd begin."""
_ARCHIVE = "an archive; unpack it, and name the file in it"


def _no_text(error: UnicodeDecodeError) -> str:
    if error.object.startswith(_PACKED):
        return _ARCHIVE
    return f"not UTF-8 text (byte {error.start}); save the file as UTF-8"


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Raises:
        InputError: if the file cannot be read or is not JSON, naming the line.
    """
    try:
        return decode_json(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}); repair the file") from error
    except RecursionError as error:
        raise InputError(f"{path}: JSON nested too deeply; repair the file") from error
    except ValueError as error:  # an integer of more digits than Python converts
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not usable JSON ({error}); repair the file") from error


def decode_json(text: str) -> Any:
    """Return what `json.loads` makes of a text, in two fifths of its time.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return _json_decoder()(text)
    except (ValueError, TypeError):  # so deep, or so wrong, that Python's own says what is the matter
        return json.loads(text)


@cache
def _json_decoder() -> Callable[[str], Any]:
    from pydantic import TypeAdapter  # here: the package itself imports in half the time of pydantic

    return TypeAdapter(Any).validate_json


def parse_json_line(line: str | bytes) -> dict[str, Any]:
    """Parse one line of a JSON lines file.

    Raises:
        ValueError: if the line is not UTF-8, not JSON or not an object; the message does not name the file.
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


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield `(line number, record)` of each line that is not blank; the file is streamed.

    Raises:
        InputError: if the file cannot be read or a line is not a JSON object, naming the line.
    """
    try:
        with Path(path).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        yield number, parse_json_line(line)
                    except ValueError as error:
                        if number == 1 and line.startswith(_PACKED):
                            raise InputError(f"{path}: {_ARCHIVE}") from None
                        raise InputError(f"{path}, line {number}: {error}; one object a line") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error


_NUMERIC = frozenset({int, float})


def finite_numbers(value: object, count: int | None, where: str) -> tuple[float, ...]:
    """Return a list of finite numbers as floats.

    Args:
        value: what the file holds.
        count: how many numbers are expected, None for any.
        where: file, line and field for the message.

    Raises:
        InputError: for another type, another length, NaN or infinity.
    """
    if not isinstance(value, (list, tuple)) or (count is not None and len(value) != count):
        wanted = "a list of numbers" if count is None else f"{count} numbers"
        raise InputError(f"{where}: expected {wanted}, found {value!r:.80}")
    numbers = [v.item() if hasattr(v, "dtype") and hasattr(v, "item") else v for v in value]
    for number in numbers:
        # By type and not isinstance: bool is an int to the latter.
        if type(number) not in _NUMERIC or not abs(number) <= sys.float_info.max:
            raise InputError(f"{where}: expected finite numbers, found {number!r:.80}")
    return tuple(map(float, numbers))


def identifier(value: object, where: str) -> int | str:
    """Return an image or category id; `42.0` becomes 42.

    Raises:
        InputError: if it is neither a whole number nor text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise InputError(f"{where}: expected a whole number or text, found {value!r:.80}")


BACKSLASHES = "image paths with backslashes, found with slashes"


def name_on_disk(folder: str | os.PathLike[str] | None, name: str) -> str:
    r"""Return the path of a file in a folder; one that was written on Windows has slashes where only that file exists.

    Example:
        >>> name_on_disk("images", "sub\\gone.png")
        'sub\\gone.png'
    """
    if folder is None or "\\" not in name or _is_file(Path(folder, name)):
        return name
    plain = PurePosixPath(name.replace("\\", "/")).as_posix()
    return plain if _is_file(Path(folder, plain)) else name


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def path_inside(folder: str | os.PathLike[str], name: str | os.PathLike[str]) -> Path:
    """Return the path of a file that lies inside a folder, links followed.

    Names come from annotations, which may be anyone's: `../../secret.png` and links out of the folder are refused.

    Raises:
        InputError: if it lies outside, or no file can have that name.

    Example:
        >>> path_inside("images", "../secret.png")
        Traceback (most recent call last):
        coord_codec.files.InputError: ../secret.png: lies outside the folder images
    """
    try:
        base = Path(folder).resolve()
        path = (base / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have, or links in a circle
        raise InputError(f"{name!s:.80}: no file can have this name") from error
    if not path.is_relative_to(base):
        raise InputError(f"{name}: lies outside the folder {folder}")
    return path


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for writing that appears whole under its name, or not at all.

    The content goes to a temporary file in the same folder, is flushed to the disk and renamed when the block ends
    without an error. A device or a pipe is written to directly. Half a surrogate pair, which models can emit,
    has no UTF-8 form and is written as `?`.

    Args:
        path: the file; its folder must exist. A symbolic link is followed.
        mode: `"w"` for UTF-8 text, `"wb"` for bytes.

    Raises:
        OSError: if the file cannot be written; an older file of that name stays as it was.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> with atomic_write(path) as file:
        ...     _ = file.write("whole")
        >>> path.read_text()
        'whole'
    """
    target = Path(path).resolve()
    text = {} if "b" in mode else {"encoding": "utf-8", "errors": "replace"}
    if target.exists() and not target.is_file() and not target.is_dir():
        with target.open(mode, **text) as file:  # type: ignore[call-overload]
            yield file
        return
    # Opened by name and not by `tempfile`: the file gets the usual permissions. A long name leaves no room for more.
    partial = target.with_name(f".{target.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with partial.open(mode.replace("w", "x"), **text) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a UTF-8 text file atomically, see `atomic_write`.

    Raises:
        OSError: if the file cannot be written; an older file of that name stays as it was.
    """
    with atomic_write(path) as file:
        file.write(text)
