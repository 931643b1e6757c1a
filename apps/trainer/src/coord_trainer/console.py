"""A file for the output of swift, and the ranks of a training: how they are started, and how they end."""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from coord_codec import InputError
from coord_detect.console import is_first, rank, saying_to

_LOGGERS = ("", "swift", "modelscope", "transformers", "accelerate", "datasets", "deepspeed", "DeepSpeed")


@contextmanager
def swift_log(path: Path) -> Iterator[Callable[[], None]]:
    """Redirect the output and logs of swift, transformers and related libraries to `path`, except progress bars.

    Ranks after the first have their own file, `swift.1.log` and so on.

    Yields a function to call after these libraries are imported, since they create log handlers during the import.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path if is_first() else path.with_name(f"{path.stem}.{rank()}{path.suffix}")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.handlers[:] for logger in loggers]
    out = sys.stdout
    with path.open("a", encoding="utf-8") as file, redirect_stdout(file):
        # Not a plain StreamHandler: swift silences those of the root logger during its import.
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))

        def take_over() -> None:
            for logger in loggers:
                logger.handlers[:] = [handler]
            logging.getLogger("swift").setLevel(logging.INFO)
            logging.captureWarnings(True)

        try:
            with warnings.catch_warnings(), saying_to(out):
                take_over()
                yield take_over
        finally:
            logging.captureWarnings(False)
            for logger, handlers in zip(loggers, before, strict=True):
                logger.handlers[:] = handlers
            handler.close()


def refuse_loose_tasks() -> None:
    """Raise `InputError` for tasks that SLURM started together without torchrun, which would train alone."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if "RANK" not in os.environ and tasks.isdigit() and int(tasks) > 1:
        raise InputError(
            f"SLURM_STEP_NUM_TASKS: srun started {tasks} tasks without torchrun, each of which would train alone; "
            "start one task on each node (srun --ntasks-per-node=1) that runs torchrun, as docs/guides/gpu.md shows"
        )


def set_single_rank_environment() -> None:
    """Set torchrun's variables for a process that no launcher has started; DeepSpeed would otherwise require MPI."""
    if "RANK" in os.environ:
        return
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    variables = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})


def leave_process_group() -> None:
    """Leave the process group, at the end of a run without errors."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
