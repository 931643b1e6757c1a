"""Writes a folder, or a few files together, whole or not at all."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coord_codec import RunError

_LOG = logging.getLogger(__name__)


@contextmanager
def output_folder(out: Path, single: bool) -> Iterator[Path]:
    """Yield a hidden folder to write into, which becomes `out` at the end; with `single` its files are moved there."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(out)
        partial = out.with_name(f".{out.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        partial.mkdir()
        try:
            with _locked(partial):
                yield partial
                if not single:
                    partial.replace(out)
                    return
                # The records last: without their summary they would be read as if their images lay beside them.
                for file in sorted(partial.iterdir(), key=lambda file: file.name == out.name):
                    file.replace(out.with_name(file.name))
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error.strerror})") from None


def _clear_leftovers(out: Path) -> None:
    """Remove the hidden folders of earlier calls for `out` that were killed: nobody holds their locks any more."""
    name = re.compile(rf"\.{re.escape(out.name[:64])}\.\d+-[0-9a-f]{{8}}\.tmp")
    for folder in [path for path in out.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()]:
        with suppress(OSError), _locked(folder) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(folder)
                _LOG.info(f"{folder}: removed; an earlier call was killed while it wrote there")


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
