"""Processes that a cluster's starter has begun without telling them of each other."""

import pytest

from coord_codec import InputError
from coord_trainer.console import refuse_loose_tasks


def test_tasks_of_slurm_without_torchrun_are_refused(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    monkeypatch.setenv("RANK", "0")
    refuse_loose_tasks()
    monkeypatch.delenv("RANK")
    with pytest.raises(InputError, match=r"srun started 8 tasks without torchrun, .*--ntasks-per-node=1"):
        refuse_loose_tasks()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    refuse_loose_tasks()
