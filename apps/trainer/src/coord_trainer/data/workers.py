"""Signal handling of data-loader workers, which ignore signals that are sent to all processes of a run."""

from __future__ import annotations

import os
import signal
import threading

from torch.utils.data import get_worker_info

_prepared: set[int] = set()


def leave_signals_to_the_parent() -> None:
    """Ignore SIGINT, and SIGTERM unless the parent sent it, in a data-loader worker; elsewhere do nothing.

    Otherwise the worker would end while the parent still needs batches to complete the step. If it ignored the parent's
    SIGTERM too, the run could not end.
    """
    if get_worker_info() is None or os.getpid() in _prepared:
        return
    _prepared.add(os.getpid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # for threads started before this call
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_the_parents_signal, daemon=True).start()


def _end_with_the_parents_signal() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
