"""A trained model, an adapter on it, and vLLM's environment, without which a test is skipped unless it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).parents[2]
FIRST = ROOT / "apps/trainer/src/coord_trainer/first-run.yaml"


@pytest.fixture(scope="session")
def vllm_environment(pytestconfig):
    """The environment with vLLM, made now if these tests are asked for by `--full` or `-m server`."""
    import vllm_environment as made

    folder = made.environment()
    if not made.is_complete(folder):
        if not (os.environ.get("COORDEXP_FULL") or pytestconfig.option.markexpr == "server"):
            pytest.skip(f"no vLLM in {folder}: run tests/server/vllm_environment.py, or pytest -m server")
        try:
            made.make(folder)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"vLLM cannot be installed here: {error}")
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of the first run's model, long enough that its answers are boxes."""
    if ready := os.environ.get("COORDEXP_SERVED_MODEL"):
        return Path(ready)
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = [f"run.dir={folder}", "training.max_steps=200", "training.save_steps=200", "training.eval_steps=200"]
    words += ["data.shapes.train=2000", "data.shapes.heldout=60", "run.threads=1"]
    train(FIRST, *words)
    return folder


@pytest.fixture(scope="session")
def adapter(tmp_path_factory, trained):
    """An adapter with LoRA and offsets, trained a little on the trained model."""
    from coord_detect.model.checkpoints import locate_model

    if ready := os.environ.get("COORDEXP_SERVED_ADAPTER"):
        return locate_model(Path(ready))
    folder = tmp_path_factory.mktemp("adapter") / "run"
    words = [f"run.dir={folder}", f"model.path={locate_model(trained)}", "run.threads=1", "training.warmup_steps=5"]
    words += [f"training.{name}=40" for name in ("max_steps", "save_steps", "eval_steps")]
    train(FIRST.with_name("first-run-offset.yaml"), *words, "data.shapes.train=1000", "data.shapes.heldout=8")
    return locate_model(folder)


def train(config, *words):
    """Train by the command line."""
    command = [sys.executable, ROOT / "apps" / "trainer", "train", "-c", config, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
