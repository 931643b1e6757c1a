"""Carrying out the runs of a comparison: finished ones are kept, the others trained a few at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .compare_plan import Run, differences
from .config_files import check_run_config
from .console import say
from .errors import InputError
from .picture_set import PictureSet
from .readings import READINGS
from .run_folder import write_text

_TRAIN = "from coord_trainer.cli import main; main()"
_POLL_SECONDS = 0.5
_LAST_LINES = 5


def why_not_kept(run: Run, digests: dict[str, str] | None) -> str | None:
    """Why the run has to be trained; None when its folder holds exactly this run, finished.

    Args:
        run: what is wanted.
        digests: of the data as it is now, by set; None leaves them unchecked.
    """
    manifest, config = run.folder / "manifest.json", run.folder / "config.yaml"
    if not manifest.is_file() or not config.is_file():
        return "not there yet"
    try:
        values = json.loads(manifest.read_text(encoding="utf-8"))
        made_with = check_run_config(yaml.safe_load(config.read_text(encoding="utf-8")), str(config))
    except (OSError, ValueError, yaml.YAMLError, InputError):
        return "its config.yaml or manifest.json cannot be read by this version"
    if changed := differences(made_with, run.config):
        name, (there, wanted) = next(iter(changed.items()))
        more = f" and {len(changed) - 1} further settings" if len(changed) > 1 else ""
        return f"made with other settings: {name} is {there!r} there and {wanted!r} now{more}"
    if values.get("status") != "finished":
        return f"not finished ({values.get('status')})"
    found = {name: facts.get("digest") for name, facts in values.get("data", {}).items()}
    if digests is not None and found != digests:
        return "made with other data: the digests differ"
    return None


@dataclass
class _Started:
    run: Run
    process: subprocess.Popen
    log: Path
    since: float


def carry_out(runs: Sequence[Run], jobs: int) -> list[tuple[Run, str]]:
    """Train `runs`, up to `jobs` side by side in processes of their own; returns those that failed, and how."""
    waiting, active, failed = list(runs), [], []
    begun, done = time.time(), 0
    try:
        while waiting or active:
            while waiting and len(active) < jobs:
                active.append(_start(waiting.pop(0)))
            time.sleep(_POLL_SECONDS)
            for started in [s for s in active if s.process.poll() is not None]:
                active.remove(started)
                done += 1
                left = (time.time() - begun) / done * (len(runs) - done)
                if started.process.returncode:
                    failed.append((started.run, _last_lines(started.log)))
                    say(f"{_name(started.run)} FAILED, see {started.log}")
                else:
                    took = time.time() - started.since
                    say(
                        f"{_name(started.run)} done in {took:.0f} s; {done} of {len(runs)}, "
                        f"about {left / 60:.0f} min left"
                    )
    finally:
        for started in active:
            started.process.terminate()
        for started in active:
            started.process.wait()
    return failed


def answer_missing(run: Run, pictures: PictureSet) -> None:
    """Let a finished run's last checkpoint answer in the readings that the run was not asked for."""
    for place, name in enumerate(run.config.evaluation.readings):
        path = READINGS[name].folder(run.folder, place == 0) / "predictions.jsonl"
        if path.exists():
            continue
        from .predict import predict_pictures

        say(f"{_name(run)} answers are missing: {name}")
        manifest = json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
        section = run.config.evaluation.model_copy(update={"readings": (name,)})
        path.parent.mkdir(parents=True, exist_ok=True)
        config = run.config.model_copy(update={"evaluation": section})
        predict_pictures(config, run.folder / manifest["checkpoint"], pictures, path)


def _start(run: Run) -> _Started:
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    config = run.folder.with_name(f"{run.folder.name}.yaml")
    log = run.folder.with_name(f"{run.folder.name}.log")
    values = run.config.model_dump(mode="json")
    write_text(config, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    threads = {"OMP_NUM_THREADS": str(run.config.run.threads)} if run.config.run.threads else {}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _TRAIN, "train", "-c", str(config)],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | threads,
        )
    say(f"{_name(run)} started")
    return _Started(run, process, log, time.time())


def _name(run: Run) -> str:
    return f"{run.group.name} seed {run.seed}:"


def _last_lines(log: Path) -> str:
    # Progress bars rewrite their line with carriage returns.
    lines = [line.split("\r")[-1].strip() for line in log.read_text(errors="replace").splitlines()]
    return " | ".join([line for line in lines if line][-_LAST_LINES:])
