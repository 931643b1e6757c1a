"""Tries one wheel in a new environment: installs it alone, imports its modules, runs its README and its tests.

The wheel with its requirements is tried before the group `test` of its pyproject.toml is installed, so that a
dependency of the tests, such as NumPy, cannot hide a requirement that the package does not declare.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tomllib
from members import FOLDERS, LIBRARIES, ROOT, project_of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheel_contents import siblings_needed

IMPORT_ALL = """
import importlib, pkgutil, {module} as package
assert "site-packages" in package.__file__, package.__file__
for info in pkgutil.walk_packages(package.__path__, "{module}."):
    if not info.name.endswith("__main__"):
        importlib.import_module(info.name)
"""


@dataclass(frozen=True)
class Place:
    """The Python and the resolution with which a wheel is tried.

    Attributes:
        version: the version of Python, such as `3.11`
        lowest: whether direct requirements have the lowest version in their ranges
    """

    version: str
    lowest: bool = False

    def __str__(self) -> str:
        return f"Python {self.version}" + (", lowest direct requirements" if self.lowest else "")


class StepFailedError(Exception):
    """A step failed; its output has been printed."""


def try_wheel(
    name: str, wheels: dict[str, Path], folder: Path, place: Place, *, tests: bool = True, exhaustive: bool = True
) -> None:
    """Install `wheels[name]` in a new environment below `folder`; try modules, programs, README and tests.

    Examples and tests of an app need checkpoints and the workspace, so that only its modules and program are tried.
    Without `exhaustive`, tests with that marker are skipped, which the workspace runs on its own Python.

    Raises:
        StepFailedError: if the install, `uv pip check`, an import, a program, a README example or a test fails
    """
    step = Steps(folder, place)
    step.install(*(wheels[needed] for needed in with_siblings(name, wheels)), lowest=place.lowest)
    step.check_member(name)
    if tests and name in LIBRARIES:
        package = FOLDERS[name]
        step.install("--group", f"{package / 'pyproject.toml'}:test")
        copy_tests(package, folder / "package")
        # Uses the markers and options of the workspace, but neither its folders nor its sources.
        options = ["-c", ROOT / "pyproject.toml", "--rootdir", folder / "package", "-p", "no:cacheprovider"]
        options += [] if exhaustive else ["-m", "not exhaustive"]
        step.python("-m", "pytest", "-q", *options, folder / "package" / "tests", show=True)


def try_readme(name: str, repository: Path, folder: Path, place: Place) -> None:
    """Install a member from a repository by the command of its README; try modules, programs and README.

    Raises:
        StepFailedError: if the command, `uv pip check`, an import, a program or a README example fails
        ValueError: if the README has no such command
    """
    step = Steps(folder, place)
    step.readme(name, repository)
    step.check_member(name)


def try_lock(name: str, wheels: dict[str, Path], repository: Path, folder: Path, place: Place) -> None:
    """Install the locked versions, as the README at the root says, then a member by the command of its own README.

    The remaining wheels are installed last; then the programs of all members are run.

    Raises:
        StepFailedError: if a command of the READMEs, an install or a program fails
        ValueError: if a README has no such command
    """
    step = Steps(folder, place)
    (line,) = re.findall(r"`(pip install [^`]*) -r requirements\.lock`", (ROOT / "README.md").read_text("utf-8"))
    step.shell(f"{line} -r {shlex.quote(str(ROOT / 'requirements.lock'))}")
    step.readme(name, repository)
    step.install("--no-deps", *(wheel for other, wheel in wheels.items() if other not in with_siblings(name, wheels)))
    step.programs(*wheels)


def try_project(project: Path, wheels: dict[str, Path], folder: Path, place: Place) -> None:
    """Install the requirements of a project outside the workspace from wheels and index, and run its program.

    Raises:
        StepFailedError: if the install, `uv pip check` or the program fails
    """
    dependencies = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    step = Steps(folder, place)
    # Its own ranges are passed as well, so that a range which excludes our version is an error.
    needed = {
        sibling for text in dependencies for sibling in with_siblings(canonicalize_name(Requirement(text).name), wheels)
    }
    step.install(*dependencies, *(wheels[name] for name in sorted(needed)))
    step.uv("pip", "check", "--quiet", "--python", step.executable)
    (program,) = project.glob("*.py")
    step.python("-W", "ignore", program)


def with_siblings(name: str, wheels: dict[str, Path]) -> list[str]:
    """Return a member's name and the members that it requires; empty for any other distribution."""
    return [name, *siblings_needed(wheels[name], wheels)] if name in wheels else []


def python_examples(readme: Path) -> list[str]:
    """Return the Python blocks of a README, joined in order into one program; empty if there are none."""
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text("utf-8"), re.DOTALL)
    return ["\n".join(blocks)] if blocks else []


def install_lines(readme: Path) -> list[str]:
    """Return the commands of a README that install our packages from a repository.

    Raises:
        ValueError: if there is none
    """
    blocks = re.findall(r"^```bash[^\n]*\n(.*?)^```", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    text = "".join(blocks).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("pip install ") and "git+$URL" in line]
    if not lines:
        raise ValueError(f"{readme}: no line 'pip install \"... @ git+$URL#subdirectory=...\"' in a bash block")
    return lines


