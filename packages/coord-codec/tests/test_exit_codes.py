"""Exit codes and messages of every command line, and signals while a command runs."""

import errno
import os
import signal
import time

import pytest

from coord_codec import InputError
from coord_codec.commands.exit_codes import _terminated_as_interrupted, exit_codes
from coord_codec.files import RunError


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (InputError("a: wrong"), 2, "error: a: wrong"),
        (RunError("diverged"), 1, "error: diverged"),
        (PermissionError(errno.EACCES, "Permission denied", "out/a"), 1, "error: out/a: Permission denied; choose"),
        (OSError(errno.EROFS, "Read-only file system", "out/a"), 1, "error: out/a: on a read-only file system"),
        (OSError(errno.ENOSPC, "No space left on device", "out/a"), 1, "error: out/a: no space left"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "out/a"), 1, "error: out/a: no space left"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "error: the disk: no space left"),
        (PermissionError("locked"), 1, "error: locked: no permission; choose"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a"), 2, "error: a: no such file or folder"),
        (OSError(errno.EEXIST, "File exists", "out/a"), 2, "error: out/a: it is a file, or is below one"),
        (OSError(errno.ENOTDIR, "Not a directory", "out/a"), 2, "error: out/a: it is a file, or is below one"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "a" * 300), 2, f"error: {'a' * 80}...: the name is too"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_what_ends_a_command_is_one_line_and_a_code(error, code, told, capsys):
    with pytest.raises(SystemExit) as stopped, exit_codes():
        raise error
    printed = capsys.readouterr().err
    assert (stopped.value.code, printed.count("\n")) == (code, 1) and printed.startswith(told)


def test_an_error_of_the_program_is_raised_and_a_quiet_interrupt_says_nothing(capsys):
    for error in (OSError(errno.EIO, "broken"), FileNotFoundError("broken"), ValueError("broken")):
        with pytest.raises(type(error), match="broken"), exit_codes():
            raise error
    with pytest.raises(SystemExit), exit_codes(quiet=True):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


@pytest.fixture
def default_sigterm():
    """SIGTERM as a process starts with it, whatever a command called before has installed."""
    installed = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, installed)


@pytest.mark.usefixtures("default_sigterm")
def test_process_that_a_command_forks_ends_by_sigterm_as_any_other():
    received = []
    with _terminated_as_interrupted(received):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(write, b"x")
                time.sleep(60)
            finally:
                os._exit(0)
        os.read(read, 1)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not received
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.usefixtures("default_sigterm")
def test_terminated_command_ends_as_one_that_is_interrupted_with_its_own_code(capsys):
    for message, code in (("", 143), ("say resume", 7)):
        with pytest.raises(SystemExit) as stopped, exit_codes():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
            except KeyboardInterrupt as interrupt:
                if not message:
                    raise
                interrupt.args, interrupt.code = (message,), code
                raise
        assert stopped.value.code == code and capsys.readouterr().err == (message or "interrupted by SIGTERM") + "\n"
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.usefixtures("default_sigterm")
def test_handler_that_a_program_has_installed_itself_stays():
    received = []
    signal.signal(signal.SIGTERM, own := lambda *given: received.append(given[0]))
    with exit_codes():
        assert signal.getsignal(signal.SIGTERM) is own
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is own and received == [signal.SIGTERM]
