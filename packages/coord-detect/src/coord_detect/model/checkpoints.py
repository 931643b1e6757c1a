"""Detects complete checkpoints of a run by a file manifest that is written last; finds the newest and the best.

A run may be killed while it saves: a checkpoint without its manifest, or without a file listed there, is never resumed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coord_codec.files import InputError, read_json, write_text
from coord_codec.weights import stored_tensors
from coord_detect.console import say_once

AP = "eval_AP"
"""The name under which AP during training is logged."""

_WEIGHTS = ("adapter_config.json", "config.json")
"""A folder with weights has one of these files."""
CARD_FILE = "coordexp.json"
"""The settings that a checkpoint was trained with, and its calibration."""
COMPLETE = "complete.json"
"""The manifest of a checkpoint's files."""
_NAME = re.compile(r"checkpoint-(\d+)")


def mark_complete(checkpoint: Path) -> None:
    """Write the manifest, a checkpoint's files with their sizes; to be called after all of them are written."""
    files = {
        file.relative_to(checkpoint).as_posix(): file.stat().st_size
        for file in sorted(checkpoint.rglob("*"))
        if file.is_file() and file.name != COMPLETE
    }
    write_text(checkpoint / COMPLETE, json.dumps(files, indent=1) + "\n")


def is_complete(checkpoint: Path) -> bool:
    """Return whether the manifest exists and every file in it is unchanged."""
    return fault_of(checkpoint) is None


def fault_of(checkpoint: Path) -> str | None:
    """Return the reason why a checkpoint must not be resumed from; None if it is complete."""
    try:
        files = read_json(checkpoint / COMPLETE)
    except (OSError, ValueError):
        return "it was not written completely"
    for name, size in files.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size and name != CARD_FILE:  # `calibrate` writes to the card, atomically
            return f"{name} has {file.stat().st_size:,} of {size:,} bytes"
        if file.suffix == ".safetensors" and (fault := _header_fault(file)):
            return f"{name} cannot be read ({fault})"
    return None


def _header_fault(file: Path) -> str | None:
    try:
        for _ in stored_tensors(file):
            pass
    except (OSError, InputError) as error:
        return str(error).removeprefix(f"{file}: ")
    return None


def newest_complete(folder: Path) -> tuple[Path | None, list[Path]]:
    """Return the complete checkpoint with the most steps in `folder`, and all incomplete ones."""
    checkpoints = sorted((p for p in folder.glob("checkpoint-*") if _NAME.fullmatch(p.name)), key=steps_of)
    complete = [path for path in checkpoints if is_complete(path)]
    return (complete[-1] if complete else None), [path for path in checkpoints if path not in complete]


def steps_of(checkpoint: Path) -> int:
    """Return the number of optimizer steps of a checkpoint, from its name."""
    named = _NAME.fullmatch(checkpoint.name)
    assert named is not None  # a folder that this module has found by its name
    return int(named[1])


def is_finished(checkpoint: Path, max_steps: int | None, epochs: float | None, patience: int | None = None) -> bool:
    """Return whether training had ended with `checkpoint`, and has not been configured to be longer since."""
    state = read_json(checkpoint / "trainer_state.json")
    if patience is not None and scores_since_best(answer_scores(state["log_history"])) >= patience:
        return True
    end = max_steps if max_steps and max_steps > 0 else state["max_steps"]
    extended = epochs is not None and epochs > state["num_train_epochs"]
    return state["global_step"] >= end and not extended


def answer_scores(history: Iterable[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return step and AP of each measurement during training, from its log lines."""
    return [(line["step"], line[AP]) for line in history if AP in line]


def scores_since_best(scores: Sequence[tuple[int, float]]) -> int:
    """Return the number of scores after the highest one (the first of equal ones)."""
    values = [value for _, value in scores]
    return len(values) - 1 - values.index(max(values)) if values else 0


def best_by_ap(newest: Path) -> tuple[Path, float] | None:
    """Return the checkpoint with the highest AP that the run had measured until `newest`, and that AP.

    None if AP was not measured during training, or if that checkpoint is missing or damaged.
    """
    try:
        scores = answer_scores(read_json(newest / "trainer_state.json")["log_history"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not scores:
        return None
    step, value = max(scores, key=lambda score: score[1])
    best = newest.with_name(f"checkpoint-{step}")
    return (best, value) if is_complete(best) else None


def weight_files(checkpoint: Path) -> list[list[Any]]:
    """Return name, size and modification time of the weight files, which identify their contents."""
    files = sorted(checkpoint.glob("*.safetensors"))
    return [[file.name, facts.st_size, facts.st_mtime_ns] for file in files for facts in [file.stat()]]


def find_checkpoint(place: Path) -> Path:
    """Return `place` itself, or of a run folder the best checkpoint by AP or else the newest one.

    Raises:
        InputError: the run folder has no complete checkpoint.
    """
    inside = place / "checkpoints"
    if not inside.is_dir():
        return place
    newest, incomplete = newest_complete(inside)
    if newest is None:
        reason = f"; {incomplete[-1].name}: {fault_of(incomplete[-1])}" if incomplete else ""
        raise InputError(f"{place}: a run folder without a complete checkpoint{reason}; continue the run first")
    best = best_by_ap(newest)
    found = best[0] if best else newest
    if (gone := _stated_checkpoint(place)) is not None and gone != found and not is_complete(gone):
        say_once(f"{place}: the run ended with {gone.name} ({_lost(gone)}); {found.name}, an older one, is used")
    return found


def _stated_checkpoint(run: Path) -> Path | None:
    """Return the checkpoint that the manifest of a run names as its result: the best by AP, else the last."""
    try:
        facts = read_json(run / "manifest.json")
        best = facts.get("best_checkpoint") or {}
        name = best.get("path") or facts.get("checkpoint")
    except (OSError, ValueError, AttributeError):
        return None
    return run / name if isinstance(name, str) else None


def _lost(checkpoint: Path) -> str:
    return f"{fault_of(checkpoint)}" if checkpoint.is_dir() else "it is not there any more"


def locate_model(folder: Path) -> Path:
    """Return the folder with the weights, for a run folder as `find_checkpoint`; an `InputError` if none."""
    if not folder.is_dir():
        hint = "is a file; name the folder of the model" if folder.exists() else "no such folder"
        raise InputError(f"{folder}: {hint}")
    weights = find_checkpoint(folder)
    if not any((weights / name).is_file() for name in _WEIGHTS):
        raise InputError(
            f"{folder}: no model found: expected a checkpoint or an adapter ({' or '.join(_WEIGHTS)}), or a run folder"
        )
    return weights
