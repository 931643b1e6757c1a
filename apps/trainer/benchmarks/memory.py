"""Compares the peak memory of training steps on the CPU with the estimate of `train --dry-run`.

Measures the tiny model and a model of Qwen3-VL-2B's width with few layers, each in a process of its own: the peak
resident memory minus that after imports and a very small run. Malloc is set to return freed memory, since what it
keeps depends on the order of the steps.

    uv run python apps/trainer/benchmarks/memory.py [tiny] [wide]
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

TINY = {"data.shapes.train": 96, "training.per_device_train_batch_size": 96}
WIDE = {
    "model.tiny.hidden": 2048,
    "model.tiny.ffn": 6144,
    "model.tiny.heads": 16,
    "model.tiny.layers": 2,
    "model.tiny.vision_hidden": 1024,
    "model.tiny.vision_layers": 2,
    "data.shapes.train": 8,
    "training.per_device_train_batch_size": 8,
}
COMMON = {
    "custom.coord_soft_ce_w1.enabled": "true",
    "data.shapes.heldout": 1,
    "evaluation.images": "none",
    "run.threads": 1,
    "training.gradient_accumulation_steps": 1,
    "training.max_steps": 2,
    "training.save_steps": 1000,
    "training.report_to": "[]",
}
CASES = {"tiny": TINY, "wide": WIDE}
Case = StrEnum("Case", {name: name for name in CASES})
_MALLOPT = {-8: 1, -3: 65536, -1: 65536}
"""Of malloc: at most one arena; return freed memory from this size on, and the rest from this one on."""


def words_of(settings):
    """Return the settings of a case as words of the command line."""
    return [f"{name}={value}" for name, value in (COMMON | settings).items()]


def compare(settings):
    """Return `(planned, measured)` bytes, from a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, "--measure", *words_of(settings)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def _status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _train(words, folder):
    from coord_codec import RunError
    from coord_trainer import train as stage
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.data.shapes import draw_sets
    from coord_trainer.model.tiny import base_checkpoint

    config = load_run_config(None, words)
    train, _ = draw_sets(config, folder / "data")
    base = base_checkpoint(config, folder, train)
    _forget_peak()
    before = _status("VmRSS")
    try:
        stage.train_model(config, folder, base, train, None)
    except RunError as error:
        assert "without a checkpoint" in str(error)
    return _status("VmHWM") - before


def _forget_peak():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def _measure(words):
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.preview import dry_run

    for option, value in _MALLOPT.items():
        ctypes.CDLL("libc.so.6").mallopt(option, value)
    with tempfile.TemporaryDirectory() as folder:
        small = [f"{name}={value}" for name, value in COMMON.items()]
        _train([*small, "data.shapes.train=2", "training.per_device_train_batch_size=1"], Path(folder) / "a")
        measured = _train(words, Path(folder) / "b")
    planned = dry_run(load_run_config(None, words))["peak"]
    print(json.dumps([planned, measured]))


def main(
    cases: Annotated[list[Case], typer.Argument(help="tiny, or 2B's width")] = list(Case),  # noqa: B006
) -> None:
    """Print planned and measured peak memory and their ratio, for each case."""
    for case in cases:
        planned, measured = compare(CASES[case.value])
        print(
            f"{case.value}: planned {planned / 1e6:.0f} MB, measured {measured / 1e6:.0f} MB, {planned / measured:.3f}"
        )


if __name__ == "__main__":
    if "--measure" in sys.argv:
        _measure(sys.argv[2:])
    else:
        typer.run(main)
