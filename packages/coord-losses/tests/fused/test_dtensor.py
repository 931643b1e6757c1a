"""A head whose weight is a `DTensor` over two ranks, as FSDP2 leaves it, against the whole of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent / "dtensor_ranks.py"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two ranks found and expected, by case."""
    out = tmp_path_factory.mktemp("dtensor")
    path = os.pathsep.join(filter(None, (str(SCRIPT.parent), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        check=False,
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(out / f"rank-{rank}.pt") for rank in range(2)]


@pytest.mark.slow
def test_dtensor_gives_values_and_gradients_of_the_whole_weight(ranks):
    for rank in ranks:
        assert set(rank) == {"readable", "frozen", "trained"}
        for name, pairs in rank.items():
            for found, expected in pairs:
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
