"""Tries each member alone in a new environment, installed from wheels as its README says.

    uv run python tools/alone.py [MEMBER ... | --changed] [--python 3.10] [--lowest | --newest] [--tests] [--wheels DIR]

It installs the packages that the README's line names from newly built wheels, the rest from the index, imports every
module, runs the program and, of a library, the README's Python. `--lowest` takes the lowest requirements, `--newest`
the newest releases that they allow instead of those of the lock, and `--tests` runs the tests of members with a group
`test`. `--changed` tries the members that differ from the last common
commit with the branch main, on main itself from the commit before. `--wheels` takes the wheels of a folder, built
before, in place of new ones. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomllib
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
IMPORT_ALL = """
import importlib, pkgutil, {module} as package
assert "site-packages" in package.__file__, package.__file__
for info in pkgutil.walk_packages(package.__path__, "{module}."):
    if not info.name.endswith("__main__"):
        try:
            importlib.import_module(info.name)
        except ModuleNotFoundError as error:  # of a module that only an extra needs
            if error.name.partition(".")[0] not in {optional}:
                raise
"""
IMPORTED_AS = {"pillow": "PIL"}
"""Packages whose modules have another name."""


def blocks(readme: Path, language: str) -> str:
    """Return the code blocks of a language in a README that have no title, as one text."""
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE))


def installed_by(readme: Path) -> list[tuple[str, str]]:
    """Return the packages that a README installs from the repository, as pairs of name and extra."""
    return re.findall(r'"([\w-]+)(\[[\w,]+\])? @ git\+\$URL#', blocks(readme, "bash"))


def required_by(projects: list[dict[str, Any]], members: list[tuple[str, str]]) -> list[str]:
    """Return what members of the workspace, pairs of name and extra, require from elsewhere.

    uv takes the lowest versions of what is named to it, and the newest of what only a wheel requires.
    """
    found: list[str] = []
    for project in projects:
        for name, extra in members:
            if name == project["name"]:
                found += project["dependencies"]
                for chosen in re.findall(r"[\w-]+", extra):
                    found += project["optional-dependencies"][chosen]
    return [name for name in found if not name.startswith("coord-")]


def variables(place: Path) -> dict[str, str]:
    """Return the variables for programs of an environment below a folder: those here without what names another one."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT")}
    # Bytecode is compiled once for all trials: torch alone takes ten seconds.
    return kept | {"PYTHONPYCACHEPREFIX": str(place.parent / "bytecode"), "OMP_NUM_THREADS": "1"}


def new_environment(place: Path, python: str, versions: str) -> tuple[Callable[..., None], Path]:
    """Make an environment below a folder.

    Args:
        place: the folder
        python: the version of Python
        versions: of what is installed: `lowest`, `newest`, or `locked` (of the lock, if it is for this Python)

    Returns:
        a function that installs requirements, and the environment's Python.

    Raises:
        CalledProcessError: if uv fails; its output has been printed
    """
    executable = place / "venv" / "bin" / "python"
    resolution = ["--resolution", "lowest-direct"] if versions == "lowest" else []
    if versions == "locked" and python == running_python():
        resolution = ["--constraint", str(ROOT / "requirements.lock")]

    def uv(*words: object) -> None:
        subprocess.run(["uv", *map(str, words)], cwd=place, env=variables(place), check=True)

    def install(*what: object) -> None:
        uv("pip", "install", "--quiet", "--no-config", "--python", executable, *resolution, *what)

    uv("venv", "--quiet", "--no-project", "--python", python, place / "venv")
    return install, executable


def named(
    projects: list[dict[str, Any]], members: list[tuple[str, str]], wheels: dict[str, Path], versions: str
) -> list[str]:
    """Return what uv is to install: the wheels of members and, of the lowest versions, what these require."""
    direct = required_by(projects, members) if versions == "lowest" else []
    return direct + [f"{name}{extra} @ {wheels[name].as_uri()}" for name, extra in members]


def build_wheels(dist: Path) -> dict[str, Path]:
    """Build a wheel of each member into a folder; returns those of the folder by the name of the member."""
    subprocess.run(["uv", "build", "--quiet", "--all-packages", "--wheel", "--out-dir", dist], cwd=ROOT, check=True)
    return wheels_in(dist)


def wheels_in(folder: Path) -> dict[str, Path]:
    """Return the wheels of a folder by the name of their package."""
    return {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in folder.glob("*.whl")}


