"""Measures resident memory, open file descriptors and bytes of logs at several steps of a long run.

Trains the tiny model on generated shapes in a process of its own, with evaluation losses, AP of answers and
checkpoints: what grows with the number of steps here grows in a long run as well.

    uv run python apps/trainer/benchmarks/endurance.py [--steps 2000]
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

SETTINGS = {
    "custom.coord_soft_ce_w1.enabled": "true",
    "data.shapes.train": 64,
    "data.shapes.heldout": 8,
    "data.order": "random",  # samples are encoded anew by worker processes
    "evaluation.ap_steps": 100,
    "evaluation.ap_images": 8,
    "evaluation.max_new_tokens": 24,
    "model.tiny.hidden": 32,
    "model.tiny.ffn": 48,
    "model.tiny.vision_hidden": 32,
    "model.tiny.layers": 2,
    "model.tiny.vision_layers": 2,
    "run.threads": 1,
    "training.dataloader_num_workers": 1,
    "training.eval_steps": 100,
    "training.gradient_accumulation_steps": 1,
    "training.learning_rate": 1e-4,
    "training.per_device_train_batch_size": 4,
    "training.save_steps": 200,
    "training.save_total_limit": 2,
}


def main(
    steps: Annotated[int, typer.Option(min=10, help="Optimizer steps of the run.")] = 2000,
    measure: Annotated[Path | None, typer.Option(hidden=True, help="The run folder, in the measured process.")] = None,
) -> None:
    """Print the resources of the run's process at a tenth, at half and at the end of its steps."""
    if measure is not None:
        run(steps, measure)
        return
    for row in endure(steps):
        print("step {step}: {resident:.0f} MB resident, {descriptors} descriptors, {logs} bytes of logs".format(**row))


def endure(steps: int) -> list[dict[str, float]]:
    """Run in a process of its own; returns a row for each measured step."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, __file__, "--steps", str(steps), "--measure", place]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def run(steps: int, place: Path) -> None:
    """Train, and print a line of figures at each measured step."""
    from transformers import TrainerCallback

    from coord_trainer import train as stage
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.run import train_and_score

    class Meter(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step in (steps // 10, steps // 2, steps):
                logs = [
                    file for file in place.rglob("*") if file.suffix in (".log", ".jsonl") or "tfevents" in file.name
                ]
                row = {
                    "step": state.global_step,
                    "resident": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6,
                    "descriptors": len(list(Path("/proc/self/fd").iterdir())),
                    "logs": sum(file.stat().st_size for file in logs),
                }
                print(json.dumps(row), flush=True, file=sys.__stdout__)

    progress = stage.TrainingProgress
    stage.TrainingProgress = Meter  # in the place of the bar
    try:
        words = [f"{name}={value}" for name, value in SETTINGS.items()]
        train_and_score(load_run_config(None, [*words, f"training.max_steps={steps}"]), place / "run")
    finally:
        stage.TrainingProgress = progress


if __name__ == "__main__":
    typer.run(main)
