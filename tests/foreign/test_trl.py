"""TRL's trainers, which multiply by the head's weight themselves, compute the loss of the model with offsets.

TRL lies in an environment of its own, which stands before the workspace's in the paths of a process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from environment import make  # noqa: E402


def outcomes(*words):
    try:
        python = make(HERE / "trl.txt")
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"TRL cannot be installed: {getattr(error, 'stderr', error)}")
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    environment = os.environ | {"PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "trl_losses.py", *words]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"trainer"')]
    return {(row["trainer"], row["wrapping"]): row for row in rows}


def assert_same(rows):
    for case, row in rows.items():
        found, expected = row["fused"], row["dense"]
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5, abs=1e-5), case
        assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4), case
        assert found["moved"] == pytest.approx(expected["moved"], rel=1e-4), case
        assert min(expected["moved"].values()) > 0, case


def test_losses_of_trl_are_those_of_the_live_model():
    rows = outcomes()
    assert {name for name, _ in rows} == {"sft", "dpo", "kto", "grpo", "rloo"}
    assert_same(rows)


def test_two_ranks_train_as_one_process_does():
    """Stage 3 of DeepSpeed too, which TRL asks for: the moved rows say that they are gathered."""
    pytest.importorskip("deepspeed", reason="ZeRO is DeepSpeed's")
    rows = outcomes("sft", "dpo", "--wrapped")
    assert len(rows) == 6
    assert_same(rows)


def test_training_stops_where_trl_reads_the_weight_without_the_rows():
    (row,) = outcomes("sft", "--without-moved-rows").values()
    assert "trl.trainer.utils._fused_forward computed the loss" in row["fused"]["error"]
    assert "loss" in row["dense"]
