"""All or nothing: kill -9, a full disk, an OUT that exists, a second merge."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from export_tiny import make_adapter, read_all, read_json

from coord_exporter import ExportError, InputError, merge

# Merges in a child that kills itself at the n-th file operation below a folder, for many n.
KILLER = """
import json, os, signal, sys
import coord_exporter, torch
from coord_exporter import writer, merging, verify
from coord_exporter.merging import merge
torch.set_num_threads(1)
base, adapter, folder, moments = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])

def child(name, kill_at, count_to=None):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event in ("open", "os.rename", "os.mkdir", "shutil.copyfile", "os.chmod") and folder in str(arguments):
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    merge(base, adapter, os.path.join(folder, name), verify=False, quiet=True)
    if count_to is not None:
        os.write(count_to, str(seen).encode())
    os._exit(0)

reader, writer_end = os.pipe()
if os.fork() == 0:
    child("whole", -1, writer_end)
os.close(writer_end)  # or a child that fails would be waited for
os.wait()
total = int(os.read(reader, 20))
outcomes = []
for k, share in enumerate(moments):
    at = max(1, round(share * total))
    pid = os.fork()
    if pid == 0:
        child(f"out{k}", at)
    outcomes.append([at, os.WTERMSIG(os.waitpid(pid, 0)[1])])
print(json.dumps([total, outcomes]))
"""


@pytest.fixture(scope="module")
def adapter(bases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter") / "adapter"
    make_adapter(folder, bases(True), "separate")
    return folder


def merged(bases, adapter, out, **options):
    return merge(bases(True), adapter, out, verify=False, quiet=True, **options)


def test_kill_at_any_moment_leaves_no_out(bases, adapter, tmp_path):
    moments = [0.01, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0]
    command = [
        sys.executable,
        "-c",
        KILLER,
        str(bases(True)),
        str(adapter),
        str(tmp_path),
        json.dumps(moments),
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stderr
    total, outcomes = json.loads(run.stdout)
    assert total > 20 and all(signal == 9 for _, signal in outcomes)
    whole = read_all(tmp_path / "whole")
    stages = [path for path in tmp_path.iterdir() if ".partial-" in path.name]
    assert len(stages) >= len(moments) - 2
    for k in range(len(moments)):
        out = tmp_path / f"out{k}"
        if out.exists():  # killed after the rename: then it is whole
            assert k == len(moments) - 1 and read_all(out).keys() == whole.keys()
        else:  # the next run succeeds, and tidies up
            merged(bases, adapter, out)
            assert not list(tmp_path.glob(f".{out.name}.partial-*"))
        assert all(torch.equal(tensor, whole[name]) for name, tensor in read_all(out).items())


def test_a_stage_in_use_is_not_tidied_up(bases, adapter, tmp_path):
    import fcntl

    stage = tmp_path / ".out.partial-other"
    stage.mkdir()
    fd = os.open(stage, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    merged(bases, adapter, tmp_path / "out")
    os.close(fd)
    assert stage.exists()


@pytest.mark.parametrize("failing", ["posix_fallocate", "pwrite", "copy_file_range", "fsync"])
def test_disk_that_fails_on_the_way(bases, adapter, tmp_path, monkeypatch, failing):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(ExportError, match="the disk is full; nothing was written"):
        merged(bases, adapter, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_file_systems_without_kernel_copies(bases, adapter, tmp_path, monkeypatch):
    def declines(*arguments):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    merged(bases, adapter, tmp_path / "one")
    monkeypatch.setattr(os, "copy_file_range", declines)
    monkeypatch.setattr(
        os, "posix_fallocate", lambda *a: (_ for _ in ()).throw(OSError(errno.EOPNOTSUPP, "no"))
    )
    merged(bases, adapter, tmp_path / "other")
    name = "model.safetensors"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_merged_values_that_overflow(bases, tmp_path):
    make_adapter(tmp_path / "adapter", bases(False, "float16"), lora_alpha=1e8)
    with pytest.raises(ExportError, match=r"_proj.weight: row \d+ is not finite in F16"):
        merge(bases(False, "float16"), tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]


def test_existing_out_is_refused_and_replaced_only_by_force(bases, adapter, tmp_path):
    out = tmp_path / "out"
    merged(bases, adapter, out)
    (out / "mine.txt").write_text("a note")
    with pytest.raises(InputError, match="exists already; choose another name, or --force"):
        merged(bases, adapter, out)
    assert (out / "mine.txt").exists()
    merged(bases, adapter, out, force=True)
    assert not (out / "mine.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_force_does_not_replace_other_things(bases, adapter, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("text")
    for name in ("home", "file"):
        with pytest.raises(InputError, match="--force replaces a checkpoint folder"):
            merged(bases, adapter, tmp_path / name, force=True)
    assert (tmp_path / "home" / "thesis.tex").exists()


def test_failed_force_keeps_the_old_out(bases, adapter, tmp_path, monkeypatch):
    out = tmp_path / "out"
    merged(bases, adapter, out)
    before = (out / "export.json").stat().st_ino
    rename, calls = Path.rename, []

    def fails_second(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr("coord_exporter.replacing.exchange", lambda one, other: False)
    monkeypatch.setattr(Path, "rename", fails_second)
    with pytest.raises(ExportError, match="Input/output error"):
        merged(bases, adapter, out, force=True)
    assert (out / "export.json").stat().st_ino == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_inputs_are_not_touched(bases, adapter, tmp_path):
    def state():
        return {
            p: (p.stat().st_mtime_ns, p.read_bytes()) for f in (bases(True), adapter) for p in f.iterdir()
        }

    before = state()
    merged(bases, adapter, tmp_path / "out")
    assert state() == before


def test_second_merge_of_the_same_adapter(bases, adapter, tmp_path):
    merged(bases, adapter, tmp_path / "once")
    with pytest.raises(InputError, match=r"is merged into .*once already"):
        merge(tmp_path / "once", adapter, tmp_path / "twice", verify=False, quiet=True)
    make_adapter(tmp_path / "other", tmp_path / "once", "separate", r=4)
    merge(tmp_path / "once", tmp_path / "other", tmp_path / "two", verify=False, quiet=True)
    history = read_json(tmp_path / "two" / "export.json")["history"]
    assert [entry["adapter"]["name"] for entry in history] == ["adapter", "other"]
    with pytest.raises(InputError, match=r"is merged into .*two already"):
        merge(tmp_path / "two", adapter, tmp_path / "three", verify=False, quiet=True)
