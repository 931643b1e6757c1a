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

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "internvl")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """The folder of checkpoints by their kind, as the workspace's transformers writes them, and their exports."""
    from tiny_families import build

    from coord_exporter.expand import expand_vocab
    from coord_trainer.config.sections import TinyModelConfig
    from coord_trainer.model.tiny import train_tokenizer

    folder = tmp_path_factory.mktemp("transformers4")
    tokenizer = train_tokenizer(["find", "a red circle"])
    for kind in KINDS:
        build(kind, tokenizer, TinyModelConfig(), folder / kind)
        expand_vocab(folder / kind, folder / f"{kind}-4", form=4, quiet=True)
    return folder


@pytest.fixture(scope="module")
def older(bases):
    """What transformers 4.57 makes of the checkpoints and their exports."""
    import torch

    try:
        python = make(HERE / "transformers4.txt")
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"transformers 4.57 cannot be installed: {getattr(error, 'stderr', error)}")
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    out = bases.with_suffix(".pt")
    folders = [bases / f"{kind}{form}" for kind in KINDS for form in ("", "-4")]
    command = [sys.executable, HERE / "model_logits.py", out, *folders]
    done = subprocess.run(
        command, check=False, env=environment | {"PYTHONPATH": str(packages)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return torch.load(out)


@pytest.mark.parametrize("kind", KINDS)
def test_form_4_opens_in_transformers_4_with_equal_inputs_and_logits(kind, bases, older):
    import torch
    from model_logits import logits

    assert older["version"] == "4.57.6" and isinstance(older[kind], str), "without the form it opens none"
    theirs, ours, again = older[f"{kind}-4"], logits(bases / kind), logits(bases / f"{kind}-4")
    assert isinstance(theirs, dict), theirs
    for name in ("input_ids", "pixel_values"):
        assert torch.equal(ours[name], theirs[name]) and torch.equal(ours[name], again[name]), name
    torch.testing.assert_close(theirs["logits"], ours["logits"], rtol=0, atol=1e-5)
    torch.testing.assert_close(again["logits"], ours["logits"], rtol=0, atol=0)
