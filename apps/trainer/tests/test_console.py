"""The order of several ranks, without starting any; lines with characters that the console does not have."""

import io
import sys
from types import SimpleNamespace

import pytest

from coord_detect import console
from coord_trainer.console import refuse_loose_tasks


class Store(dict):
    def set(self, key, value):
        self[key] = value.encode()

    def wait(self, keys, timeout):
        assert all(key in self for key in keys)


def test_other_ranks_follow_the_first_and_stop_when_it_fails(monkeypatch):
    store, order = Store(), []
    monkeypatch.setattr(console, "_store", lambda: store)
    monkeypatch.setattr(console, "_turns", {})
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with console.first_rank_first("block"):
        order.append(0)
    with pytest.raises(KeyError), console.first_rank_first("block"):
        raise KeyError
    monkeypatch.setattr(console, "_turns", {})
    monkeypatch.setenv("RANK", "1")
    with console.first_rank_first("block"):
        order.append(1)
    with pytest.raises(SystemExit), console.first_rank_first("block"):
        order.append(2)
    assert order == [0, 1]


def test_ranks_that_hold_something_else_or_failed_are_named_on_the_first_rank(monkeypatch):
    from coord_codec import InputError

    store = Store({"block.1": b"done"})
    monkeypatch.setattr(console, "_store", lambda: store)
    monkeypatch.setattr(console.os, "uname", lambda: SimpleNamespace(nodename="node-b"))
    monkeypatch.setattr(console, "_wait", lambda store, key: None)

    def as_rank(number, of, runs=0):
        monkeypatch.setenv("WORLD_SIZE", str(of))
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setattr(console, "_turns", {"held": runs})

    as_rank(1, 3)
    console.refuse_differences({"train data": "b", "configuration": {"a": (1, 2)}})
    as_rank(2, 3)
    with pytest.raises(KeyError), console.first_rank_first("block"):
        raise KeyError("gone.json")
    as_rank(0, 3)
    with pytest.raises(
        InputError, match="rank 1 on node-b has another train data: b, the first rank a; rank 2 on node-b failed: 'gone"
    ):
        console.refuse_differences({"train data": "a", "configuration": {"a": [1, 2]}})
    assert store["held.1"] == b"failed"
    for number in (1, 0):  # a second run of the same processes
        as_rank(number, 2, runs=1)
        console.refuse_differences({"train data": "c", "configuration": {"a": [1, 2]}})
    assert store["held.2"] == b"done"


def test_tasks_of_slurm_without_torchrun_are_refused(monkeypatch):
    from coord_codec import InputError

    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    monkeypatch.setenv("RANK", "0")
    refuse_loose_tasks()
    monkeypatch.delenv("RANK")
    with pytest.raises(InputError, match=r"srun started 8 tasks without torchrun, .*--ntasks-per-node=1"):
        refuse_loose_tasks()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    refuse_loose_tasks()


def test_single_process_waits_for_nobody(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(console, "_store", None)
    with console.first_rank_first("block"):
        assert console.is_first()


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "stra\xdfe caf\\udce9"), ("ascii", "stra\\xdfe caf\\udce9")])
def test_names_that_the_console_cannot_show_are_escaped(monkeypatch, encoding, shown):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    console.say("stra\xdfe caf\udce9")
    assert out.buffer.getvalue().decode(encoding) == shown + "\n"
