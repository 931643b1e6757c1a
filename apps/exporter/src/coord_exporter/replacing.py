"""Putting a folder in the place of another: in one step where the system can, else so that a kill loses nothing."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2(2)
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def replace_folder(new: Path, place: Path) -> None:
    """Put the folder `new` at `place`; what was there may lie at `new` afterwards, for the caller to remove.

    Raises:
        OSError: if the system refuses; `place` is as it was.
    """
    if exchange(new, place):
        return
    # The old folder steps aside, and back on failure; a kill in between is for `put_back` to find.
    parent = Path(tempfile.mkdtemp(prefix=_aside_prefix(place), dir=place.parent))
    aside, lock = parent / place.name, os.open(parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place.rename(aside)
        try:
            new.rename(place)
        except OSError:
            aside.rename(place)
            raise
    finally:
        if os.path.lexists(place):
            shutil.rmtree(parent, ignore_errors=True)
        os.close(lock)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system has no such call.

    Raises:
        OSError: if the call exists and fails.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    failed = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if failed and (code := ctypes.get_errno()) not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), str(other))
    return not failed


def put_back(place: Path) -> bool:
    """Bring back a folder that stepped aside for a process that was killed before it put its own there."""
    found = False
    for folder in beside(place, _aside_prefix(place)):
        with abandoned(folder) as free:
            if not free:
                continue
            aside = folder / place.name
            if aside.is_dir() and not os.path.lexists(place):
                aside.rename(place)
                found = True
            shutil.rmtree(folder, ignore_errors=True)
    return found


def beside(place: Path, prefix: str) -> list[Path]:
    """What lies beside a place under names that start alike."""
    return [path for path in place.parent.iterdir() if path.name.startswith(prefix)]


@contextmanager
def abandoned(folder: Path) -> Iterator[bool]:
    """Whether the process that worked in a folder is gone: its lock on the folder ends with it."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(fd)


def _aside_prefix(place: Path) -> str:
    return f".{place.name}.replaced-"