def try_member(
    folder: Path,
    projects: dict[Path, dict[str, Any]],
    wheels: dict[str, Path],
    place: Path,
    options: argparse.Namespace,
) -> None:
    """Install a member in a new environment; try its modules, its program, its README and its tests.

    Raises:
        CalledProcessError: if a step fails; its output has been printed
    """
    project = projects[folder]
    module = project["name"].replace("-", "_")
    environment = variables(place)

    def run(*words: object) -> None:
        subprocess.run([str(word) for word in words], cwd=place, env=environment, check=True)

    versions = "lowest" if options.lowest else "newest" if options.newest else "locked"
    install, python = new_environment(place, options.python, versions)
    install(*named(list(projects.values()), installed_by(folder / "README.md"), wheels, versions))
    run("uv", "pip", "check", "--quiet", "--python", python)
    extras = [name for names in project.get("optional-dependencies", {}).values() for name in names]
    optional = {re.split(r"[^\w-]", name)[0].replace("-", "_") for name in extras}
    optional = {IMPORTED_AS.get(name, name) for name in optional} - {module}
    run(python, "-c", IMPORT_ALL.format(module=module, optional=optional))
    for program in project.get("scripts", {}):
        subprocess.run([python.parent / program, "--help"], cwd=place, check=True, stdout=subprocess.DEVNULL)
    if folder.parent.name == "packages":
        run(python, "-W", "ignore", "-c", blocks(folder / "README.md", "python"))
    if options.tests and "test" in project["groups"]:
        # torch stays as it is installed: the lowest torchvision would bring an older one.
        kept = place / "kept.txt"
        freeze = ["uv", "pip", "freeze", "--python", str(python)]
        frozen = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout
        kept.write_text("".join(line for line in frozen.splitlines(True) if line.startswith("torch==")))
        install("--constraint", kept, "--group", f"{folder / 'pyproject.toml'}:test")
        run(python, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", folder / "tests")


def read_project(folder: Path) -> dict[str, Any]:
    """Return the table `project` of a member, with the names of its dependency groups as `groups`."""
    content = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return content["project"] | {"groups": sorted(content.get("dependency-groups", {}))}


def running_python() -> str:
    """Return the version of the running Python, which the lock is for."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def changed_files() -> list[str] | None:
    """Return the files that differ from where this branch began or, on main, from the last commit; None if unknown."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        head, mains = git("rev-parse", "HEAD"), ("refs/heads/main", "refs/remotes/origin/main")
        found = git("for-each-ref", "--format=%(refname)", *mains).split()
        bases = [base for name in found if (base := git("merge-base", "HEAD", name)) != head]
        base = bases[0] if bases else git("rev-parse", "HEAD~")
        return [*git("diff", "--name-only", base).split(), *git("ls-files", "--others", "--exclude-standard").split()]
    except subprocess.CalledProcessError:
        return None


def changed_members(projects: dict[Path, dict[str, Any]]) -> set[str]:
    """Return the names of the members with changed files; all if what tries them has changed, or nothing is known."""
    files = changed_files()
    if files is None or {"requirements.lock", "tools/alone.py"} & set(files):
        return {project["name"] for project in projects.values()}
    places = {folder.relative_to(ROOT).as_posix(): project["name"] for folder, project in projects.items()}
    return {name for place, name in places.items() if any(file.startswith(f"{place}/") for file in files)}


def main() -> int:
    """Build all wheels and try members one after the other."""
    folders = sorted([*ROOT.glob("packages/*"), *ROOT.glob("apps/*")], reverse=True)
    projects = {folder: read_project(folder) for folder in folders if (folder / "pyproject.toml").exists()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("members", nargs="*", metavar="MEMBER", help="members to try; all if none is named")
    parser.add_argument("--changed", action="store_true", help="try the members that have changed")
    parser.add_argument("--python", default=running_python(), help="version of Python")
    parser.add_argument("--lowest", action="store_true", help="take the lowest requirements")
    parser.add_argument("--newest", action="store_true", help="take the newest releases, not those of the lock")
    parser.add_argument("--tests", action="store_true", help="run the tests of members with a group test too")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to take")
    options = parser.parse_args()
    if unknown := set(options.members) - {project["name"] for project in projects.values()}:
        parser.error(f"{min(unknown)}: expected members of the workspace")
    wanted = set(options.members) or {project["name"] for project in projects.values()}
    if options.changed:
        wanted = changed_members(projects)
        print("changed:", *(sorted(wanted) or ["no member"]), flush=True)
    if not wanted:
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="alone-") as scratch:
        wheels = build_wheels(Path(scratch) / "dist")
        wheels |= wheels_in(options.wheels.resolve()) if options.wheels else {}
        for folder, project in projects.items():
            if project["name"] not in wanted:
                continue
            if not SpecifierSet(project["requires-python"]).contains(options.python):
                print(f"{project['name']} is not for Python {options.python}", flush=True)
                continue
            start, result = time.monotonic(), "good"
            with tempfile.TemporaryDirectory(dir=scratch) as place:
                try:
                    try_member(folder, projects, wheels, Path(place), options)
                except subprocess.CalledProcessError as error:
                    result, failed = f"FAILED: {error}", 1
            print(
                f"{project['name']} alone, Python {options.python}: {result} ({time.monotonic() - start:.0f} s)",
                flush=True,
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
