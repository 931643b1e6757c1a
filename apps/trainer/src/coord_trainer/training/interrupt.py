"""Interruption: SIGTERM and Ctrl-C end training after the current step with a checkpoint; a second one at once.

Outside of training steps there is nothing to save, so that the first signal stops the run at once. In either case
`Interrupted` is raised, a KeyboardInterrupt, which no `except Exception` catches.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import TrainerCallback

from coord_codec.files import read_json
from coord_detect.console import world_size
from coord_trainer.training.ranks import largest_over_ranks

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(KeyboardInterrupt):
    """Raised when a signal has ended the run.

    Attributes:
        code: the exit code that shells report: 143 for SIGTERM, 130 for Ctrl-C
    """

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(signum, message)
        self.signum = signum
        self.message = message
        self.code = 128 + signum

    def __str__(self) -> str:
        return self.message or f"interrupted by {signal.Signals(self.signum).name}"


@dataclass
class Interruption:
    """Context manager that handles the signals of a run; does nothing outside of the main thread.

    `signum` is the first signal received; 0 before that.
    """

    signum: int = 0
    _steps: bool = False
    _process: int = field(default_factory=os.getpid)
    _before: dict[signal.Signals, Any] = field(default_factory=dict)

    def __enter__(self) -> Interruption:
        """Install the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the earlier signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Within this block only record the first signal; `StopAtBoundary` then stops the run.

        Behind an error too: a launcher ends all ranks when one fails, and this one still has to write down why.
        """
        self._steps = True
        yield
        self._steps = False

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker process that encodes images is ended by its parent
            return
        if self._steps and not self.signum:
            self.signum = signum
            name = signal.Signals(signum).name
            # Not print, which the signal may have interrupted.
            os.write(2, f"\n{name}: saving a checkpoint after this step; a second one stops at once\n".encode())
            return
        self.signum = self.signum or signum
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)  # the next signal kills the process
        raise Interrupted(signum)


@dataclass(eq=False)
class StopAtBoundary(TrainerCallback):
    """Saves and stops after the step in which a signal was received, on all ranks after the same step."""

    interruption: Interruption
    """Its `signum` is that of this rank, and is set to the largest over all ranks."""
    _stopped: bool = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        signum = largest_over_ranks(self.interruption.signum, args.device)
        if signum:
            self.interruption.signum = signum
            self._stopped = True
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        if self._stopped:  # the checkpoint is saved, and an evaluation would delay the end of the process
            control.should_save = control.should_evaluate = False


@dataclass(eq=False)
class TrainingClock(TrainerCallback):
    """Counts the seconds of training, including those before a resume, and saves them in each checkpoint."""

    before: float = 0.0
    """Seconds of training up to the checkpoint that training is resumed from."""
    _started: float = field(default_factory=time.monotonic)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        self._started = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: D102
        # Saved with the state in trainer_state.json.
        state.stateful_callbacks[type(self).__name__] = {"args": {}, "attributes": {"seconds": round(self.seconds, 1)}}

    @property
    def seconds(self) -> float:
        """Seconds of training until now, including those before a resume."""
        return self.before + time.monotonic() - self._started


def seconds_of(checkpoint: Path) -> float:
    """Return the seconds of training up to a checkpoint; 0 if the checkpoint does not record them."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        callbacks = read_json(checkpoint / "trainer_state.json")["stateful_callbacks"]
        return float(callbacks[TrainingClock.__name__]["attributes"]["seconds"])
    return 0.0


@contextmanager
def explain_resume(folder: Path) -> Iterator[None]:
    """Add the command that resumes the run in `folder` to the message of an interruption within this block."""
    try:
        yield
    except KeyboardInterrupt as error:
        interrupted = Interrupted(getattr(error, "signum", signal.SIGINT))
        begun = (folder / "config.yaml").is_file()
        hint = f"continue with:\n{resume_command(folder)}" if begun else "the run had not begun yet"
        interrupted.message = f"{interrupted}; {hint}"
        raise interrupted from None


def resume_command(folder: Path) -> str:
    """Return the command line that resumes the run in `folder`."""
    installed = Path(sys.argv[0]).name == "coord-trainer"
    program = ["coord-trainer"] if installed else ["uv", "run", "apps/trainer"]
    words = [*program, "train", "-c", str(folder / "config.yaml"), f"run.dir={folder}", "run.resume=true"]
    return shlex.join(words) + (f"  (on {world_size()} ranks, as before)" if world_size() > 1 else "")
