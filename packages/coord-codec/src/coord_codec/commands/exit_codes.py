"""Exit codes of command lines: 2 for bad input, 1 for a failed run, 130 or 143 if interrupted; never a traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from coord_codec.files import InputError, RunError


@contextmanager
def exit_codes(*, quiet: bool = False) -> Iterator[None]:
    """Run a command, and end the process with one line on stderr where it fails for a reason that a user can mend.

    Raises:
        SystemExit: 2 for bad input, 1 for a failed run, 130 for an interrupt, 143 for SIGTERM
    """
    signals: list[int] = []
    try:
        with _terminated_as_interrupted(signals):
            yield
            sys.stdout.flush()
    except InputError as error:
        stop(f"error: {error}", 2)
    except RunError as error:
        stop(f"error: {error}", 1)
    except BrokenPipeError:
        # The reader of the output has ended (`| head`), which is no error; what Python flushes on exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (FileExistsError, NotADirectoryError) as error:
        stop(f"error: {error.filename}: it is a file, or is below one; name another folder", 2)
    except FileNotFoundError as error:
        if error.filename is None:  # of no file that a user could look for
            raise
        stop(f"error: {error.filename}: no such file or folder; check the path", 2)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            stop(f"error: {error.filename!s:.80}...: the name is too long for a file; check the words", 2)
        if isinstance(error, PermissionError):
            stop(f"error: {error.filename or error}: {error.strerror or 'no permission'}; choose another place", 1)
        if error.errno == errno.EROFS:
            stop(f"error: {error.filename}: on a read-only file system; choose another place", 1)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        stop(f"error: {error.filename or 'the disk'}: no space left; free some or choose another place", 1)
    except KeyboardInterrupt as error:  # of a run: its message names the command to resume it
        if not quiet:
            print(str(error) or "interrupted", file=sys.stderr, flush=True)
        sys.exit(getattr(error, "code", 128 + (signals or [signal.SIGINT])[0]))


def stop(message: str, code: int) -> NoReturn:
    """Print a message on stderr and end the process."""
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)


@contextmanager
def _terminated_as_interrupted(received: list[int]) -> Iterator[None]:
    """Turn SIGTERM into an interrupt within the block, so that unfinished files are removed; list it in `received`.

    A second SIGTERM ends the process at once. Processes that are forked in the block end as without it.
    """
    process = os.getpid()

    def on_signal(signum: int, _: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)
        if os.getpid() != process:
            os.kill(os.getpid(), signum)
        received.append(signum)
        raise KeyboardInterrupt("interrupted by SIGTERM")

    handles = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    if handles:
        signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
