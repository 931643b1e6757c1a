"""A vocabulary that is spread over two ranks, against the whole of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent / "sharded_ranks.py"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two ranks found and expected, by case."""
    out = tmp_path_factory.mktemp("sharded")
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


def test_vocabulary_spread_over_ranks_gives_values_and_gradients_of_the_whole(ranks):
    """Frozen and trained, with offsets, bias, scale and cap; coordinates on one rank or on both; DTensor; readable."""
    for rank in ranks:
        assert {"all terms, trained", "offsets on one rank, frozen", "readable", "FSDP, trained"} <= set(rank["found"])
        for name, pairs in rank["found"].items():
            for found, expected in pairs:
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def test_weight_that_cannot_be_spread_is_refused_on_every_rank(ranks):
    for rank in ranks:
        empty, other = rank["refused"]
        assert "rank 1 of vocab_group has no row" in empty
        assert "[Shard(0)], got [Shard(dim=1)]; leave vocab_group out" in other
