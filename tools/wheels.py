"""Build every wheel of the workspace and try each member alone in a new environment.

Every member is installed with the command of its README, from a repository with the working tree; the trainer together
with `requirements.lock`, as the README at the root says. The projects in tests/outside, which combine two or three of
the libraries, are installed from the wheels.

    python tools/wheels.py             on the running Python: imports, programs, README examples; tests of codec and
                                       eval, except the exhaustive ones, with the lowest requirements on the oldest
                                       Python; this is what CI runs
    python tools/wheels.py --full      also from the wheels, with the tests of the libraries: codec and eval on Python
                                       3.10 to 3.13, each also with the lowest requirements; losses and adapter on
                                       each, with the lowest on 3.10 (torch is a download of 1 GB for each)
    python tools/wheels.py coord-eval  one member alone

Prints what ran and what did not; the exit code is 1 if anything failed.
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

LIGHT = ["coord-codec", "coord-eval"]  # without torch: fast to install
LOCKED = "coord-trainer"  # pins its requirements, so that it is installed with the lock
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
Member = Enum("Member", {name: name for name in FOLDERS}, type=str)


def build(out: Path) -> dict[str, Path]:
    """Build the wheels and source distributions of the workspace; returns the wheels by name."""
    subprocess.run(["uv", "build", "--quiet", "--all-packages", "--out-dir", out], cwd=ROOT, check=True)
    return wheels_in(out)


def places(name: str, *, full: bool) -> list[Place]:
    """Return the environments in which the wheel and the tests of a library are tried."""
    available = [version for version in PYTHONS if interpreter(version)]
    if not full:
        return [Place(available[0], lowest=True)] if name in LIGHT else []
    if name in LIGHT:
        return [Place(version, lowest) for version in available for lowest in (False, True)]
    return [Place(available[0], lowest=True), *map(Place, available)]


def main(
    members: Annotated[list[Member] | None, typer.Argument(help="Members to try; all if none is given.")] = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="Try every Python found here, at both resolutions.")] = False,
    no_tests: Annotated[bool, typer.Option("--no-tests", help="Install, import and run README examples only.")] = False,
) -> None:
    """Build every wheel and try each member alone in a new environment; exit code 1 if anything failed."""
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
                exhaustive = full and not place.lowest  # their results do not depend on versions
                run = partial(try_wheel, name, wheels, tests=not no_tests, exhaustive=exhaustive)
                failures += tried(f"{name} alone{'' if no_tests else ', with tests'}", place, run, Path(folder))
            if full and name not in LIBRARIES:
                failures += tried(f"{name} alone", current, partial(try_wheel, name, wheels), Path(folder))
        for project in [] if chosen else sorted((ROOT / "tests" / "outside").glob("*/")):
            run = partial(try_project, project, wheels)
            failures += tried(f"outside project {project.name}", current, run, Path(folder))
    sys.exit(1 if failures else 0)


def tried(what: str, place: Place, run: Callable[..., None], folder: Path) -> list[str]:
    """Run one trial in an empty folder and print a line about it; returns a list with its failure, if any."""
    start = time.monotonic()
    fresh = folder / "trial"  # the same path for all trials, so that bytecode is reused
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
