"""Processes that encode samples: what a terminal or a batch system sends to all processes of a run is not for them."""

from __future__ import annotations

import os
import signal
import threading

from torch.utils.data import get_worker_info

_prepared: set[int] = set()


def leave_signals_to_the_parent() -> None:
    """In a process that encodes samples, take SIGTERM from the parent alone and no SIGINT; elsewhere do nothing.

    Without it, it would end while the parent still needs batches to reach the step's end; deaf to its parent, it would
    keep the run from ending.
    """
    if get_worker_info() is None or os.getpid() in _prepared:
        return
    _prepared.add(os.getpid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # where a thread has it that began before
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_the_parents_signal, daemon=True).start()


def _end_with_the_parents_signal() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
