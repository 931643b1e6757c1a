"""The order of several ranks, without starting any; lines with characters that the console does not have."""

import io
import logging
import os
import sys
from types import SimpleNamespace

import pytest

from coord_codec import InputError
from coord_detect import console, environment
from coord_detect.extras import needs_extra


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


def test_ranks_but_the_first_print_nothing_and_lines_go_to_the_stdout_of_before(monkeypatch, capsys):
    other = io.StringIO()
    with console.saying_to(other):
        console.say("a")
        with console.saying_to(io.StringIO()) as _:
            pass
        console.say("b")
    with pytest.raises(KeyError), console.saying_to(io.StringIO()):
        raise KeyError
    console.say("c")
    monkeypatch.setenv("RANK", "1")
    console.say("d")
    assert (other.getvalue(), capsys.readouterr().out) == ("a\nb\n", "c\n")
    assert (console.rank(), console.is_first(), console.world_size()) == (1, False, 1)
    monkeypatch.delenv("RANK")
    assert (console.rank(), console.is_first()) == (0, True)


def test_line_that_is_said_once_is_said_once_and_what_the_data_logs_is_said(capsys):
    for _ in range(2):
        console.say_once("only once, by this test")
    logging.getLogger("coord_data.any").info("%s images", 3)
    logging.getLogger("coord_data.any").debug("more")
    assert capsys.readouterr() == ("only once, by this test\n3 images\n", "")


def test_first_rank_waits_for_every_other_at_each_call(monkeypatch):
    store, waited = Store(), []
    monkeypatch.setattr(console, "_store", lambda: store)
    monkeypatch.setattr(console, "_wait", lambda store, key: waited.append((key, store[key])))
    monkeypatch.setenv("WORLD_SIZE", "3")
    for _ in range(2):
        for number in (1, 2, 0):
            monkeypatch.setenv("RANK", str(number))
            monkeypatch.setattr(console, "_turns", {"answers done": len(waited) // 2})
            console.all_ranks_done("answers")
    assert waited == [(f"answers.{turn}.rank.{number}", b"done") for turn in (1, 2) for number in (1, 2)]


def test_many_differences_of_ranks_are_counted(monkeypatch):
    store = Store()
    monkeypatch.setattr(console, "_store", lambda: store)
    monkeypatch.setattr(console, "_wait", lambda store, key: None)
    monkeypatch.setenv("WORLD_SIZE", "6")
    for number in (1, 2, 3, 4, 5, 0):
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setattr(console, "_turns", {})
        held = {"data": min(number, 1) and number, "same": [1]}
        held |= {} if number == 5 else {"sometimes": 0}
        if number:
            console.refuse_differences(held)
            continue
        with pytest.raises(InputError) as caught:
            console.refuse_differences(held)
    told = str(caught.value)
    assert told.count(" has another data") == 3 and "; and 3 more. Give" in told and "another same" not in told


def test_environment_of_a_user_stays_and_the_network_is_asked_for(monkeypatch):
    given = {"HF_HUB_OFFLINE": "0", "LOG_LEVEL": "DEBUG"}
    for name in (*environment._DEFAULTS, "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "TQDM_DISABLE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    environment.set_environment()
    assert {name: os.environ[name] for name in environment._DEFAULTS} == environment._DEFAULTS | given
    assert os.environ["GOMP_SPINCOUNT"] == "3000" and "TQDM_DISABLE" not in os.environ
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RANK", "1")
    environment.set_environment(download=True)
    assert (os.environ["HF_HUB_OFFLINE"], os.environ["HF_DATASETS_OFFLINE"], os.environ["TQDM_DISABLE"]) == (
        "0",
        "1",
        "1",
    )
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    environment.set_environment()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_missing_package_is_told_with_its_extra_and_a_fault_of_our_own_stays():
    with (
        pytest.raises(InputError, match=r"^the demo needs gone, which .*: pip install 'coord-detect\[demo\]'$"),
        needs_extra("demo", "the demo"),
    ):
        raise ModuleNotFoundError(name="gone.inside")
    for name in ("coord_detect.gone", None):
        with pytest.raises(ModuleNotFoundError), needs_extra("demo", "the demo"):
            raise ModuleNotFoundError(name=name)
