"""`--force` and kill -9: at any moment OUT is the old folder or the new one, whole, or can be brought back."""

import signal
import subprocess
import sys

import pytest

from coord_exporter import InputError
from coord_exporter.replacing import exchange
from coord_exporter.staging import check_out, staged

# Replaces a folder in a child that kills itself at a given moment.
KILLER = """
import os, signal, sys
from pathlib import Path
from coord_exporter import replacing, staging

place, moment = Path(sys.argv[1]), sys.argv[2]
swap, rename = replacing.exchange, Path.rename
die = lambda: os.kill(os.getpid(), signal.SIGKILL)

def exchange(one, other):
    if moment == "before the exchange":
        die()
    if "rename" in moment:
        return False
    assert swap(one, other)
    die()

def renamed(self, target):
    rename(self, target)
    if moment == ("after the first rename" if ".replaced-" in str(target) else "after the second rename"):
        die()

replacing.exchange, Path.rename = exchange, renamed
with staging.staged(place, force=True) as stage:
    (stage / "config.json").write_text("new")
"""


def make(place, content):
    place.mkdir()
    (place / "config.json").write_text(content)


def export(place):
    with staged(place, force=True) as stage:
        (stage / "config.json").write_text("newer")


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("before the exchange", "old"),
        ("after the exchange", "new"),
        ("after the first rename", None),
        ("after the second rename", "new"),
    ],
)
def test_kill_while_replacing(tmp_path, moment, left):
    place = tmp_path / "out[1]"
    make(place, "old")
    if "exchange" in moment and not can_exchange(tmp_path):
        pytest.skip("this file system cannot exchange two folders in one step")
    done = subprocess.run([sys.executable, "-c", KILLER, str(place), moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert place.exists() is (left is not None)
    assert not place.exists() or (place / "config.json").read_text() == left

    with pytest.raises(InputError, match="exists already") as refused:
        check_out(place, (), force=False)
    assert ("brought back: a run that was to replace it was killed" in str(refused.value)) is (left is None)
    assert (place / "config.json").read_text() == (left or "old")

    export(place)
    assert (place / "config.json").read_text() == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["out[1]"]


def test_what_was_brought_back_is_told_with_force_too(tmp_path):
    make(tmp_path / "out", "old")
    subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path / "out"), "after the first rename"], check=False
    )
    (warning,) = check_out(tmp_path / "out", (), force=True)
    assert "brought back" in warning
    assert check_out(tmp_path / "out", (), force=True) == []


def test_a_replacement_under_way_is_left_alone(tmp_path):
    import fcntl
    import os

    aside = tmp_path / ".out.replaced-other"
    aside.mkdir()
    make(aside / "out", "old")
    fd = os.open(aside, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert check_out(tmp_path / "out", (), force=False) == []
    assert (aside / "out" / "config.json").exists()
    os.close(fd)


@pytest.mark.parametrize("swaps", [True, False])
def test_replacing_leaves_nothing_beside(tmp_path, monkeypatch, swaps):
    if not swaps:
        monkeypatch.setattr("coord_exporter.replacing.exchange", lambda one, other: False)
    make(tmp_path / "out", "old")
    export(tmp_path / "out")
    assert (tmp_path / "out" / "config.json").read_text() == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def can_exchange(folder):
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    possible = exchange(folder / "a", folder / "b")
    (folder / "a").rmdir()
    (folder / "b").rmdir()
    return possible
