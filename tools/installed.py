"""One wheel in a fresh environment: installed alone, its modules imported, its README run, its tests run.

Two steps, so that what tests bring along (NumPy, say) cannot stand in for a requirement that the package forgot:
first the wheel and what it requires, then the group `test` of its pyproject.toml.
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


def try_wheel(
    name: str, wheels: dict[str, Path], folder: Path, place: Place, *, tests: bool = True, exhaustive: bool = True
) -> None:
    """Install `wheels[name]` in a new environment below `folder` and try all that the package promises.

    An app's example and tests need checkpoints and the workspace: of an app the modules and the program are tried.
    Without `exhaustive` the tests of that mark, which the workspace runs on its own Python, are left out.

    Raises:
        StepFailedError: The install, `uv pip check`, an import, a program, an example of the README or a test failed.
    """
    step = Steps(folder, place)
    step.install(*(wheels[found] for found in with_siblings(name, wheels)), lowest=place.lowest)
    step.promises(name)
    if tests and name in LIBRARIES:
        package = FOLDERS[name]
        step.install("--group", f"{package / 'pyproject.toml'}:test")
        copy_tests(package, folder / "package")
        # The workspace's markers and options, but neither its folders nor its sources.
        options = ["-c", ROOT / "pyproject.toml", "--rootdir", folder / "package", "-p", "no:cacheprovider"]
        options += [] if exhaustive else ["-m", "not exhaustive"]
        step.python("-m", "pytest", "-q", *options, folder / "package" / "tests", show=True)


def try_readme(name: str, repository: Path, folder: Path, place: Place) -> None:
    """Install a member by the line of its README from a repository and try the same.

    Raises:
        StepFailedError: The line, `uv pip check`, an import, a program or an example of the README failed.
        ValueError: The README has no such line.
    """
    step = Steps(folder, place)
    step.readme(name, repository)
    step.promises(name)


def try_lock(name: str, wheels: dict[str, Path], repository: Path, folder: Path, place: Place) -> None:
    """Install exactly the tested versions, as the README at the root says, then a member by the line of its own README.

    The wheels that are still missing come last; the programs of all are run.

    Raises:
        StepFailedError: A line of the READMEs, an install or a program failed.
        ValueError: A README has no such line.
    """
    step = Steps(folder, place)
    (line,) = re.findall(r"`(pip install [^`]*) -r requirements\.lock`", (ROOT / "README.md").read_text("utf-8"))
    step.shell(f"{line} -r {shlex.quote(str(ROOT / 'requirements.lock'))}")
    step.readme(name, repository)
    step.install("--no-deps", *(wheel for other, wheel in wheels.items() if other not in with_siblings(name, wheels)))
    step.programs(*wheels)


def try_project(project: Path, wheels: dict[str, Path], folder: Path, place: Place) -> None:
    """Install what a project outside the workspace asks for, from the wheels and the index, and run its program.

    Raises:
        StepFailedError: The install, `uv pip check` or the program failed.
    """
    asked = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    step = Steps(folder, place)
    # Its requirements are kept beside the wheels, so that a range which leaves ours out is an error.
    needed = {sibling for text in asked for sibling in with_siblings(canonicalize_name(Requirement(text).name), wheels)}
    step.install(*asked, *(wheels[name] for name in sorted(needed)))
    step.uv("pip", "check", "--quiet", "--python", step.executable)
    (program,) = project.glob("*.py")
    step.python("-W", "ignore", program)


def with_siblings(name: str, wheels: dict[str, Path]) -> list[str]:
    """A wheel of ours and those it needs; nothing for a name that is not ours."""
    return [name, *siblings_needed(wheels[name], wheels)] if name in wheels else []


def python_examples(readme: Path) -> list[str]:
    """The README's examples: one program, which its Python blocks make together in their order."""
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text("utf-8"), re.DOTALL)
    return ["\n".join(blocks)] if blocks else []


def install_lines(readme: Path) -> list[str]:
    """The README's lines that install our packages from a repository.

    Raises:
        ValueError: There is none.
    """
    blocks = re.findall(r"^```bash[^\n]*\n(.*?)^```", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    text = "".join(blocks).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("pip install ") and "git+$URL" in line]
    if not lines:
        raise ValueError(f"{readme}: no line 'pip install \"... @ git+$URL#subdirectory=...\"' in a bash block")
    return lines


def snapshot(folder: Path) -> Path:
    """A repository of its own with the working tree as its only commit, to install from as from the project's."""
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
    """The package's folder without its sources, so that only what is installed can be imported."""
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("src", "benchmarks", "__pycache__"))
    shutil.copy(ROOT / "conftest.py", target)


class Steps:
    """Commands of one trial, run below its folder with nothing inherited that could import the sources."""

    def __init__(self, folder: Path, place: Place):
        """Keep what all steps share, and make the environment."""
        self.folder, self.place = folder, place
        self.executable = folder / "venv" / "bin" / "python"
        dropped = "PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT", "PYTHONDONTWRITEBYTECODE"
        outer = {k: v for k, v in os.environ.items() if k not in dropped}
        # Compiled once for all trials at this path, one after the other: torch alone takes ten seconds.
        outer["PYTHONPYCACHEPREFIX"] = str(folder.parent / "bytecode")
        shared = {"COORDEXP_SHARED": str(ROOT.parent / "shared")} if (ROOT.parent / "shared").is_dir() else {}
        # One thread for each: two programs on two cores would only wait for one another.
        self.environ = {"OMP_NUM_THREADS": "1", **shared, **outer}
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        python = interpreter(place.version) or place.version
        self.uv("venv", "--quiet", "--no-project", "--clear", "--python", python, folder / "venv")

    def promises(self, name: str) -> None:
        """What is installed fits together; every module, program and example of a member works."""
        self.uv("pip", "check", "--quiet", "--python", self.executable)
        self.python("-c", IMPORT_ALL.format(module=name.replace("-", "_")))
        self.programs(name)
        for example in python_examples(FOLDERS[name] / "README.md") if name in LIBRARIES else []:
            self.python("-W", "ignore", "-c", example)

    def programs(self, *names: str) -> None:
        """The programs of members say what they do."""
        for program in (program for name in names for program in project_of(name).get("scripts", {})):
            self._run([self.executable.parent / program, "--help"], show=False)

    def readme(self, name: str, repository: Path) -> None:
        """Run the lines of a member's README that install it, with a repository for the project's address."""
        for line in install_lines(FOLDERS[name] / "README.md"):
            self.shell(line, URL=f"file://localhost{repository}")  # without a host older pips refuse it

    def shell(self, line: str, **variables: str) -> None:
        """A `pip install` line as it stands, in bash, with uv as pip: the same resolution, from uv's cache."""
        options = ["--quiet", "--no-config", "--no-sources", "--python", self.executable, *self._constraint()]
        words = " ".join(shlex.quote(str(word)) for word in options)
        settings = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
        pip = f'pip() {{ uv pip "$1" {words} "${{@:2}}"; }}\n'
        self._run(["bash", "-euc", settings + pip + line], show=False)

    def _constraint(self) -> list[object]:
        """The versions of the workspace's lock where it covers this Python."""
        return ["--constraint", ROOT / "requirements.lock"] if self.place.version == running_python() else []

    def install(self, *what: object, lowest: bool = False) -> None:
        """`uv pip install`, at the versions of the workspace's lock where it covers this Python."""
        options = ["--python", self.executable, "--link-mode", "hardlink"]
        options += ["--resolution", "lowest-direct"] if lowest else self._constraint()
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
