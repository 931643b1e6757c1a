"""Torchrun's agent with ranks that are forks of this process: `forked_ranks.py RANKS SCRIPT [WORDS...]`.

In a process that has imported torch and ms-swift this takes none of the half minute which two ranks of
`torchrun SCRIPT WORDS...` need for it.
"""

import runpy
import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def be_a_rank(script, words):
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    ranks, script, *words = sys.argv[1:]
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(ranks),
        run_id="test",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        start_method="fork",
        max_restarts=0,
    )
    try:
        elastic_launch(config, be_a_rank)(script, words)
    except ChildFailedError as error:
        sys.exit(str(error))
