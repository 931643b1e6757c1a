"""Offsets and objective inside the wrappings of others on two ranks give the loss and the gradients of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("wrapped_losses.py")
LOSSES = ("transformers", "objective", "rows")
pytestmark = pytest.mark.slow


def outcomes(*words):
    """The rows of the script by wrapping and loss."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, SCRIPT, *words]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"wrapping"')]
    return {(row["wrapping"], row["loss"]): row for row in rows}


def assert_same(row):
    assert row["found"] == pytest.approx(row["expected"], rel=1e-5), row
    assert row["gap"].keys() == {"embed_offset", "head_offset"}
    assert max(row["gap"].values()) < 1e-5, row


@pytest.fixture(scope="module")
def rows():
    return outcomes("process", "fsdp2", "tensor")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wrapping", ["accelerate's device map", "hub kernels", "FSDP2 (`fully_shard`)"])
def test_wrapping_is_exact(rows, wrapping, loss):
    assert_same(rows[wrapping, loss])


@pytest.mark.parametrize(("site", "name"), [("head", "lm_head"), ("embedding", "the embedding")])
def test_tensor_parallelism_of_rows_with_offsets_is_refused(rows, site, name):
    error = rows[f"tensor parallelism of the {site}", "transformers"]["error"]
    assert f"tensor parallelism spreads {name} over ranks" in error and "FSDP2" in error


def test_zero_is_exact():
    """Stage 3 too, whose head is partitioned before the pass: DeepSpeed gathers what the pass reads."""
    pytest.importorskip("deepspeed", reason="ZeRO is DeepSpeed's")
    rows = outcomes("zero")
    assert rows.keys() == {(f"DeepSpeed ZeRO {stage}", loss) for stage in (2, 3) for loss in LOSSES}
    for row in rows.values():
        assert_same(row)
