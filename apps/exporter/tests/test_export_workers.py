"""Tensors made side by side: the same bytes, nothing running on after a failure, only durable bytes dropped."""

import os
import threading
import time

import pytest
import torch
from export_tiny import make_adapter

from coord_exporter import ExportError, merge
from coord_exporter.flushing import Flusher
from coord_exporter.workers import Workers
from coord_exporter.workspace import Workspace, bytes_of


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_any_number_of_threads_gives_the_same_bytes(bases, tmp_path, three_threads):
    make_adapter(tmp_path / "adapter", bases(False), "separate", use_dora=True)
    for threads in (3, 1):
        torch.set_num_threads(threads)
        merge(bases(False), tmp_path / "adapter", tmp_path / f"out{threads}", verify=False, quiet=True)
        assert torch.get_num_threads() == threads
    one, other = ({path.name: path.read_bytes() for path in (tmp_path / f"out{n}").iterdir()} for n in (3, 1))
    assert one == other


def test_workers_have_workspaces_of_their_own(three_threads):
    held, meeting = [], threading.Barrier(3)

    def work(item, workspace):
        meeting.wait(timeout=60)  # so that each of three threads takes one
        held.append((threading.get_ident(), id(workspace), torch.get_num_threads()))

    with Workers() as workers:
        workers.run(work, range(3))
    assert len({thread for thread, _, _ in held}) == len({space for _, space, _ in held}) == 3
    assert {threads for _, _, threads in held} == {1}


def test_a_failure_ends_when_nothing_is_being_worked_on(three_threads):
    begun, ended = [], []

    def work(item, workspace):
        begun.append(item)
        if item == 1:
            raise ExportError("no room")
        time.sleep(0.05)
        ended.append(item)

    with Workers() as workers:
        with pytest.raises(ExportError, match="no room"):
            workers.run(work, range(50))
        assert sorted([*ended, 1]) == sorted(begun) and len(begun) < 50


def test_a_failure_among_threads_leaves_nothing(bases, tmp_path, three_threads):
    make_adapter(tmp_path / "adapter", bases(False, "float16"), lora_alpha=1e8)
    with pytest.raises(ExportError, match=r"_proj.weight: row \d+ is not finite in F16"):
        merge(bases(False, "float16"), tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]


def test_buffers_are_handed_out_again_and_grow():
    workspace = Workspace()
    small = workspace.take("rows", (3, 5), torch.float32)
    assert small.shape == (3, 5) and len(bytes_of(small)) == 60
    assert workspace.take("rows", (7,), torch.bfloat16).data_ptr() == small.data_ptr()
    assert workspace.take("delta", (3, 5), torch.float32).data_ptr() != small.data_ptr()
    large = workspace.take("rows", (40, 5), torch.float32)
    bytes_of(large)[:4] = b"\x00\x00\x80\x3f"
    assert large[0, 0] == 1.0
    assert workspace.take("rows", (3, 5), torch.float32).data_ptr() == large.data_ptr()


def test_only_durable_bytes_leave_the_cache(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(("sync", os.fstat(fd).st_ino)))
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, *range_: calls.append(("drop", os.fstat(fd).st_ino)), raising=False
    )
    monkeypatch.setattr("coord_exporter.flushing._FLUSH_BYTES", 100)
    for name in ("one", "other"):
        (tmp_path / name).write_bytes(b"x")
    one, other = ((tmp_path / name).stat().st_ino for name in ("one", "other"))
    with Flusher() as flusher:
        for _ in range(5):
            flusher.wrote(tmp_path / "one", 40)
        flusher.finish(tmp_path / "other")
        flusher.wait()
    assert calls == [("sync", one), ("drop", one), ("sync", other), ("drop", other)]
