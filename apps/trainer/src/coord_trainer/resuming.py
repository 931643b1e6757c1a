"""Going on with a run that was cut off: what must be as it was, and what is thrown away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from .checkpoints import newest_complete, ranks_of, steps_of
from .config import RunConfig
from .console import say
from .errors import InputError
from .ranks import world_size
from .run_folder import write_text

_MAY_DIFFER = {"run.resume", "run.dir"}


def prepare_resume(config: RunConfig, folder: Path) -> Path | None:
    """Say where the run in `folder` goes on, and cut its metrics.jsonl there.

    Returns:
        The checkpoint, or None when there is no complete one: the run starts from its beginning.

    Raises:
        InputError: something that is not a run folder, or a checkpoint whose optimizer cannot be read this way.
    """
    if not folder.exists() or not any(folder.iterdir()):
        say(f"run folder {folder} (run.resume: nothing there yet, so the run starts from its beginning)")
        folder.mkdir(parents=True, exist_ok=True)
        return None
    if not (folder / "config.yaml").is_file():
        raise InputError(f"run.resume is true, but {folder} holds no config.yaml: it is not a run folder")
    before = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    checkpoint, incomplete = newest_complete(folder / "checkpoints")
    start = (
        f"after {checkpoint.name}" if checkpoint is not None else "from its beginning: no complete checkpoint"
    )
    if checkpoint is not None:
        _check_same_optimizer(checkpoint, before, config)
    say(f"run folder {folder}, going on {start}")
    for path in incomplete:
        say(f"  {path.name} is incomplete and is ignored")
    for name, old, new in _changes(before, config.model_dump(mode="json")):
        say(f"  {name} was {old!r} and is now {new!r}")
    dropped = cut_metrics(folder / "metrics.jsonl", steps_of(checkpoint) if checkpoint is not None else 0)
    if dropped:
        say(f"  {dropped} lines of metrics.jsonl after that are removed; those steps come again")
    return checkpoint


def _check_same_optimizer(checkpoint: Path, before: dict[str, Any], config: RunConfig) -> None:
    """DeepSpeed keeps the optimizer's state in files of its own, one for each rank."""
    old, new = before["training"].get("deepspeed"), config.training.get("deepspeed")
    if old != new:
        raise InputError(
            f"run.resume is true, but {checkpoint} was saved with training.deepspeed={old} and this run has {new}: its "
            "optimizer could not be read; set it as it was, or start a new run with another run.dir"
        )
    ranks = ranks_of(checkpoint)
    if ranks == world_size():
        return
    if new is not None:
        raise InputError(
            f"run.resume is true, but {checkpoint} was saved by {ranks} ranks, each with its part of the optimizer, "
            f"and there are {world_size()} now: start as many (torchrun --nproc_per_node), or a new run with another "
            "run.dir"
        )
    say(f"  {ranks} ranks trained before and {world_size()} do now: other batches, other random numbers")


def check_same_data(folder: Path, digests: dict[str, Any]) -> None:
    """Raise `InputError` when the run in `folder` began with other data."""
    path = folder / "manifest.json"
    before = json.loads(path.read_text(encoding="utf-8")).get("data") if path.is_file() else None
    for name, found in digests.items():
        known = (before or {}).get(name)
        if known is not None and known["digest"] != found["digest"]:
            raise InputError(
                f"run.resume is true, but the {name} data has changed since {folder} began (digest "
                f"{known['digest']}, now {found['digest']}): put it back, or start a new run with another run.dir"
            )


def cut_metrics(path: Path, step: int) -> int:
    """Keep the lines up to `step`; returns how many went, a half-written last one among them."""
    if not path.is_file():
        return 0
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
    if len(kept) < len(lines):
        write_text(path, "".join(kept))
    return len(lines) - len(kept)


def _changes(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _changes(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now and name not in _MAY_DIFFER:
        yield name, before, now
