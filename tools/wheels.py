"""Build every wheel of the workspace and try the four libraries each alone in a fresh environment.

The projects in tests/outside, which use two or three of them together, are run the same way.

    python tools/wheels.py             all four on the running Python: imports, README examples; the tests
                                       of codec and eval at the lowest requirements on the oldest Python: what CI runs
    python tools/wheels.py --full      with the tests of all; codec and eval on Python 3.10 to 3.13, each also at the
                                       lowest requirements
    python tools/wheels.py coord-eval  one package alone

Prints what ran and what didn't; exit 1 where anything failed.
"""

from __future__ import annotations

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
from installed import ROOT, Place, StepFailedError, interpreter, running_python, try_project, try_wheel
from wheel_contents import check_wheel, wheels_in

LIGHT = ["coord-codec", "coord-eval"]  # no torch: cheap to install, and of use on every Python
LIBRARIES = [*LIGHT, "coord-losses", "coord-adapter"]
Library = Enum("Library", {name: name for name in LIBRARIES}, type=str)
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


def build(out: Path) -> dict[str, Path]:
    """Wheels (and source distributions) of the whole workspace, by name."""
    subprocess.run(["uv", "build", "--quiet", "--all-packages", "--out-dir", out], cwd=ROOT, check=True)
    return wheels_in(out)


def folder_of(name: str) -> Path:
    """A package's or app's folder."""
    folder = ROOT / "packages" / name
    return folder if folder.is_dir() else ROOT / "apps" / name.removeprefix("coord-")


def places(name: str, *, full: bool) -> list[tuple[Place, bool]]:
    """Where a package is tried, and whether with its tests, which the workspace runs on this Python anyway."""
    there = [version for version in PYTHONS if interpreter(version)]
    current = Place(running_python())
    if name not in LIGHT:
        return [(current, full)]
    if not full:
        return [(current, False), (Place(there[0], lowest=True), True)]
    return [(Place(version, lowest), True) for version in there for lowest in (False, True)]


def main(
    packages: Annotated[list[Library] | None, typer.Argument(help="Packages to try; all if none is given.")] = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="Try every Python there is, at both resolutions.")] = False,
    no_tests: Annotated[bool, typer.Option("--no-tests", help="Install, import and run README examples only.")] = False,
) -> None:
    """Build every wheel and try each library alone in a fresh environment; exit code 1 where anything failed."""
    chosen = [package.value for package in packages or ()]
    missing = [version for version in PYTHONS if not interpreter(version)]
    if missing:
        print(f"not on this machine, so not tried: Python {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="wheels-") as folder:
        wheels = build(Path(folder) / "dist")
        failures = [fault for name, wheel in wheels.items() for fault in check_wheel(wheel, folder_of(name), wheels)]
        print(*failures, sep="\n", end="\n" if failures else "")
        print(f"{len(wheels)} wheels built, {len(failures)} faults in files, metadata, ranges and imports", flush=True)
        for name in chosen or LIBRARIES:
            for place, tested in places(name, full=full):
                tests = tested and not no_tests
                run = partial(try_wheel, name, wheels, tests=tests)
                failures += tried(f"{name} alone{', with tests' if tests else ''}", place, run, Path(folder))
        for project in [] if chosen else sorted((ROOT / "tests" / "outside").glob("*/")):
            run = partial(try_project, project, wheels)
            failures += tried(f"outside project {project.name}", Place(running_python()), run, Path(folder))
    sys.exit(1 if failures else 0)


def tried(what: str, place: Place, run: Callable[..., None], folder: Path) -> list[str]:
    """One trial in a fresh folder, told in a line; the failure if there is one."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trial-", dir=folder) as fresh:
        try:
            run(folder=Path(fresh), place=place)
        except StepFailedError as error:
            print(f"{what}, {place}: FAILED: {error}", flush=True)
            return [f"{what}, {place}: {error}"]
    print(f"{what}, {place}: good ({time.monotonic() - start:.0f} s)", flush=True)
    return []


if __name__ == "__main__":
    typer.run(main)
