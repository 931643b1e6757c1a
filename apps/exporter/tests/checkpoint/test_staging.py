"""All or nothing: kill -9 at any moment, an OUT that exists, `--force`."""

import errno
import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from tiny_checkpoint import merge_in, merge_quietly, read_all, refused

from coord_exporter import ExportError, InputError
from coord_exporter.checkpoint import folder, staging
from coord_exporter.checkpoint.staging import staged
from coord_exporter.cli import main


def in_a_fork(function, *given):
    """Exit code of a process that calls a function; minus the signal that killed it."""
    process = multiprocessing.get_context("fork").Process(target=function, args=given)
    process.start()
    process.join()
    return process.exitcode


def at_operation(number, counted, folder, act):
    """Call `act` at the so manieth operation on files below a folder, and count them."""

    def hook(event, arguments):
        if event in ("open", "os.rename", "os.mkdir", "shutil.copyfile", "os.chmod") and str(folder) in str(arguments):
            counted.value += 1
            if counted.value == number:
                act()

    sys.addaudithook(hook)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_kill_at_any_moment_leaves_no_out(bases, adapters, tmp_path):
    base, adapter, moments = bases(True), adapters / "of-tied", [0.01, 0.3, 0.6, 0.9, 0.95, 1.0]

    def merge_until(number, counted, name):
        at_operation(number, counted, tmp_path, die)
        merge_quietly(base, adapter, tmp_path / name)

    total = multiprocessing.Value("i")
    assert in_a_fork(merge_until, -1, total, "whole") == 0 and total.value > 20
    for k, share in enumerate(moments):
        at = max(1, round(share * total.value))
        assert in_a_fork(merge_until, at, multiprocessing.Value("i"), f"out{k}") == -signal.SIGKILL
    whole = read_all(tmp_path / "whole")
    stages = [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]
    assert len(stages) >= len(moments) - 2
    for k in range(len(moments)):
        out = tmp_path / f"out{k}"
        if out.exists():  # killed after the rename: then it is whole
            assert k == len(moments) - 1 and read_all(out).keys() == whole.keys()
        else:  # the next run succeeds, and tidies up
            merge_quietly(base, adapter, out)
            assert not list(tmp_path.glob(f".{out.name}.*.tmp"))
        assert all(torch.equal(tensor, whole[name]) for name, tensor in read_all(out).items())


def make(place, content):
    place.mkdir()
    (place / "export.json").write_text(content)


def export(place, content="newer"):
    with staged(place, force=True) as stage:
        (stage / "export.json").write_text(content)


def test_replacing_leaves_nothing_beside(tmp_path):
    make(tmp_path / "out", "old")
    export(tmp_path / "out")
    assert (tmp_path / "out" / "export.json").read_text() == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_kill_between_the_renames_of_a_replacement_keeps_the_old_export(tmp_path):
    def replace_and_die():
        rename = Path.rename
        Path.rename = lambda path, target: (rename(path, target), die())
        export(tmp_path / "out", "new")

    make(tmp_path / "out", "old")
    assert in_a_fork(replace_and_die) == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    export(tmp_path / "out")
    assert (tmp_path / "out" / "export.json").read_text() == "newer"
    kept = [path for path in tmp_path.iterdir() if path.name != "out"]
    assert [(path / "export.json").read_text() for path in kept] == ["old"]


def test_a_second_export_to_the_same_out_leaves_the_first_ones_stage_alone(tmp_path):
    with staged(tmp_path / "out", force=True) as first:
        (first / "export.json").write_text("first")
        export(tmp_path / "out")  # looks for stages of killed runs, and must find this one locked
        assert (first / "export.json").read_text() == "first"
    assert (tmp_path / "out" / "export.json").read_text() == "first"


def test_every_file_and_folder_is_on_the_disk_before_out_appears(sharded, tmp_path, monkeypatch):
    events, fsync, rename = [], os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: events.append(str(Path(f"/proc/self/fd/{fd}").readlink())) or fsync(fd))

    def renamed(self, target):
        if self.name.startswith(".out."):
            events.append({str(path) for path in (self, *self.rglob("*"))})
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)
    merge_in(sharded, tmp_path / "out")
    (at,) = (i for i, event in enumerate(events) if isinstance(event, set))
    assert len(events[at]) > 8 and events[at] <= set(events[:at])
    assert events[at + 1 :] == [str(tmp_path)]


@pytest.mark.slow
def test_a_stopped_export_removes_its_stage(sharded, tmp_path, capfd):
    def merge_until_stopped():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as a process starts with it, whatever ran here before
        weights = tmp_path / ".out."  # the stage, whose second file of weights is not the first operation
        at_operation(6, multiprocessing.Value("i"), weights, lambda: os.kill(os.getpid(), signal.SIGTERM))
        main(["merge", *map(str, (sharded / "base", sharded / "adapter", tmp_path / "out")), "--no-verify", "--quiet"])

    assert in_a_fork(merge_until_stopped) == 143
    assert capfd.readouterr().err == "interrupted by SIGTERM\n"
    assert not list(tmp_path.iterdir())


