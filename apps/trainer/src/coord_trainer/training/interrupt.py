"""Interruption: SIGTERM and Ctrl-C end training behind the current step with a checkpoint; a second one at once.

Outside of training steps there is nothing to save, so that the first signal already stops the run. Everywhere it
leaves as `Interrupted`, a KeyboardInterrupt, which no `except Exception` swallows.
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
from pathlib import Path
from types import FrameType

from transformers import TrainerCallback

from coord_codec.files import read_json
from coord_trainer.console import world_size
from coord_trainer.training.ranks import largest_over_ranks

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(KeyboardInterrupt):
    """A run that a signal ended.

    Attributes:
        code: the exit code that shells give such a process: 143 for SIGTERM, 130 for Ctrl-C
    """

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(signum, message)
        self.signum, self.message, self.code = signum, message, 128 + signum

    def __str__(self) -> str:
        return self.message or f"interrupted by {signal.Signals(self.signum).name}"


class Interruption:
    """The signals of a run, as a context; does nothing outside of a process's main thread.

    Attributes:
        signum: the first signal; 0 while there was none
    """

    def __init__(self) -> None:
        self.signum = 0
        self._steps, self._process, self._before = False, os.getpid(), {}

    def __enter__(self) -> Interruption:
        """Take over the signals."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Within this block, the first signal is only noted: a `StopAtBoundary` acts on it."""
        self._steps = True
        try:
            yield
        finally:
            self._steps = False

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a process that encodes images: its parent decides when it ends
            return
        if self._steps and not self.signum:
            self.signum = signum
            name = signal.Signals(signum).name
            # Not print: the signal may have come in the middle of one.
            os.write(2, f"\n{name}: saving a checkpoint after this step; a second one stops at once\n".encode())
            return
        self.signum = self.signum or signum
        for number in self._before:
            signal.signal(number, signal.SIG_DFL)  # what does not end now, the next one kills
        raise Interrupted(signum)


class StopAtBoundary(TrainerCallback):
    """Saves and stops behind the step in which a signal came, on all ranks behind the same step.

    Args:
        interruption: its `signum` is the wish of this rank, and afterwards that of all.
    """

    def __init__(self, interruption: Interruption) -> None:
        self._interruption, self._stopped = interruption, False

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        signum = largest_over_ranks(self._interruption.signum, args.device)
        if signum:
            self._interruption.signum, self._stopped = signum, True
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False

    def on_epoch_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        if self._stopped:  # saved already; who waits for the process to end does not wait for an evaluation
            control.should_save = control.should_evaluate = False


class TrainingClock(TrainerCallback):
    """Counts the seconds of training, those of earlier parts included, and leaves them in each checkpoint.

    Args:
        before: seconds that led to the checkpoint which training goes on from
    """

    def __init__(self, before: float = 0.0) -> None:
        self._before, self._started = before, time.monotonic()

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # noqa: D102
        self._started = time.monotonic()

    def on_step_end(self, args, state, control, **kwargs) -> None:  # noqa: D102
        # Saved with the state in trainer_state.json.
        state.stateful_callbacks[type(self).__name__] = {"args": {}, "attributes": {"seconds": round(self.seconds, 1)}}

    @property
    def seconds(self) -> float:
        """Seconds of all parts until now."""
        return self._before + time.monotonic() - self._started


def seconds_of(checkpoint: Path) -> float:
    """Return the seconds of training that led to a checkpoint; 0 where it does not say."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        callbacks = read_json(checkpoint / "trainer_state.json")["stateful_callbacks"]
        return float(callbacks[TrainingClock.__name__]["attributes"]["seconds"])
    return 0.0


@contextmanager
def say_how_to_go_on(folder: Path) -> Iterator[None]:
    """Give an interruption that leaves this block a message with the command that continues the run in `folder`."""
    try:
        yield
    except KeyboardInterrupt as error:
        told = Interrupted(getattr(error, "signum", signal.SIGINT))
        begun = (folder / "config.yaml").is_file()
        told.message = f"{told}; " + (f"go on with:\n{command_to_go_on(folder)}" if begun else "nothing was begun yet")
        raise told from None


def command_to_go_on(folder: Path) -> str:
    """Return the command that continues the run in `folder`."""
    installed = Path(sys.argv[0]).name == "coord-trainer"
    program = ["coord-trainer"] if installed else ["uv", "run", "apps/trainer"]
    words = [*program, "train", "-c", str(folder / "config.yaml"), f"run.dir={folder}", "run.resume=true"]
    return shlex.join(words) + (f"  (on {world_size()} ranks, as before)" if world_size() > 1 else "")
