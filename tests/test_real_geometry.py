"""The guide from download to served, with the sizes of Qwen3-VL-2B, four layers of it and random weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
WANTED = os.environ.get("COORDEXP_REAL_GEOMETRY", "")
DTYPE = () if torch.ops.mkldnn._is_mkldnn_bf16_supported() else ("--dtype", "float32")
SIZES = {"2b": ("--steps", "8", *DTYPE), "small": ("--hidden", "64", "--layers", "1", "--steps", "4")}


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.skipif(WANTED not in SIZES, reason="half an hour: COORDEXP_REAL_GEOMETRY=2b, or small for five minutes")
def test_every_station_of_the_guide_passes_and_servers_say_the_same(shared_dir, tmp_path):
    photographs = shared_dir / "coco_permissive33"
    command = [sys.executable, ROOT / "benchmarks" / "real_geometry.py", photographs / "instances.json"]
    command += [photographs / "images", "--out", tmp_path / "walk", *SIZES[WANTED]]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "served answers equal to those of this process: 4 of 4; plain transformers': True" in done.stdout
