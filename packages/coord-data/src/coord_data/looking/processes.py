"""Forked processes that run jobs on all cores.

They are forked, since a new interpreter would need seconds for imports and would run a script without an `if __name__`
line again. They ignore Ctrl-C, which the parent handles, and end when the parent ends, even if it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing.connection import wait
from typing import Any, TypeVar

from coord_codec import RunError

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
_work_stack: list[Callable[[Any], Any]] = []


def in_processes(
    work: Callable[[_Job], _Result], jobs: Iterable[_Job], beside: int = 1, workers: int | None = None
) -> Iterator[tuple[_Job, _Result]]:
    """Yield each job and its result, in order; a single job or a single core uses no further process.

    Args:
        work: any function, in its state when the processes are forked
        jobs: picklable jobs, of which a few are read in advance
        beside: number of processes that call this at the same time and share the cores
        workers: number of processes; as many as there are cores if None

    Raises:
        RunError: a process was killed from outside.
    """
    rest = iter(jobs)
    first = list(islice(rest, 2))
    cores = 1
    if sys.platform == "linux":
        cores = workers or len(os.sched_getaffinity(0)) // beside
    if len(first) < 2 or cores <= 1:
        yield from ((job, work(job)) for job in chain(first, rest))
        return
    waiting: deque[Any] = deque()
    pool = ProcessPoolExecutor(cores, multiprocessing.get_context("fork"), initializer=begin_worker, initargs=(work,))
    try:
        for job in chain(first, rest):
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # "other threads exist"
                waiting.append((job, pool.submit(run_job, job)))
            if len(waiting) > 4 * cores:
                done, future = waiting.popleft()
                yield done, future.result()
        yield from ((job, future.result()) for job, future in waiting)
    except BrokenProcessPool:
        raise RunError("a worker process was killed from outside (is memory exhausted?)") from None
    finally:
        pool.shutdown(cancel_futures=True)


def run_job(job: Any) -> Any:
    """Return the result of a job, in a process that `begin_worker` has begun."""
    return _work_stack[-1](job)


def begin_worker(work: Callable[[Any], Any]) -> None:
    """Keep the work, ignore Ctrl-C, which the parent handles, and end by SIGTERM when the parent has ended."""
    _work_stack.append(work)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in a process that was forked
    sentinel = parent.sentinel

    def end_with_parent() -> None:
        wait([sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
