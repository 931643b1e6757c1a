"""The command `prepare`, stopped: it leaves nothing, and what a killed call leaves is removed by the next."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
from coco_document import coco_document
from PIL import Image


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "images").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "images" / "a.png")
    (tmp_path / "a.json").write_text(json.dumps(coco_document([{"bbox": [4, 4, 32, 32]}])))
    return tmp_path


_SLOW = """
import sys, time
from coord_trainer import cli
from coord_data.preparing import preparation

written = preparation.write_text
preparation.write_text = lambda *given: (written(*given), print("written", flush=True), time.sleep(60))
cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code", "out"), [(signal.SIGTERM, 143, "out.jsonl"), (signal.SIGKILL, -9, "out")])
def test_stopped_call_leaves_nothing_and_what_a_killed_one_leaves_is_removed(coco, run, sent, code, out):
    words = ["prepare", "a.json", "images", "--out", out]
    for name in (f".{out}.other.1-01234567.tmp", f".{out}.1-0.tmp"):  # of nobody's call for `out`
        (coco / name).mkdir()
    before = {path.name for path in coco.iterdir()}
    command = [sys.executable, "-c", _SLOW, *words]
    with subprocess.Popen(command, cwd=coco, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == "written\n"
        (partial,) = {path.name for path in coco.iterdir()} - before
        if code < 0:
            assert run(*words)[0] == 0  # which leaves alone what a living process writes into
            assert (coco / partial).is_dir()
        for path in coco.glob("out*"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
        process.send_signal(sent)
        _, error = process.communicate(timeout=30)
    assert process.returncode == code and "Traceback" not in error
    left = {path.name for path in coco.iterdir()} - before
    assert left == ({partial} if sent == signal.SIGKILL else set())
    found, error, told = run(*words)
    assert found == 0, error
    assert (f"{partial}: removed; an earlier call was killed" in told) == bool(left)
    assert {path.name for path in coco.iterdir() if path.name[0] == "."} <= before


@pytest.mark.parametrize("neighbour", ["keep.jsonl", "keep.summary.json", "keep.problems.jsonl"])
def test_prepare_replaces_no_file_beside_the_one_it_writes(coco, run, neighbour):
    (coco / neighbour).write_text("mine")
    code, error, _ = run("prepare", "a.json", "images", "--out", "keep.jsonl")
    assert code == 2 and f"--out: {neighbour} exists already" in error
    assert [p.name for p in coco.glob("keep*")] == [neighbour] and (coco / neighbour).read_text() == "mine"
