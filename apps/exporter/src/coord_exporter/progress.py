"""Progress in bytes, with the time left, on standard error."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_TERMINAL_SECONDS = 0.2
_LOG_SECONDS = 10.0


class Progress:
    """Counts bytes; rewrites one line on a terminal, writes a line every ten seconds elsewhere."""

    def __init__(self, total: int, what: str, stream: TextIO | None = None) -> None:
        self._total, self._what, self._stream = total, what, stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._done, self._started = 0, time.monotonic()
        self._next = self._started + (0 if self._terminal else _LOG_SECONDS)

    def __call__(self, count: int) -> None:
        """Count bytes that were written."""
        self._done += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS)
            self._show(now)

    def finish(self) -> None:
        """End the line."""
        if self._terminal:
            self._show(time.monotonic())
            self._stream.write("\n")

    def line(self, now: float) -> str:
        """What is shown: bytes done and to do, and the time left at the mean speed so far."""
        elapsed = now - self._started
        left = elapsed * (self._total - self._done) / self._done if self._done else 0.0
        share = 100 * self._done // self._total if self._total else 100
        return (
            f"{self._what} {self._done / 1e9:.2f} of {self._total / 1e9:.2f} GB ({share}%), "
            f"{int(left) // 60}:{int(left) % 60:02d} left"
        )

    def _show(self, now: float) -> None:
        text = self.line(now)
        self._stream.write(f"\r\033[K{text}" if self._terminal else f"{text}\n")
        self._stream.flush()
