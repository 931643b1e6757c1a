"""Shares requests among servers of one model by load, and goes on without those that are lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_REST = 30.0
"""Seconds after which a lost server is asked again before all others are."""


@dataclass
class Servers:
    """Servers of one model, with the number of requests that each is working on.

    `moved` counts the requests that another server had to take over, by URL.
    """

    urls: tuple[str, ...]
    moved: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._rests_until: dict[str, float] = {}

    @contextmanager
    def least_busy(self, without: Collection[str] = ()) -> Iterator[str]:
        """Take the server with the fewest requests, a lost one last, until the block ends."""
        with self._lock:
            now = time.monotonic()
            left = [url for url in self.urls if url not in without]
            url = min(left, key=lambda url: (self._rests_until.get(url, now) > now, self._busy[url]))
            self._busy[url] += 1
        try:
            yield url
        finally:
            with self._lock:
                self._busy[url] -= 1

    def move_on(self, url: str, is_lost: bool) -> None:
        """Count a request that the next server takes over; a lost server comes last for a while."""
        with self._lock:
            self.moved[url] += 1
            if is_lost:
                self._rests_until[url] = time.monotonic() + _REST
