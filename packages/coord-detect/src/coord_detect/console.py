"""Console output and ranks: our lines go to stdout, on the first rank only."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from coord_codec import InputError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

_original_stdout: list[TextIO] = []


def say(line: str) -> None:
    """Print a line above a running progress bar, on the first rank only."""
    if is_first():
        # While stdout is redirected (`saying_to`), our own lines still go to the original one.
        out = _original_stdout[-1] if _original_stdout else sys.stdout
        encoding = getattr(out, "encoding", None) or "utf-8"  # which may be unable to encode a file name
        text = line.encode(encoding, "backslashreplace").decode(encoding)
        if "tqdm" in sys.modules:  # there may be a progress bar
            sys.modules["tqdm"].tqdm.write(text, file=out)
        else:
            print(text, file=out)
        out.flush()


@cache
def say_once(line: str) -> None:
    """Print a line once in a process."""
    say(line)


@contextmanager
def saying_to(out: TextIO) -> Iterator[None]:
    """Print our lines to `out` within the block, in which stdout is that of other libraries."""
    _original_stdout.append(out)
    try:
        yield
    finally:
        _original_stdout.pop()


class _Said(logging.Handler):
    """Prints what `coord_data` logs in the same way as our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


_data_log = logging.getLogger("coord_data")
_data_log.handlers[:] = [_Said()]
_data_log.setLevel(logging.INFO)
_data_log.propagate = False


_turns: dict[str, int] = {}
_TIMEOUT_DAYS = 7
"""Preparing data may take hours; a failure of the first rank ends the wait at once."""


def rank() -> int:
    """Return the number of this process; 0 if there is only one."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Return the number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Return whether this process writes files and prints."""
    return rank() == 0


@contextmanager
def first_rank_first(block: str) -> Iterator[None]:
    """Run a block on the first rank, and then on the others; they exit if the first one fails.

    Raises:
        SystemExit: on the other ranks, if the first one failed; the first one reports the reason.
    """
    if world_size() == 1:
        yield
        return
    store = _store()
    _turns[block] = _turns.get(block, 0) + 1  # the same on every rank, so that each use has its own key
    key = f"{block}.{_turns[block]}"
    if not is_first():
        _wait(store, key)
        try:
            yield
        except BaseException as error:
            fault = [os.uname().nodename, {}, str(error) or type(error).__name__]
            store.set(f"{_held_key()}.{rank()}", json.dumps(fault))  # what the comparison that follows would read
            raise
        return
    try:
        yield
    except BaseException:
        store.set(key, "failed")
        raise
    store.set(key, "done")


_LISTED = 3


def _held_key() -> str:
    """Return the key of the next comparison; each run of a process has its own."""
    return f"held.{_turns.get('held', 0) + 1}"


def refuse_differences(held: Mapping[str, Any]) -> None:
    """Compare what every rank holds, such as digests of its data, with what the first one does.

    On several machines the files of one may differ from those of another. The first rank waits for all; the others
    exit if one of them differs or has failed.

    Args:
        held: what each rank must have alike, by name

    Raises:
        InputError: on the first rank, with the ranks that hold something else or have failed.
        SystemExit: on the other ranks.
    """
    if world_size() == 1:
        return
    store, key = _store(), _held_key()
    _turns["held"] = _turns.get("held", 0) + 1
    mine = json.loads(json.dumps(held))
    if not is_first():
        store.set(f"{key}.{rank()}", json.dumps([os.uname().nodename, mine, ""]))
        _wait(store, key)
        return
    faults = []
    for number in range(1, world_size()):
        store.wait([f"{key}.{number}"], _timeout())
        host, other, error = json.loads(store.get(f"{key}.{number}"))
        if error:
            faults.append(f"rank {number} on {host} failed: {error}")
            continue
        for name, value in mine.items():
            if other.get(name) != value:
                faults.append(f"rank {number} on {host} has another {name}: {other.get(name)}, the first rank {value}")
    store.set(key, "failed" if faults else "done")
    if faults:
        raise InputError(
            f"the ranks do not hold the same: {'; '.join(faults[:_LISTED])}"
            f"{f'; and {len(faults) - _LISTED} more' if len(faults) > _LISTED else ''}. Give every machine the same "
            "files and settings, on a shared disk for example"
        )


def all_ranks_done(block: str) -> None:
    """Make the first rank wait until every rank has reached this call; the others continue at once."""
    if world_size() == 1:
        return
    _turns[f"{block} done"] = turn = _turns.get(f"{block} done", 0) + 1  # each call has keys of its own
    if not is_first():
        _store().set(f"{block}.{turn}.rank.{rank()}", "done")
        return
    for number in range(1, world_size()):
        _wait(_store(), f"{block}.{turn}.rank.{number}")


def _timeout() -> Any:
    from datetime import timedelta

    return timedelta(days=_TIMEOUT_DAYS)


def _wait(store: Store, key: str) -> None:
    from torch.distributed import DistError

    try:
        store.wait([key], _timeout())
        done = store.get(key) == b"done"
    except DistError:  # the first rank, which holds the store, has ended
        done = False
    if not done:
        raise SystemExit(1)


@cache
def _store() -> Store:
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(iter(rendezvous("env://")))
    return PrefixStore("coord_detect", store)
