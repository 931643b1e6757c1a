"""One wheel in a fresh environment: installed alone, its modules imported, its README run, its tests run.

Two steps, so that what tests bring along (NumPy, say) cannot stand in for a requirement that the package forgot:
first the wheel and what it requires, then the group `test` of its pyproject.toml.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheel_contents import siblings_needed

ROOT = Path(__file__).parents[1]

IMPORT_ALL = """
import importlib, pkgutil, {module} as package
assert "site-packages" in package.__file__, package.__file__
for found in pkgutil.walk_packages(package.__path__, "{module}."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


@dataclass(frozen=True)
class Place:
    """Where and how a wheel is tried.

    Attributes:
        version: Of Python, `3.11`.
        lowest: Direct requirements at the lowest version that their ranges allow.
    """

    version: str
    lowest: bool = False

    def __str__(self) -> str:
        return f"Python {self.version}" + (", lowest direct requirements" if self.lowest else "")


class StepFailedError(Exception):
    """A step ended with an error; its output has been shown."""


def try_wheel(name: str, wheels: dict[str, Path], folder: Path, place: Place, *, tests: bool = True) -> None:
    """Install `wheels[name]` in a new environment below `folder` and try all that the package promises.

    Raises:
        StepFailedError: The install, `uv pip check`, an import, an example of the README or a test failed.
    """
    package = ROOT / "packages" / name
    needed = [wheels[found] for found in with_siblings(name, wheels)]
    environment = folder / "venv"
    step = Steps(folder, environment, place)
    step.uv(
        "venv",
        "--quiet",
        "--no-project",
        "--clear",
        "--python",
        interpreter(place.version) or place.version,
        environment,
    )
    step.install(*needed, lowest=place.lowest)
    step.uv("pip", "check", "--quiet", "--python", environment)
    step.python("-c", IMPORT_ALL.format(module=name.replace("-", "_")))
    for example in python_examples(package / "README.md"):
        step.python("-W", "ignore", "-c", example)
    if tests:
        step.install("--group", f"{package / 'pyproject.toml'}:test")
        copy_tests(package, folder / "package")
        # The workspace's markers and options, but neither its folders nor its sources.
        options = ["-c", ROOT / "pyproject.toml", "--rootdir", folder / "package", "-p", "no:cacheprovider"]
        step.python("-m", "pytest", "-q", *options, folder / "package" / "tests", show=True)


def try_project(project: Path, wheels: dict[str, Path], folder: Path, place: Place) -> None:
    """Install what a project outside the workspace asks for, from the wheels and the index, and run its program.

    Raises:
        StepFailedError: The install, `uv pip check` or the program failed.
    """
    asked = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    environment = folder / "venv"
    step = Steps(folder, environment, place)
    step.uv("venv", "--quiet", "--no-project", "--clear", "--python", interpreter(place.version), environment)
    # Its requirements are kept beside the wheels, so that a range which leaves ours out is an error.
    needed = {sibling for text in asked for sibling in with_siblings(canonicalize_name(Requirement(text).name), wheels)}
    step.install(*asked, *(wheels[name] for name in sorted(needed)))
    step.uv("pip", "check", "--quiet", "--python", environment)
    (program,) = project.glob("*.py")
    step.python("-W", "ignore", program)


def with_siblings(name: str, wheels: dict[str, Path]) -> list[str]:
    """A wheel of ours and those it needs; nothing for a name that is not ours."""
    return [name, *siblings_needed(wheels[name], wheels)] if name in wheels else []


def python_examples(readme: Path) -> list[str]:
    """The README's examples: one program, which its Python blocks make together in their order."""
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text("utf-8"), re.DOTALL)
    return ["\n".join(blocks)] if blocks else []


def copy_tests(package: Path, target: Path) -> None:
    """The package's folder without its sources, so that only what is installed can be imported."""
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("src", "benchmarks", "__pycache__"))
    shutil.copy(ROOT / "conftest.py", target)


class Steps:
    """Commands of one trial, run below its folder with nothing inherited that could import the sources."""

    def __init__(self, folder: Path, environment: Path, place: Place):
        """Keep what all steps share."""
        self.folder, self.place = folder, place
        self.executable = environment / "bin" / "python"
        # Bytecode may be written: torch alone takes seconds to compile, once and not for every process.
        dropped = "PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT", "PYTHONDONTWRITEBYTECODE"
        outer = {k: v for k, v in os.environ.items() if k not in dropped}
        shared = {"COORDEXP_SHARED": str(ROOT.parent / "shared")} if (ROOT.parent / "shared").is_dir() else {}
        # One thread for each: two programs on two cores would only wait for one another.
        self.environ = {"OMP_NUM_THREADS": "1", **shared, **outer}
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)

    def install(self, *what: object, lowest: bool = False) -> None:
        """`uv pip install`, at the versions of the workspace's lock where it covers this Python."""
        options = ["--python", self.executable, "--link-mode", "hardlink"]
        if lowest:
            options += ["--resolution", "lowest-direct"]
        elif self.place.version == running_python():
            options += ["--constraint", ROOT / "requirements.lock"]
        self.uv("pip", "install", "--quiet", "--no-config", *options, *what)

    def uv(self, *arguments: object) -> None:
        """One uv command."""
        self._run(["uv", *arguments], show=False)

    def python(self, *arguments: object, show: bool = False) -> None:
        """One run of the new environment's Python."""
        self._run([self.executable, *arguments], show=show)

    def _run(self, command: list[object], *, show: bool) -> None:
        words = [str(word) for word in command]
        pipe = None if show else subprocess.PIPE
        done = subprocess.run(
            words, cwd=self.work, env=self.environ, stdout=pipe, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            print(done.stdout or "", end="", flush=True)
            shown = " ".join(words[:6]).splitlines()[0]
            raise StepFailedError(f"'{shown} ...' ended with {done.returncode}")


def running_python() -> str:
    """The version of the interpreter that runs this, for which the workspace's lock was made."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def interpreter(version: str) -> str | None:
    """The path of a working Python of this version: on PATH, pyenv's or uv's; None if there is none."""
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv_dir = subprocess.run(["uv", "python", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    folders = [
        *map(Path, os.get_exec_path()),
        *managed.glob(f"{version}.*/bin"),
        *Path(uv_dir).glob(f"cpython-{version}.*/bin"),
    ]
    for folder in folders:
        candidate = folder / f"python{version}"
        # pyenv's shims are there and say no when run.
        if (
            candidate.exists()
            and not subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode
        ):
            return str(candidate)
    return None
