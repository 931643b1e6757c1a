"""Images are looked at by a real local Ray of two workers, one of which is lost: equal findings, nothing counted twice.

Ray lies in an environment of its own, which is appended to the paths of this process and of those that Ray starts.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coord_data.looking import parts
from coord_data.looking.engines import Execution, executed
from coord_data.looking.look import look_at_images
from coord_data.looking.parts import look_at_set

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from in_ray import ray  # noqa: E402, F401 - a fixture


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Forty images of which some are equal, looked at in parts of two."""
    monkeypatch.setattr(parts, "PART", 2)
    (tmp_path / "images").mkdir()
    for n in range(40):
        pixels = np.random.default_rng(n % 30).integers(0, 255, (40, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{n}.png")
    return [f"{n}.png" for n in range(40)]


@pytest.mark.usefixtures("ray")
def test_lost_worker_is_replaced_and_nothing_counted_twice(names, tmp_path, monkeypatch):
    root, marks, ended = tmp_path / "images", tmp_path / "marks", []
    marks.mkdir()
    local = look_at_set(names, root, root, kept={3})

    def look_slowly(job, root, base):
        (marks / f"{os.getpid()}").touch()
        time.sleep(0.2)
        return look_at_images(job.names, root, base, job.kept, job.first)

    def end_one_worker():
        while not (found := list(marks.iterdir())):
            time.sleep(0.01)
        ended.append(int(found[0].name))
        os.kill(ended[0], signal.SIGKILL)

    monkeypatch.setattr(parts, "_look", look_slowly)
    thread = threading.Thread(target=end_one_worker, daemon=True)
    thread.start()
    with executed(Execution(2, "ray")):
        looks = look_at_set(names, root, root, kept={3})
    thread.join(60)
    assert len(ended) == 1 and len(list(marks.iterdir())) > 1
    assert looks.table.equals(local.table) and np.array_equal(looks.grey_K, local.grey_K)
    assert looks.thumbnails.keys() == {3}
