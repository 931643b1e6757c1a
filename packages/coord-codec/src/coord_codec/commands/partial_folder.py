"""Hidden folders in which an output is written before it gets its name."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """Yield a new hidden folder beside `out`, locked, and remove it at the end unless the caller has renamed it."""
    partial = out.with_name(f".{out.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    partial.mkdir()
    try:
        with _locked(partial):
            yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def clear_leftovers(out: Path) -> list[Path]:
    """Remove the hidden folders for `out` of processes that were killed, whose locks nobody holds; return them."""
    name = re.compile(rf"\.{re.escape(out.name[:64])}\.\d+-[0-9a-f]{{8}}\.tmp")
    removed = []
    for folder in [path for path in out.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()]:
        with suppress(OSError), _locked(folder) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(folder)
                removed.append(folder)
    return removed


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder until the end of the block or of this process; yields whether that was possible.

    It is not if another process holds the lock, or if the file system has no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    locked = False
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        yield locked
    finally:
        os.close(descriptor)