def test_check_out_refuses_an_existing_out_without_force(bases, adapters, tmp_path):
    out = tmp_path / "out"
    merge_quietly(bases(True), adapters / "of-tied", out)
    (out / "mine.txt").write_text("a note")
    with pytest.raises(InputError, match="exists already; choose another name, or --force"):
        merge_quietly(bases(True), adapters / "of-tied", out)
    with pytest.raises(InputError, match="1 file is not part of it, the first mine"):
        merge_quietly(bases(True), adapters / "of-tied", out, force=True)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(InputError, match="link: exists already"):
        merge_quietly(bases(True), adapters / "of-tied", tmp_path / "link")
    (tmp_path / "link").unlink()
    assert (out / "mine.txt").exists()
    (out / "mine.txt").unlink()
    (out / "deep" / "notes").mkdir(parents=True)
    (out / "deep" / "notes" / "mine.txt").write_text("a note")
    with pytest.raises(InputError, match="1 file is not part of it, the first deep/notes/mine"):
        merge_quietly(bases(True), adapters / "of-tied", out, force=True)
    shutil.rmtree(out / "deep")
    (out / "config.json").write_text("{}")
    merge_quietly(bases(True), adapters / "of-tied", out, force=True)
    assert (out / "config.json").read_text() != "{}"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_check_out_refuses_to_force_other_things(bases, adapters, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("text")
    (tmp_path / "downloaded").mkdir()
    (tmp_path / "downloaded" / "config.json").write_text("{}")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "export.json").write_text("{}")
    (tmp_path / "plain").mkdir()  # of a base that no export has made
    (tmp_path / "plain" / "export.json").write_text('{"format": 1, "history": [], "files": []}')
    for name in ("home", "file", "downloaded", "half", "plain"):
        with pytest.raises(InputError, match="--force replaces only what an export wrote"):
            merge_quietly(bases(True), adapters / "of-tied", tmp_path / name, force=True)
    assert (tmp_path / "home" / "thesis.tex").exists() and (tmp_path / "downloaded" / "config.json").exists()


def test_failed_force_keeps_the_old_out(bases, adapters, tmp_path, monkeypatch):
    out = tmp_path / "out"
    merge_quietly(bases(True), adapters / "of-tied", out)
    before = (out / "export.json").stat().st_ino
    rename, calls = Path.rename, []

    def fails_second(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_second)
    with pytest.raises(ExportError, match="Input/output error"):
        merge_quietly(bases(True), adapters / "of-tied", out, force=True)
    assert (out / "export.json").stat().st_ino == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("place", ["base/out", "adapter/deep/out", "base", "adapter", "."])
def test_check_out_refuses_a_place_inside_on_or_around_an_input(files, place):
    refused(files, "is, contains or lies inside the input", out=files / place)


def test_check_out_refuses_a_link_into_the_base(files, tmp_path):
    (tmp_path / "link").symlink_to(files / "base")
    refused(files, "is, contains or lies inside", out=tmp_path / "link" / "out")


def test_check_out_refuses_a_missing_parent(files):
    refused(files, "does not exist; create it first", out=files.parent / "no" / "out")


def test_check_space_refuses_a_disk_too_small(files, monkeypatch):
    usage = shutil.disk_usage(files)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    refused(files, "needs 0.02 GB and the disk has 0.00 GB free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000 + staging._MARGIN))
    staging.check_space(files / "out", 1000)
    with pytest.raises(InputError, match="needs"):
        staging.check_space(files / "out", 1001)


def test_space_is_asked_for_weights_and_all_that_is_copied(files, monkeypatch):
    asked = []
    (files / "base" / "large.txt").write_bytes(b"x" * 5000)
    monkeypatch.setattr(folder, "check_space", lambda out, needed: asked.append(needed))
    merge_in(files, files / "out")
    (files / "base" / "large.txt").unlink()
    merge_in(files, files / "other")
    weights = (files / "out" / "model.safetensors").stat().st_size
    assert asked[0] - asked[1] == 5000 and asked[1] > weights


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_and_full_quota_are_one(tmp_path, number):
    for code, told in ((number, "the disk is full"), (errno.EIO, "Input/output error")):
        with pytest.raises(ExportError, match=f"{told}; nothing was written"), staged(tmp_path / "out", force=False):
            raise OSError(code, "Input/output error")
    with pytest.raises(ExportError, match="was created while the export ran"), staged(tmp_path / "out", force=False):
        (tmp_path / "out").mkdir()
