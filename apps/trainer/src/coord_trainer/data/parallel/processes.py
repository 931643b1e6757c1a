"""Forked processes: jobs that all cores share out, and work that is done while this process does something else.

They are forked, since a new interpreter would import for seconds, and run a script again that has no `if __name__`
line. They leave Ctrl-C to their parent and end when it ends, killed or not.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from coord_codec import InputError
from coord_trainer.console import RunError

_Job, _Result = TypeVar("_Job"), TypeVar("_Result")
_inherited: list[Callable[[Any], Any]] = []
_ENDED = "a process beside this one was ended from outside (is memory exhausted?)"


def in_processes(
    work: Callable[[_Job], _Result], jobs: Iterable[_Job], beside: int = 1
) -> Iterator[tuple[_Job, _Result]]:
    """Yield each job and its result, in order; a single job, or a single core, needs no further process.

    Args:
        work: any function; the processes have it as it was when they were forked
        jobs: what can be pickled, read a few ahead
        beside: how many processes call this at the same time and share the cores

    Raises:
        RunError: a process was ended by something else.
    """
    rest = iter(jobs)
    first = list(islice(rest, 2))
    cores = max(1, _cores() // beside)
    if len(first) < 2 or cores == 1:
        yield from ((job, work(job)) for job in chain(first, rest))
        return
    waiting: deque[Any] = deque()
    pool = ProcessPoolExecutor(cores, multiprocessing.get_context("fork"), initializer=_begin, initargs=(work,))
    try:
        for job in chain(first, rest):
            with _forking():
                waiting.append((job, pool.submit(_do, job)))
            if len(waiting) > 4 * cores:
                yield _result(*waiting.popleft())
        yield from (_result(*pair) for pair in waiting)
    except BrokenProcessPool:
        raise RunError(_ENDED) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    _inherited.append(work)
    _follow_the_parent()


def _do(job: Any) -> Any:
    return _inherited[-1](job)


def _result(job: _Job, future: Future[_Result]) -> tuple[_Job, _Result]:
    return job, future.result()


@dataclass
class Outcome(Generic[_Result]):
    """What work returned, once the block that it went beside has ended."""

    value: _Result | None = None


@contextmanager
def meanwhile(work: Callable[[], _Result]) -> Iterator[Outcome[_Result]]:
    """Do work in a process while the block runs, and wait for it; on a single core it comes before the block.

    Yields where to find what it returned, which has to be something that can be pickled.

    Raises:
        RunError: the process was ended by something else.
        Exception: what the work raised.
    """
    if _cores() == 1:
        yield Outcome(work())
        return
    outcome: Outcome[_Result] = Outcome()
    told, teller = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_tell, args=(work, teller))
    with _forking():
        process.start()
    teller.close()
    try:
        yield outcome
        try:
            error, outcome.value = told.recv()
        except EOFError:
            raise RunError(_ENDED) from None
        if error is not None:
            raise error
    finally:
        process.terminate()
        process.join()
        told.close()


def _tell(work: Callable[[], Any], teller: Connection) -> None:
    _follow_the_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it writes is taken away
    try:
        value = work()
    except Exception as error:  # raised by the parent
        if not isinstance(error, InputError | RunError):
            error.add_note(traceback.format_exc())  # which does not travel by itself
        teller.send((error, None))
    else:
        teller.send((None, value))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _forking() -> warnings.catch_warnings:
    return warnings.catch_warnings(action="ignore", category=DeprecationWarning)  # that other threads exist


def _follow_the_parent() -> None:
    """Leave Ctrl-C to the parent; end by SIGTERM when it is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def end_with_it() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_it, daemon=True).start()
