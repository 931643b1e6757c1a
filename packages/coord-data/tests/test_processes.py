"""Forked processes: jobs shared out, and ends of either side."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from coord_codec import RunError
from coord_data.looking import processes
from coord_data.looking.processes import in_processes


@pytest.fixture(autouse=True)
def cores(request, monkeypatch):
    """Two cores, or as many as a test asks for."""
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: set(range(getattr(request, "param", 2))))


on_one_and_two_cores = pytest.mark.parametrize("cores", [1, 2], indirect=True)


@pytest.mark.slow
@on_one_and_two_cores
def test_work_need_not_be_picklable_but_its_results():
    lock = threading.Lock()  # which cannot be pickled
    found = in_processes(lambda n: (n, lock.locked()), range(3))
    assert [result for _, result in found] == [(0, False), (1, False), (2, False)]


def _end(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@on_one_and_two_cores
def test_results_come_in_the_order_of_the_jobs():
    assert list(in_processes(partial(pow, 2), range(30))) == [(n, 2**n) for n in range(30)]


@pytest.mark.slow
def test_process_that_is_killed_fails_the_run():
    with pytest.raises(RunError, match="killed from outside"):
        list(in_processes(_end, [1, 2, 3]))


_RUN = """
import os, sys, time
from functools import partial
from pathlib import Path
from coord_data.looking import processes

def job(folder, n):
    (folder / f"job{os.getpid()}").touch()
    time.sleep(0.5)  # a process ends behind its job

list(processes.in_processes(partial(job, Path(sys.argv[1])), range(1000), workers=2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_a_parent_that_is_killed(tmp_path, how):
    with subprocess.Popen([sys.executable, "-c", _RUN, str(tmp_path)]) as parent:
        _until(lambda: len(list(tmp_path.iterdir())) == 2, 60)
        parent.send_signal(how)
    left = [int(path.name.strip("job")) for path in tmp_path.iterdir()]
    _until(lambda: not any(Path(f"/proc/{number}").exists() for number in left), 30)


def _until(fulfilled, seconds):
    end = time.monotonic() + seconds
    while not fulfilled():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)
