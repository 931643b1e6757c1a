"""llama.cpp serves the first run's model: boxes as in this process, for images of any size, with and without tokens.

Its server comes with xllamacpp, its converter with the sources of llama-cpp-python, in an environment of their own.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from PIL import Image
from vllm_server import LlamaCpp

pytestmark = pytest.mark.server
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "foreign"), str(ROOT / "apps" / "trainer" / "tests" / "helpers")]
SOURCES = "llama-cpp-python==0.3.36"
SIZES = [(96, 96), (108, 84), (192, 192), (150, 80)]
"""Widths and heights: as trained; one that llama.cpp pads; one above the export's limit; a long one."""


@pytest.fixture(scope="module")
def python():
    """The Python of llama.cpp's environment, with the converter beside it."""
    from environment import make

    try:
        found = make(HERE / "llama_cpp.txt")
        place = found.parents[1]
        if not (place / "llama.cpp").is_dir():
            words = ["--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", place, SOURCES]
            subprocess.run([found, "-m", "pip", "download", *words], check=True, capture_output=True, text=True)
            (archive,) = place.glob("llama_cpp_python-*.tar.gz")
            with tarfile.open(archive) as file:
                within = f"{archive.name.removesuffix('.tar.gz')}/vendor/llama.cpp/"
                wanted = [item for item in file.getmembers() if item.name.startswith(within)]
                wanted = [item for item in wanted if item.name.removeprefix(within).startswith(("con", "gguf-py"))]
                file.extractall(place, wanted, filter="data")
            (place / within).rename(place / "llama.cpp")
            archive.unlink()
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"llama.cpp cannot be installed: {getattr(error, 'stderr', error)}")
    return found


@pytest.fixture(scope="module")
def checkpoint(python):
    from first_run import first_run

    from coord_detect.model.checkpoints import locate_model

    return locate_model(first_run())


@pytest.fixture(scope="module")
def model(python, checkpoint, tmp_path_factory):
    """The checkpoint as llama.cpp's converter writes it: language model and vision tower."""
    out = tmp_path_factory.mktemp("gguf")
    command = [sys.executable, HERE / "llama_convert.py", python.parents[1] / "llama.cpp", checkpoint, out]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return out / "text.gguf", out / "vision.gguf"


@pytest.fixture(scope="module")
def images(checkpoint, tmp_path_factory):
    """A folder with images of each size."""
    folder = tmp_path_factory.mktemp("images")
    for k, path in enumerate(sorted((checkpoint.parents[1] / "data").glob("**/heldout/**/*.png"))[:8]):
        width, height = SIZES[k % len(SIZES)]
        Image.open(path).convert("RGB").resize((width, height)).save(folder / f"{k}.png")
    return folder


def answers(checkpoint, images, out, **words):
    from coord_detect.detection.command import answer_request
    from coord_detect.served.request import Request
    from coord_trainer.config.run_config import load_run_config

    config = load_run_config(None, [], trains=False)
    return answer_request(Request(checkpoint, (str(images),), out, draw=False, **words), config).records


@pytest.mark.parametrize("special", [False, True])
def test_boxes_and_probabilities_are_those_of_this_process(special, python, model, checkpoint, images, tmp_path):
    here = answers(checkpoint, images, tmp_path / "here")
    with LlamaCpp(python, model, tmp_path / "log", special) as server:
        there = answers(checkpoint, images, tmp_path / "there", endpoints=[server.url], served_name="boxes")
    assert [record["image"] for record in there] == [record["image"] for record in here]
    for mine, served in zip(here, there, strict=True):
        assert served["text"].removesuffix("<|im_end|>") == mine["text"].removesuffix("<|im_end|>"), mine["image"]
        assert served["coord_logprobs"] == pytest.approx(mine["coord_logprobs"], abs=0.05)
        assert len(served["objects"]) > 0
