"""Where jobs run: in processes of this machine, or on a Ray cluster; and how many at a time."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from coord_codec import InputError, RunError
from coord_data.looking.processes import in_processes

Engine = Literal["local", "ray"]
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")
_RETRIES = 3
"""How often a job is repeated whose worker was lost."""


@dataclass(frozen=True)
class Execution:
    """How images are looked at; what is found does not depend on it, except for `parts`, which are continued.

    Attributes:
        workers: number of processes, 1 for none beside this one; all cores if None
        engine: `local` processes, or `ray` (`pip install "coord-data[ray]"`): a running cluster, else this machine
        parts: folder in which what is done is kept until the command ends, so that it can be continued; None for none
    """

    workers: int | None = None
    engine: Engine = "local"
    parts: Path | None = None
    _are_done: list[bool] = field(default_factory=list, repr=False, compare=False)

    @contextmanager
    def next_set(self) -> Iterator[Path | None]:
        """Yield the folder of the parts of the next set of images; the set is done if the block ends without error."""
        number = len(self._are_done)
        self._are_done.append(False)
        yield None if self.parts is None else self.parts / f"set-{number}"
        self._are_done[number] = True


_EXECUTION: ContextVar[Execution | None] = ContextVar("execution", default=None)


def execution() -> Execution:
    """Return how images are looked at in this context."""
    return _EXECUTION.get() or Execution()


@contextmanager
def executed(how: Execution) -> Iterator[None]:
    """Look at images in this way within the block; its parts are removed at the end if all sets of images are done.

    Raises:
        InputError: the engine is not installed.

    Example:
        >>> with executed(Execution(workers=1)):
        ...     execution().workers
        1
    """
    if how.engine == "ray":
        import_ray()
    token = _EXECUTION.set(how)
    try:
        yield
    finally:
        _EXECUTION.reset(token)
        if how.parts is not None and all(how._are_done):
            shutil.rmtree(how.parts, ignore_errors=True)


def run_jobs(work: Callable[[_Job], _Result], jobs: Iterable[_Job]) -> Iterator[tuple[_Job, _Result]]:
    """Yield each job and its result, in order; a job whose worker was lost is repeated by Ray.

    Args:
        work: a function that can be pickled, for Ray
        jobs: what it is called with

    Raises:
        RunError: a process was killed, or a job was lost several times.
    """
    how = execution()
    if how.engine == "ray":
        return _on_ray(work, jobs, how.workers)
    return in_processes(work, jobs, workers=how.workers)


def _on_ray(
    work: Callable[[_Job], _Result], jobs: Iterable[_Job], workers: int | None
) -> Iterator[tuple[_Job, _Result]]:
    """Yield the results of Ray tasks, of which there are a few more at a time than processors."""
    ray = import_ray()
    connect(workers)
    task = ray.remote(max_retries=_RETRIES, num_cpus=1)(lambda job: work(job))  # noqa: PLW0108 - Ray takes no partial function
    at_once = 2 * (workers or int(ray.cluster_resources().get("CPU", 1)))
    waiting: deque[tuple[_Job, Any]] = deque()
    try:
        for job in jobs:
            waiting.append((job, task.remote(job)))
            if len(waiting) > at_once:
                done, reference = waiting.popleft()
                yield done, ray.get(reference)
        while waiting:
            done, reference = waiting.popleft()
            yield done, ray.get(reference)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1][:200]
        raise RunError(f"--engine ray: a job failed {_RETRIES + 1} times ({reason}); see Ray's logs") from None
    finally:
        for _, reference in waiting:
            ray.cancel(reference, force=True)


def import_ray(extra: str = "coord-data[ray]") -> Any:
    """Return the module; `extra` is what installs it.

    Raises:
        InputError: it is not installed.
    """
    try:
        import ray  # type: ignore[import-not-found]
    except ImportError:
        message = f'--engine ray: Ray is not installed; install the extra: pip install "{extra}"'
        raise InputError(message) from None
    return ray


def connect(cores: int | None = None, **own: Any) -> None:
    """Connect this process with the cluster of RAY_ADDRESS, or start Ray on this machine; once in a process.

    Args:
        cores: number of those that Ray has on this machine, all if None
        own: further arguments of `ray.init` for Ray on this machine
    """
    ray = import_ray()
    if not ray.is_initialized():
        here = {"num_cpus": cores, "include_dashboard": False} | own
        ray.init(log_to_driver=False, logging_level="ERROR", **({} if os.environ.get("RAY_ADDRESS") else here))
