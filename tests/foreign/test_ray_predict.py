"""`predict --engine ray` with two workers, one of which is lost: the records are those of one process, in its order.

Ray lies in an environment of its own, which is appended to the paths of this process and of those that Ray starts.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from PIL import Image

from coord_codec import InputError
from coord_detect import predict
from coord_detect.settings.record import Settings

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "apps" / "trainer" / "tests" / "helpers")]

from first_run import first_run  # noqa: E402
from in_ray import ray  # noqa: E402, F401 - a fixture

SETTINGS = Settings(evaluation={"batch_size": 2, "device": "cpu"})


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of images of two sizes, and of a file that is no image."""
    folder, held = tmp_path_factory.mktemp("ray") / "images", first_run() / "data" / "heldout"
    folder.mkdir()
    for n in range(24):
        with Image.open(held / f"{n:05d}.png") as image:
            image.resize((96, 96) if n % 3 else (64, 96)).save(folder / f"a {n}.png")
    (folder / "none.png").write_bytes(b"no image")
    return folder


def workers_of_ray():
    """Return the ids of the processes that hold the model: Ray names them by the class of the actor."""
    shown = subprocess.run(
        ["ps", "-u", str(os.getuid()), "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    rows = (line.split(maxsplit=1) for line in shown.stdout.splitlines())
    return [int(row[0]) for row in rows if row[1].startswith("ray::") and "Worker" in row[1]]


def answered(out, source, **options):
    return predict(first_run(), source, out, SETTINGS, draw=False, **options)


def on_ray(out, source, **options):
    return answered(out, source, engine="ray", workers=2, gpu_share=0, **options)


@pytest.mark.usefixtures("ray")
def test_lost_worker_is_replaced_and_the_records_are_those_of_one_process(images, tmp_path):
    """The images are at an address, which the workers read themselves."""
    address, ended = f"file://{images}", {}
    local = answered(tmp_path / "local", address)

    def end_one_worker():
        file = tmp_path / "ray" / "predictions.jsonl"
        while not (file.is_file() and b'"objects"' in file.read_bytes()):
            time.sleep(0.01)
        ended["of"] = workers_of_ray()
        os.kill(ended["of"][0], signal.SIGKILL)
        ended["answered"] = file.read_bytes().count(b'"objects"')

    thread = threading.Thread(target=end_one_worker, daemon=True)
    thread.start()
    found = on_ray(tmp_path / "ray", address)
    thread.join(60)
    whole = (tmp_path / "local" / "predictions.jsonl").read_bytes()
    assert len(ended["of"]) == 2 and ended["answered"] < 24 and found.new == local.new == 24
    assert (tmp_path / "ray" / "predictions.jsonl").read_bytes() == whole
    assert (tmp_path / "ray" / "session.json").read_bytes() == (tmp_path / "local" / "session.json").read_bytes()

    kept = b"".join(whole.splitlines(keepends=True)[:20])  # of a call that was stopped, with half a line
    (tmp_path / "ray" / "predictions.jsonl").write_bytes(kept + b'{"image": "a')
    with pytest.raises(InputError, match="were made with min_score"):
        on_ray(tmp_path / "ray", address, min_score=0.5)
    assert on_ray(tmp_path / "ray", address).new == 24 - kept.count(b'"objects"') > 0
    assert (tmp_path / "ray" / "predictions.jsonl").read_bytes() == whole


def test_missing_ray_is_told_with_its_extra_before_anything_is_loaded(images, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'Ray is not installed; .* "coord-detect\[ray\]"'):
        on_ray(tmp_path / "out", images)
    with pytest.raises(InputError, match="--workers is for --engine ray"):
        answered(tmp_path / "out", images, workers=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("ray")
def test_interrupted_command_continues_with_what_it_has(images, tmp_path):
    """Ctrl-C goes to the whole process group, as from a terminal; the images are on this machine."""
    command = [sys.executable, "-m", "coord_detect", "predict", first_run(), images, "--no-draw", "--device", "cpu"]
    command = [*map(str, command), "--batch-size", "2", "--out"]
    on_two = [*command, str(tmp_path / "ray"), "--engine", "ray", "--workers", "2", "--gpu-share", "0"]
    file = tmp_path / "ray" / "predictions.jsonl"
    before = set(workers_of_ray())
    with subprocess.Popen(on_two, stderr=subprocess.PIPE, text=True, start_new_session=True) as stopped:
        while not (file.is_file() and b'"objects"' in file.read_bytes()):
            assert stopped.poll() is None, stopped.stderr.read()
            time.sleep(0.01)
        os.killpg(stopped.pid, signal.SIGINT)
        told = stopped.communicate(timeout=120)[1]
    kept = file.read_bytes().splitlines(keepends=True)
    assert stopped.returncode == 130 and "Traceback" not in told and 0 < len(kept) < 25, told
    until = time.monotonic() + 60
    while set(workers_of_ray()) - before:
        assert time.monotonic() < until, "workers outlive the command that was interrupted"
        time.sleep(0.1)
    done = subprocess.run(on_two, capture_output=True, text=True, check=False)
    subprocess.run([*command, str(tmp_path / "local")], check=True, capture_output=True)
    whole = (tmp_path / "local" / "predictions.jsonl").read_bytes()
    assert done.returncode == 0 and file.read_bytes() == whole, done.stderr
    assert set(kept) <= set(whole.splitlines(keepends=True))
    answers = sum(b'"objects"' in line for line in kept)
    assert f"({24 - answers} now)" in done.stdout, done.stdout
