"""A head whose weight is a `DTensor` over two ranks, as FSDP2 leaves it, against the whole of it."""

import torch
from dtensor_ranks import be_a_rank
from torch.multiprocessing import start_processes


def test_dtensor_gives_values_and_gradients_of_the_whole_weight(tmp_path):
    start_processes(be_a_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    for rank in (torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(2)):
        assert set(rank) == {"readable", "frozen", "trained"}
        for name, pairs in rank.items():
            for found, expected in pairs:
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
