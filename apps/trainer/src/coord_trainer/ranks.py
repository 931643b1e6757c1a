"""Several processes of one run (torchrun): which one this is, and letting the first one prepare files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache

_PATIENCE = timedelta(
    days=7
)  # drawing, checking and encoding may take hours; a failure is told, not waited for


def rank() -> int:
    """This process's number; 0 when there is only one."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes files and speaks."""
    return rank() == 0


@contextmanager
def first_rank_first(block: str) -> Iterator[None]:
    """Let the first rank through alone; the others follow when it is done, and stop when it failed.

    Args:
        block: a name of the block, used once in a run.

    Raises:
        SystemExit: on the other ranks, when the first one failed; it has told why.
    """
    if world_size() == 1:
        yield
        return
    store = _store()
    key = f"{block}.{_turn(block)}"
    if not is_first():
        _wait(store, key)
        yield
        return
    try:
        yield
    except BaseException:
        store.set(key, "failed")
        raise
    store.set(key, "done")


def _wait(store, key: str) -> None:
    from torch.distributed import DistError

    try:
        store.wait([key], _PATIENCE)
        done = store.get(key) == b"done"
    except DistError:  # the first rank kept the store, and is gone
        done = False
    if not done:
        raise SystemExit(1)


_turns: dict[str, int] = {}


def _turn(block: str) -> int:
    """Every rank passes the same blocks in the same order, so counting them makes names unique."""
    _turns[block] = _turns.get(block, 0) + 1
    return _turns[block]


@cache
def _store():
    from torch.distributed import PrefixStore, rendezvous

    store, _, _ = next(iter(rendezvous("env://")))
    return PrefixStore("coord_trainer", store)


def part() -> None:
    """Leave the process group, at the end of a run that went well."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
