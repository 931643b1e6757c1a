"""Parts of a set are looked at by any number of workers with one result; what is done is kept, and is continued."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from changes import change_alone
from PIL import Image

from coord_codec import InputError, RunError
from coord_data.looking import engines, parts
from coord_data.looking.engines import Execution, executed
from coord_data.looking.parts import look_at_set


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Twenty images, looked at in parts of three."""
    monkeypatch.setattr(parts, "PART", 3)
    rng = np.random.default_rng(0)
    for n in range(20):
        Image.fromarray(rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(tmp_path / f"{n}.png")
    return [f"{n}.png" for n in range(20)]


def look(names, folder, **more):
    with executed(Execution(**more)):
        return look_at_set(names, folder, folder, kept={1, 7, 19})


def same(one, other):
    keys = one.thumbnails.keys() == other.thumbnails.keys() == {1, 7, 19}
    pixels = all(np.array_equal(one.thumbnails[row], other.thumbnails[row]) for row in one.thumbnails)
    columns = one.table.drop_columns("slot").equals(other.table.drop_columns("slot"))
    return columns and np.array_equal(one.grey_K[one.slots], other.grey_K[other.slots]) and keys and pixels


@pytest.mark.slow
def test_result_is_that_of_one_worker(names, tmp_path):
    one = look(names, tmp_path, workers=1)
    assert one.table["row"].to_pylist() == list(range(20)) and one.compared == [1, 7, 19]
    assert same(one, look(names, tmp_path, workers=2)) and same(one, look(names, tmp_path, workers=3))


class _Stopped(Exception):
    pass


def stop_after(count, monkeypatch, error):
    """Let `error` happen once some parts are done."""
    work, done = parts._look, []

    def stopped(job, **places):
        if len(done) == count:
            raise error
        done.append(job.first)
        return work(job, **places)

    monkeypatch.setattr(parts, "_look", stopped)
    return done


def test_interrupted_parts_are_kept_and_continued(names, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "coord_data")
    kept = tmp_path / "out.parts"
    with monkeypatch.context() as patch:
        first = stop_after(4, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt, match="4 of 7 parts are kept"):
            look(names, tmp_path, workers=1, parts=kept)
    (kept / "set-0" / "000000003.parquet").write_bytes(b"damaged")
    Image.new("RGB", (9, 9)).save(tmp_path / "7.png")  # of the part that begins with the seventh image
    with monkeypatch.context() as patch:
        then = stop_after(-1, patch, None)
        continued = look(names, tmp_path, workers=1, parts=kept)
    assert first == [0, 3, 6, 9] and then == [3, 6, 12, 15, 18]
    assert "000000003.parquet" in caplog.text and "have changed" in caplog.text
    assert same(continued, look(names, tmp_path, workers=1)) and not kept.exists()


@pytest.mark.parametrize("fact", ["size", "time", "gone"])
def test_every_fact_of_an_image_alone_makes_its_part_stale(names, tmp_path, monkeypatch, fact):
    kept, changed = tmp_path / "out.parts", tmp_path / "8.png"  # the last image of the third part
    with monkeypatch.context() as patch:
        stop_after(4, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            look(names, tmp_path, workers=1, parts=kept)
    change_alone(changed, fact)
    with monkeypatch.context() as patch:
        then = stop_after(-1, patch, None)
        look(names, tmp_path, workers=1, parts=kept)
    assert then == [6, 12, 15, 18]


@pytest.mark.parametrize("change", ["names", "kept", "base"])
def test_parts_of_other_settings_are_refused_and_stay(names, tmp_path, monkeypatch, change):
    kept = tmp_path / "out.parts"
    with monkeypatch.context() as patch:
        stop_after(2, patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            look(names, tmp_path, workers=1, parts=kept)
    asked = names[1:] if change == "names" else names
    chosen = {1, 8} if change == "kept" else {1, 7, 19}
    base = None if change == "base" else tmp_path
    with pytest.raises(InputError, match="other settings"), executed(Execution(1, parts=kept)):
        look_at_set(asked, tmp_path, base, chosen)
    assert len(list(kept.rglob("*.parquet"))) == 2


def test_full_disk_leaves_the_parts_that_are_there(names, tmp_path, monkeypatch):
    kept, write = tmp_path / "out.parts", parts.Looks.write

    def full(looks, path, settings):
        if len(list(path.parent.glob("*.parquet"))) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(looks, path, settings)

    with monkeypatch.context() as patch:
        patch.setattr(parts.Looks, "write", full)
        with pytest.raises(RunError, match="No space left"):
            look(names, tmp_path, workers=1, parts=kept)
    assert len(list(kept.rglob("*"))) == 4  # the folder of the set, and its parts
    assert same(look(names, tmp_path, workers=1, parts=kept), look(names, tmp_path, workers=1))


def test_missing_engine_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"coord-data\[ray\]"), executed(Execution(engine="ray")):
        pass
    assert engines.execution() == Execution()


@pytest.mark.slow
def test_interrupt_of_the_command_is_continued_by_the_same_command(tmp_path):
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (300, 400, 3), dtype=np.uint8)).save(tmp_path / "images" / "0.jpg")
    for n in range(1, 900):
        os.link(tmp_path / "images" / "0.jpg", tmp_path / "images" / f"{n}.jpg")
    objects = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.7]}]
    lines = (json.dumps({"image": f"images/{n}.jpg", "objects": objects}) + "\n" for n in range(900))
    (tmp_path / "a.jsonl").write_text("".join(lines))
    words = [sys.executable, "-m", "coord_data", "inspect", "a.jsonl", "--out", "out", "--workers", "2"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 120
        while not list(tmp_path.glob("out.parts/set-0/*.parquet")):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130 and "the same command continues" in told, told
    assert list(tmp_path.glob("out.parts/set-0/*.parquet")) and not (tmp_path / "out").exists()
    again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode in (0, 1) and "continuing with" in again.stdout, again.stderr
    assert (tmp_path / "out" / "findings.json").is_file() and not (tmp_path / "out.parts").exists()
