"""Counts the functions of ours that a run enters, before its first batch and its first loss, and in all.

    uv run python benchmarks/before_first_loss.py          # figures by package
    uv run python benchmarks/before_first_loss.py --list   # every function before the first loss, in the order of entry

A reader who follows `uv run apps/trainer train` from `main` to the first loss has these functions to read. The run has
two steps on generated shapes. A function counts once; lambdas, comprehensions, bodies of classes and what runs while a
module is imported do not.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SMALL = (
    "custom.coord_soft_ce_w1.enabled=true",
    "data.shapes.train=64",
    "data.shapes.heldout=2",
    "evaluation.max_new_tokens=8",
    "training.max_steps=2",
)
MARKS = {"collate_samples": "first batch", "CoordObjective.fused": "first loss"}
"""What stands when a function returns for the first time."""


class Entered:
    """The functions below `ROOT` that were entered, in order, and how many of them before each mark."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, None] = {}
        self.before: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Take an event of `sys.setprofile`."""
        code = frame.f_code
        if event == "call" and is_function(code) and code not in self.codes:
            if not is_importing(frame):
                self.codes[code] = None
        elif event == "return" and code.co_qualname in MARKS:
            self.before.setdefault(MARKS[code.co_qualname], len(self.codes))


def is_function(code: CodeType) -> bool:
    """Return whether code is of a function with a name, in a source of ours."""
    named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    return bool(named) and "/src/coord_" in code.co_filename


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a module of ours is being imported: what builds its tables is not on the reader's way."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "/src/coord_" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def summary(codes: list[CodeType]) -> str:
    """Return the number of functions and files, in all and of each package."""
    files = {code.co_filename for code in codes}
    packages = Counter(code.co_filename.split("/src/")[1].split("/")[0] for code in codes)
    parts = ", ".join(f"{name} {count}" for name, count in packages.most_common())
    return f"{len(codes)} functions in {len(files)} files ({parts})"


def main() -> None:
    """Run two steps and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the functions before the first loss")
    listed = parser.parse_args().list
    entered = Entered()
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["coord-trainer", "train", "-c", str(ROOT / "configs/base/shapes.yaml")]
        sys.argv += [f"run.dir={folder}/run", *SMALL]
        threading.setprofile(entered)
        sys.setprofile(entered)
        try:
            from coord_trainer.cli.main import main as run

            run()
        except SystemExit as end:
            assert not end.code, "the run failed"
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    codes = list(entered.codes)
    assert entered.before.keys() == set(MARKS.values()), "a mark was never entered"
    if listed:
        for code in codes[: entered.before["first loss"]]:
            print(f"{code.co_filename.split('/src/')[1]}:{code.co_firstlineno} {code.co_qualname}")
    for mark, count in entered.before.items():
        print(f"before the {mark}: {summary(codes[:count])}")
    print(f"in the whole run: {summary(codes)}")


if __name__ == "__main__":
    main()
