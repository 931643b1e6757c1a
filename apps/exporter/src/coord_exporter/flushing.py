"""Making written bytes durable on a thread of its own, while more are written.

Durable bytes are dropped from the system's cache: the pages that held them take the next ones, instead of ever
more memory, which counts as used in a container and is slow to get on a virtual machine.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_FLUSH_BYTES = 128 << 20  # the disk starts on these while the next are made, instead of idling until the end


class Flusher:
    """Calls fsync in the background: now and then while a file grows, and when it is finished."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        self._unflushed = 0

    def __enter__(self) -> Flusher:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def wrote(self, path: Path, count: int) -> None:
        """Note that a file grew."""
        self._unflushed += count
        if self._unflushed >= _FLUSH_BYTES:
            self.finish(path)

    def finish(self, path: Path) -> None:
        """Make what a file holds so far durable, as soon as what was written before is."""
        self.wait()
        self._unflushed = 0
        self._last = self._pool.submit(_flush, path)

    def wait(self) -> None:
        """Wait until everything is durable.

        Raises:
            OSError: if the disk refused something.
        """
        if self._last is not None:
            self._last.result()


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        if hasattr(os, "posix_fadvise"):  # not on macOS
            with suppress(OSError):  # advice, which a file system need not take
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Make a file or folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
