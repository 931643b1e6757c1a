"""The Triton kernels, in Triton's interpreter; on a GPU they are compiled instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fused_problem import EVERYTHING, VOCAB, V, problem

from coord_losses import CoordObjective


def test_triton_kernels_equal_the_readable_form():
    """All terms, offsets, bias, cap, odd sizes, float32 and bfloat16, and the error of gradient filtering."""
    pytest.importorskip("triton", reason="kernels to interpret")
    script = Path(__file__).with_name("triton_cases.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, check=False, timeout=300, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_kernel_options_that_cannot_act_are_refused(monkeypatch):
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 11, torch.float32)
    fused = CoordObjective(EVERYTHING, VOCAB).fused
    with pytest.raises(ValueError, match="'cuda'"):
        fused(hidden, weight, targets, slots, kernel="cuda")
    with pytest.raises(ValueError, match="chunk_rows and chunk_vocab have no effect"):
        fused(hidden, weight, targets, slots, kernel="triton", chunk_rows=4)
    with pytest.raises(ValueError, match="gradient_filter must be 0"):
        fused(hidden, weight, targets, slots, gradient_filter=0.1)
    monkeypatch.setitem(sys.modules, "coord_losses.fused.triton_kernels", None)
    with pytest.raises(ImportError, match="pip install triton"):
        fused(hidden, weight, targets, slots, kernel="triton")


def test_triton_needs_a_gpu_and_a_dtype_it_can_multiply():
    pytest.importorskip("triton", reason="kernels")
    hidden, weight, targets, slots = problem(5, 3, VOCAB, V, 11)
    fused = CoordObjective(EVERYTHING, VOCAB).fused
    with pytest.raises(ValueError, match=r"the products are torch\.float64"):
        fused(hidden, weight, targets, slots, kernel="triton")
    with pytest.raises(ValueError, match="needs a GPU, the weight is on cpu"):
        fused(hidden.float(), weight.float(), targets, slots, kernel="triton")
