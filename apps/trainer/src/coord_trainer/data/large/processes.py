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
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from coord_codec import InputError
from coord_trainer.console import RunError

_Job, _Result = TypeVar("_Job"), TypeVar("_Result")
_ENDED = "a process that checks records was ended from outside (is memory exhausted?)"


def in_processes(work: Callable[[_Job], _Result], jobs: Iterable[_Job]) -> Iterator[tuple[_Job, _Result]]:
    """Yield each job and its result, in order; a single job, or a single core, needs no further process.

    Args:
        work: a function that can be pickled
        jobs: read a few ahead

    Raises:
        RunError: a process was ended by something else.
    """
    rest = iter(jobs)
    first = list(islice(rest, 2))
    cores = _cores()
    if len(first) < 2 or cores == 1:
        yield from ((job, work(job)) for job in chain(first, rest))
        return
    waiting: deque[Any] = deque()
    pool = ProcessPoolExecutor(cores, multiprocessing.get_context("fork"), initializer=_follow_the_parent)
    try:
        for job in chain(first, rest):
            with _forking():
                waiting.append((job, pool.submit(work, job)))
            if len(waiting) > 4 * cores:
                yield _result(*waiting.popleft())
        yield from (_result(*pair) for pair in waiting)
    except BrokenProcessPool:
        raise RunError(_ENDED) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _result(job: _Job, future: Future[_Result]) -> tuple[_Job, _Result]:
    return job, future.result()


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Do work in a process while the block runs, and wait for it; on a single core it comes before the block.

    Raises:
        RunError: the process was ended by something else.
        Exception: what the work raised.
    """
    if _cores() == 1:
        work()
        yield
        return
    told, teller = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_tell, args=(work, teller))
    with _forking():
        process.start()
    teller.close()
    try:
        yield
        try:
            error = told.recv()
        except EOFError:
            raise RunError(_ENDED) from None
        if error is not None:
            raise error
    finally:
        process.terminate()
        process.join()
        told.close()


def _tell(work: Callable[[], None], teller: Connection) -> None:
    _follow_the_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it writes is taken away
    try:
        work()
    except Exception as error:  # raised by the parent
        if not isinstance(error, InputError | RunError):
            error.add_note(traceback.format_exc())  # which does not travel by itself
        teller.send(error)
    else:
        teller.send(None)


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
