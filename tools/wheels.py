"""Build every wheel of the workspace and try each member alone in a fresh environment.

Every member is installed by the line of its README, from a repository with the working tree; the trainer beside
`requirements.lock`, as the README at the root says. The projects in tests/outside, which use two or
three of the libraries together, are installed from the wheels.

    python tools/wheels.py             on the running Python: imports, programs, README examples; the tests of codec
                                       and eval, but for the exhaustive ones, at the lowest requirements on the oldest
                                       Python: what CI runs
    python tools/wheels.py --full      from the wheels as well, with the tests of the libraries: codec and eval on
                                       Python 3.10 to 3.13, each also at the lowest requirements, losses and adapter
                                       on each, and at the lowest on 3.10 (torch is a download of 1 GB for each)
    python tools/wheels.py coord-eval  one member alone

Prints what ran and what didn't; exit 1 where anything failed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from installed import (
    Place,
    StepFailedError,
    interpreter,
    running_python,
    snapshot,
    try_lock,
    try_project,
    try_readme,
    try_wheel,
)
from members import FOLDERS, LIBRARIES, ROOT
from wheel_contents import check_wheel, wheels_in

LIGHT = ["coord-codec", "coord-eval"]  # no torch: cheap to install
LOCKED = "coord-trainer"  # pins its requirements, so that it is installed beside the lock
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
Member = Enum("Member", {name: name for name in FOLDERS}, type=str)


def build(out: Path) -> dict[str, Path]:
    """Wheels (and source distributions) of the whole workspace, by name."""
    subprocess.run(["uv", "build", "--quiet", "--all-packages", "--out-dir", out], cwd=ROOT, check=True)
    return wheels_in(out)


def places(name: str, *, full: bool) -> list[Place]:
    """Where a library is tried from its wheel, with its tests, which the workspace runs on this Python anyway."""
    there = [version for version in PYTHONS if interpreter(version)]
    if not full:
        return [Place(there[0], lowest=True)] if name in LIGHT else []
    if name in LIGHT:
        return [Place(version, lowest) for version in there for lowest in (False, True)]
    return [Place(there[0], lowest=True), *map(Place, there)]


def main(
    members: Annotated[list[Member] | None, typer.Argument(help="Members to try; all if none is given.")] = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="Try every Python there is, at both resolutions.")] = False,
    no_tests: Annotated[bool, typer.Option("--no-tests", help="Install, import and run README examples only.")] = False,
) -> None:
    """Build every wheel and try each member alone in a fresh environment; exit code 1 where anything failed."""
    chosen = [member.value for member in members or ()]
    missing = [version for version in PYTHONS if not interpreter(version)]
    if missing:
        print(f"not on this machine, so not tried: Python {', '.join(missing)}")
    current = Place(running_python())
    with tempfile.TemporaryDirectory(prefix="wheels-") as folder:
        wheels = build(Path(folder) / "dist")
        failures = [fault for name, wheel in wheels.items() for fault in check_wheel(wheel, FOLDERS[name], wheels)]
        print(*failures, sep="\n", end="\n" if failures else "")
        print(f"{len(wheels)} wheels built, {len(failures)} faults in files, metadata, ranges and imports", flush=True)
        repository = snapshot(Path(folder) / "repository")
        for name in chosen or FOLDERS:
            if name == LOCKED:
                run = partial(try_lock, name, wheels, repository)
                failures += tried(f"requirements.lock and {name} by its README's line", current, run, Path(folder))
            else:
                run = partial(try_readme, name, repository)
                failures += tried(f"{name} by its README's line", current, run, Path(folder))
            for place in places(name, full=full) if name in LIBRARIES else []:
                exhaustive = full and not place.lowest  # what they try depends on no version
                run = partial(try_wheel, name, wheels, tests=not no_tests, exhaustive=exhaustive)
                failures += tried(f"{name} alone{'' if no_tests else ', with tests'}", place, run, Path(folder))
            if full and name not in LIBRARIES:
                failures += tried(f"{name} alone", current, partial(try_wheel, name, wheels), Path(folder))
        for project in [] if chosen else sorted((ROOT / "tests" / "outside").glob("*/")):
            run = partial(try_project, project, wheels)
            failures += tried(f"outside project {project.name}", current, run, Path(folder))
    sys.exit(1 if failures else 0)


def tried(what: str, place: Place, run: Callable[..., None], folder: Path) -> list[str]:
    """One trial in a fresh folder, told in a line; the failure if there is one."""
    start = time.monotonic()
    fresh = folder / "trial"  # the same for all, so that bytecode is found again
    try:
        run(folder=fresh, place=place)
    except StepFailedError as error:
        print(f"{what}, {place}: FAILED: {error}", flush=True)
        return [f"{what}, {place}: {error}"]
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    print(f"{what}, {place}: good ({time.monotonic() - start:.0f} s)", flush=True)
    return []


if __name__ == "__main__":
    typer.run(main)
