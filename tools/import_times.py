"""Measures the built wheels: size in bytes, time of an import, time until a program has printed its help.

    uv run python tools/import_times.py

Installs `requirements.lock` and the six members in an empty environment. Each time is the median processor time of
several runs in new processes, after a first one that compiles bytecode; import times exclude the start of the
interpreter. The times are recorded in `benchmarks/RESULTS.md`; no test checks them.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from installed import Place, running_python, snapshot, try_lock
from members import project_of
from wheels import LOCKED, build

HEAVY = ("torch", "transformers", "swift", "peft", "numpy", "matplotlib")


def seconds(command: list[object], runs: int) -> float:
    """Return the median processor time of a command."""
    times = []
    for _ in range(runs + 1):
        start = processor_time()
        subprocess.run(
            [str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        times.append(processor_time() - start)
    return statistics.median(times[1:])


def processor_time() -> float:
    """Return the processor time of all finished child processes so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(runs: Annotated[int, typer.Option(help="Number of runs whose median is printed.")] = 9) -> None:
    """Print a table with one row for each member."""
    with tempfile.TemporaryDirectory(prefix="imports-") as folder:
        wheels = build(Path(folder) / "dist")
        repository = snapshot(Path(folder) / "repository")
        try_lock(LOCKED, wheels, repository, Path(folder) / "trial", Place(running_python()))
        python = Path(folder) / "trial" / "venv" / "bin" / "python"
        start = seconds([python, "-c", "pass"], runs)
        print("| member | wheel kB | sdist kB | import s | loads | help s |\n|---|---|---|---|---|---|")
        for name, wheel in wheels.items():
            module = name.replace("-", "_")
            code = f"import sys, {module}; print(*[m for m in {HEAVY!r} if m in sys.modules], sep=', ')"
            loaded = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
            imported = seconds([python, "-c", f"import {module}"], runs) - start
            programs = [python.parent / program for program in project_of(name).get("scripts", {})]
            helped = "".join(f"{seconds([program, '--help'], runs):.2f}" for program in programs)
            (source,) = wheel.parent.glob(f"{module}-*.tar.gz")
            sizes = " | ".join(f"{file.stat().st_size / 1000:.0f}" for file in (wheel, source))
            print(f"| {name} | {sizes} | {imported:.3f} | {loaded or 'none of these'} | {helped} |", flush=True)
        print(f"the interpreter itself starts in {start:.3f} s", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
