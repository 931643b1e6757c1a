"""Signals to a process that encodes samples."""

import os
import subprocess

import torch

from coord_trainer.data.workers import leave_signals_to_the_parent


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        leave_signals_to_the_parent()
        return os.getpid()


def test_worker_outlives_signals_of_others_and_ends_with_its_parents():
    batches = iter(torch.utils.data.DataLoader(Samples(), num_workers=1, batch_size=1, prefetch_factor=1))
    (worker,) = batches._workers
    assert int(next(batches)) == worker.pid != os.getpid()
    subprocess.run(["/bin/kill", "-TERM", str(worker.pid)], check=True)
    subprocess.run(["/bin/kill", "-INT", str(worker.pid)], check=True)
    assert [int(batch) for batch in batches] == [worker.pid] * 3
    worker.join(20)  # asked to end, it ends by itself
    assert worker.exitcode == 0
    batches = iter(torch.utils.data.DataLoader(Samples(), num_workers=1, batch_size=1, prefetch_factor=1))
    next(batches)
    (left,) = batches._workers
    left.terminate()  # as Python does at its end with processes that are left
    left.join(20)
    assert left.exitcode == 0
