"""Processes that encode samples: signals to them, and their parts of a mapped file of records."""

import os
import subprocess

import pytest
import torch
from torch.utils.data import get_worker_info

from coord_codec import Instance
from coord_data.records import Records, batch_of, write_records
from coord_trainer.data.workers import leave_signals_to_the_parent


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        leave_signals_to_the_parent()
        return os.getpid()


@pytest.mark.slow
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


class Named(torch.utils.data.Dataset):
    """The names of mapped records, and the worker that read each."""

    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return get_worker_info().id, self.records[index].image


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_and_workers_read_their_parts_of_a_mapped_file_and_each_record_once(tmp_path, monkeypatch, shuffle):
    dataloader = pytest.importorskip("swift.dataloader")
    box = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
    written = [Instance(image=f"{n}.png", objects=[box]) for n in range(64)]
    write_records(tmp_path / "a.arrow", [batch_of(written)])
    parts = []
    for rank in range(2):
        monkeypatch.setattr(dataloader.BatchSamplerShard, "rank", rank)
        monkeypatch.setattr(dataloader.BatchSamplerShard, "world_size", 2)
        samples = Named(Records.open(tmp_path / "a.arrow"))
        batches = dataloader.BatchSamplerShard(len(samples), 4, shuffle=shuffle, drop_last=False, data_seed=3)
        loader = dataloader.DataLoaderShard(samples, batch_sampler=batches, num_workers=2, collate_fn=list)
        read = [pair for batch in loader for pair in batch]
        assert {worker for worker, _ in read} == {0, 1}
        parts.append([name for _, name in read])
    assert len(parts[0]) == len(parts[1]) == 32
    assert sorted(parts[0] + parts[1]) == sorted(instance.image for instance in written)
