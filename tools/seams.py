"""Tests the boundary to ms-swift with other versions of ms-swift, transformers or peft, in a temporary environment.

    uv run python tools/seams.py --with "ms-swift==4.5.3"

Runs `doctor` and the tests of the boundary there; the environment of the workspace does not change. The exit code is 1
if something breaks.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import tomllib
import typer

ROOT = Path(__file__).parents[1]
TESTS = ("swift/test_seams.py", "swift/test_open_run.py", "config/test_swift_arguments.py", "training/test_faults.py")


def main(
    versions: Annotated[
        list[str], typer.Option("--with", metavar="REQUIREMENT", help="A version to try, such as transformers==5.20.2.")
    ],
    python: Annotated[str, typer.Option(help="Python of the environment.")] = "3.11",
) -> None:
    """Try other versions; prints each missing function and each failing test."""
    with tempfile.TemporaryDirectory(prefix="seams-") as place:
        interpreter = Path(place) / "bin" / "python"
        _run("uv", "venv", "-q", "--python", python, place)
        wanted = {re.split(r"[^\w.-]", version)[0].lower() for version in versions}
        pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
        (Path(place) / "pins.txt").write_text("\n".join(pin for pin in pins if pin.split("==")[0] not in wanted))
        (Path(place) / "overrides.txt").write_text("\n".join(versions))
        packages = [f"-e{path}" for path in sorted([*ROOT.glob("packages/*"), ROOT / "apps" / "trainer"])]
        install = ("uv", "pip", "install", "-q", "--no-config", "--python", interpreter)
        install += ("--override", f"{place}/overrides.txt", "--constraint", f"{place}/pins.txt")
        installed = _run(*install, *packages, "pytest>=8.3", "hypothesis>=6", "dashscope", check=False)
        if installed.returncode:
            typer.echo(f"{', '.join(versions)}: cannot be installed\n{installed.stderr.strip()}", err=True)
            raise typer.Exit(1)
        doctor = _run(interpreter, ROOT / "apps" / "trainer", "doctor", check=False)
        tests = [ROOT / "apps" / "trainer" / "tests" / name for name in TESTS]
        options = ("-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "-rfE", "--tb=line")
        tested = _run(interpreter, "-m", "pytest", *options, *tests, check=False)
    missing = re.findall(r"^MISSING .*$", doctor.stdout, re.MULTILINE)
    failed = re.findall(r"^(?:FAILED|ERROR) .*$", tested.stdout, re.MULTILINE)
    failed += sorted(set(re.findall(r"^/\S+:\d+: .*$|^E  .*$", tested.stdout, re.MULTILINE)))  # the errors
    completed = doctor.returncode in (0, 1) and tested.returncode in (0, 1)
    typer.echo("\n".join([*doctor.stdout.splitlines()[:2], *missing, *failed]))
    if not completed or missing or failed:
        typer.echo((doctor.stderr + tested.stderr).strip()[-2000:], err=True)
        raise typer.Exit(1)
    typer.echo(f"{', '.join(versions)}: nothing breaks")


def _run(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True, check=check)


if __name__ == "__main__":
    typer.run(main)
