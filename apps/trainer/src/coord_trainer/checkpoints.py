"""Which checkpoints of a run are whole: a list of their files, written last, says so.

A run may be killed while it saves. What lacks the list, or a file of it, is never continued from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from .run_folder import write_text

_MARK = "complete.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def mark_complete(checkpoint: Path) -> None:
    """List the files of a checkpoint, with their sizes, in the checkpoint; the last thing that is written."""
    files = {
        file.relative_to(checkpoint).as_posix(): file.stat().st_size
        for file in sorted(checkpoint.rglob("*"))
        if file.is_file() and file.name != _MARK
    }
    write_text(checkpoint / _MARK, json.dumps(files, indent=1) + "\n")


def unmark(checkpoint: Path) -> None:
    """Take the list away, before a checkpoint that was left half-written is written again."""
    (checkpoint / _MARK).unlink(missing_ok=True)


def is_complete(checkpoint: Path) -> bool:
    """Whether the list is there, and every file of it with its size."""
    try:
        files = json.loads((checkpoint / _MARK).read_text(encoding="utf-8"))
        return all((checkpoint / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError):
        return False


def newest_complete(folder: Path) -> tuple[Path | None, list[Path]]:
    """The complete checkpoint of the most steps in `folder`, and those that are incomplete."""
    found = sorted((p for p in folder.glob("checkpoint-*") if _NAME.fullmatch(p.name)), key=steps_of)
    whole = [path for path in found if is_complete(path)]
    return (whole[-1] if whole else None), [path for path in found if path not in whole]


def steps_of(checkpoint: Path) -> int:
    """How many optimizer steps led to it."""
    return int(_NAME.fullmatch(checkpoint.name)[1])


def ranks_of(checkpoint: Path) -> int:
    """How many processes trained together when it was saved: each left its random numbers."""
    return len(list(checkpoint.glob("rng_state_*.pth"))) or 1


def needs_no_more(checkpoint: Path, max_steps: int | None, epochs: float | None) -> bool:
    """Whether the training that wrote `checkpoint` had reached its end, and the end has not been moved."""
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    end = max_steps if max_steps and max_steps > 0 else state["max_steps"]
    moved = epochs is not None and epochs > state["num_train_epochs"]
    return state["global_step"] >= end and not moved