def snapshot(folder: Path) -> Path:
    """Create a repository whose only commit is the working tree, to install packages from; returns its folder."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    identity = ["-c", "user.name=Snapshot", "-c", "user.email=snapshot@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "The working tree"]):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    return folder


def copy_tests(package: Path, target: Path) -> None:
    """Copy the folder of a package without its sources, so that only the installed package can be imported."""
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("src", "benchmarks", "__pycache__"))
    shutil.copy(ROOT / "conftest.py", target)


class Steps:
    """Runs the commands of one trial below its folder, without inherited variables that could import the sources."""

    def __init__(self, folder: Path, place: Place):
        """Create the virtual environment."""
        self.folder, self.place = folder, place
        self.executable = folder / "venv" / "bin" / "python"
        dropped = "PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT", "PYTHONDONTWRITEBYTECODE"
        inherited = {k: v for k, v in os.environ.items() if k not in dropped}
        # Bytecode is compiled once for all trials: torch alone takes ten seconds.
        inherited["PYTHONPYCACHEPREFIX"] = str(folder.parent / "bytecode")
        shared = {"COORDEXP_SHARED": str(ROOT.parent / "shared")} if (ROOT.parent / "shared").is_dir() else {}
        # One thread per program: two programs on two cores would only slow each other down.
        self.environ = {"OMP_NUM_THREADS": "1", **shared, **inherited}
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        python = interpreter(place.version) or place.version
        self.uv("venv", "--quiet", "--no-project", "--clear", "--python", python, folder / "venv")

    def check_member(self, name: str) -> None:
        """Run `uv pip check`, import every module of a member, and run its programs and README examples."""
        self.uv("pip", "check", "--quiet", "--python", self.executable)
        self.python("-c", IMPORT_ALL.format(module=name.replace("-", "_")))
        self.programs(name)
        for example in python_examples(FOLDERS[name] / "README.md") if name in LIBRARIES else []:
            self.python("-W", "ignore", "-c", example)

    def programs(self, *names: str) -> None:
        """Run the programs of members with `--help`."""
        for program in (program for name in names for program in project_of(name).get("scripts", {})):
            self._run([self.executable.parent / program, "--help"], show=False)

    def readme(self, name: str, repository: Path) -> None:
        """Run the install commands of a member's README with a local repository as the address of the project."""
        for line in install_lines(FOLDERS[name] / "README.md"):
            self.shell(line, URL=f"file://localhost{repository}")  # older versions of pip need a host

    def shell(self, line: str, **variables: str) -> None:
        """Run a `pip install` command in bash with uv in place of pip, which uses its cache."""
        options = ["--quiet", "--no-config", "--no-sources", "--python", self.executable, *self._constraint()]
        words = " ".join(shlex.quote(str(word)) for word in options)
        settings = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
        pip = f'pip() {{ uv pip "$1" {words} "${{@:2}}"; }}\n'
        self._run(["bash", "-euc", settings + pip + line], show=False)

    def _constraint(self) -> list[object]:
        """Return the option for the locked versions if the lock covers this Python."""
        return ["--constraint", ROOT / "requirements.lock"] if self.place.version == running_python() else []

    def install(self, *what: object, lowest: bool = False) -> None:
        """Run `uv pip install` with the locked versions if the lock covers this Python."""
        options = ["--python", self.executable, "--link-mode", "hardlink"]
        options += ["--resolution", "lowest-direct"] if lowest else self._constraint()
        self.uv("pip", "install", "--quiet", "--no-config", *options, *what)

    def uv(self, *arguments: object) -> None:
        """Run a uv command."""
        self._run(["uv", *arguments], show=False)

    def python(self, *arguments: object, show: bool = False) -> None:
        """Run the Python of the environment."""
        self._run([self.executable, *arguments], show=show)

    def _run(self, command: list[object], *, show: bool) -> None:
        words = [str(word) for word in command]
        pipe = None if show else subprocess.PIPE
        done = subprocess.run(
            words, cwd=self.work, env=self.environ, stdout=pipe, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            print(done.stdout or "", end="", flush=True)
            start = " ".join(words[:6]).splitlines()[0]
            raise StepFailedError(f"'{start} ...' ended with {done.returncode}")


def running_python() -> str:
    """Return the version of the running Python, which the lock is for."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def interpreter(version: str) -> str | None:
    """Return the path of a working Python of this version, on PATH or from pyenv or uv; None if there is none."""
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv_dir = subprocess.run(["uv", "python", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    folders = [
        *map(Path, os.get_exec_path()),
        *managed.glob(f"{version}.*/bin"),
        *Path(uv_dir).glob(f"cpython-{version}.*/bin"),
    ]
    for folder in folders:
        candidate = folder / f"python{version}"
        # Shims of pyenv exist for versions that cannot be run.
        if (
            candidate.exists()
            and not subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode
        ):
            return str(candidate)
    return None
