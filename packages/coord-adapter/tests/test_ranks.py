"""DDP and DeepSpeed on two CPU ranks; the checks themselves are in offset_ranks.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_ddp_zero2_and_zero3_equal_one_process(tmp_path):
    pytest.importorskip("deepspeed")
    script = Path(__file__).with_name("offset_ranks.py")
    environment = os.environ | {
        "ACCELERATE_USE_CPU": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, str(script), str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (tmp_path / "done").exists(), run.stderr[-6000:]
