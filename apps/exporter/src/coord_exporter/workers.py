"""Threads that make tensors side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from .workspace import Workspace

_MOST = 4  # more wait for the disk, and each has its chunk in memory

Item = TypeVar("Item")


class Workers:
    """As many threads as torch may use, each with a workspace and at a different tensor.

    One thread reads while another multiplies, and torch itself keeps to one thread in each: waking others for every
    chunk costs more than they do.
    """

    def __init__(self) -> None:
        import torch

        self._threads = torch.get_num_threads()
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(min(self._threads, _MOST), initializer=self._prepare)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        import torch

        self._pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self._threads)

    def run(self, work: Callable[[Item, Workspace], None], items: Iterable[Item]) -> None:
        """Do the work on every item, in their order as far as there are threads; then return.

        Raises:
            Exception: the first that the work raised, once nothing is being worked on; what had not begun is left.
        """
        waiting = [self._pool.submit(self._do, work, item) for item in items]
        try:
            for one in waiting:
                one.result()
        finally:
            for one in waiting:
                one.cancel()
            wait(waiting)  # nothing may go on in a file that is about to be closed

    def _prepare(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._own.workspace = Workspace()

    def _do(self, work: Callable[[Item, Workspace], None], item: Item) -> None:
        work(item, self._own.workspace)
