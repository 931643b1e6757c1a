"""transformers 4.57, which opens no checkpoint of transformers 5, opens exports with `--form 4`, with equal logits.

It lies in an environment of its own, which stands before the workspace's in the paths of a process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "apps" / "trainer" / "tests" / "helpers")]

from environment import make  # noqa: E402

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")


@pytest.fixture(scope="module")
def older():
    """The packages of transformers 4.57."""
    try:
        python = make(HERE / "transformers4.txt")
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"transformers 4.57 cannot be installed: {getattr(error, 'stderr', error)}")
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    return packages


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Checkpoints by their kind, written by the workspace's transformers."""
    from tiny_families import build

    from coord_trainer.config.sections import TinyModelConfig
    from coord_trainer.model.tiny import train_tokenizer

    def written(kind):
        folder = tmp_path_factory.mktemp(kind) / "base"
        build(kind, train_tokenizer(["find", "a red circle"]), TinyModelConfig(), folder)
        return folder

    return written


def logits(folder, packages=None):
    """Return what `model_logits.py` saves, or the last line of its error."""
    import torch

    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment |= {"PYTHONPATH": str(packages)} if packages else {}
    out = folder.with_suffix(".pt")
    command = [sys.executable, HERE / "model_logits.py", folder, out]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=300)
    return torch.load(out) if done.returncode == 0 else done.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_form_4_opens_in_transformers_4_with_equal_inputs_and_logits(kind, checkpoint, older, tmp_path):
    import torch

    from coord_exporter.expand import expand_vocab

    base = checkpoint(kind)
    expand_vocab(base, tmp_path / "form4", form=4, quiet=True)
    ours, theirs, again = logits(base), logits(tmp_path / "form4", older), logits(tmp_path / "form4")
    assert ours["version"] != theirs["version"] == "4.57.6"
    for name in ("input_ids", "pixel_values", "image_grid_thw"):
        assert torch.equal(ours[name], theirs[name]) and torch.equal(ours[name], again[name]), name
    torch.testing.assert_close(theirs["logits"], ours["logits"], rtol=0, atol=1e-5)
    torch.testing.assert_close(again["logits"], ours["logits"], rtol=0, atol=0)


def test_without_the_form_transformers_4_opens_none(checkpoint, older):
    assert isinstance(logits(checkpoint("qwen3_vl"), older), str)
