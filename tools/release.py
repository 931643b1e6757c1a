"""Prepares and checks the release of one member of the workspace.

    python tools/release.py prepare coord-eval 0.2.0  write the version and date the changelog; commit both afterwards
    python tools/release.py check coord-eval          before tagging: everything except the tag must be right
    python tools/release.py check coord-eval --tagged before publishing: the tag must be on this commit too

`prepare` refuses a version that does not fit the changes of the public names since the last tag. `check` verifies that
the version in pyproject.toml, the head of CHANGELOG.md and the tag agree, and that the step from the last tag fits the
changes of the public names; it builds twice and compares the bytes, checks the contents of the wheel, installs it alone
with its siblings *as last tagged*, and runs its README and its tests there (for an app, its program). It prints what to
publish and which members must follow, and changes nothing: tagging and publishing are left to a person. Exit code 0 if
ready, 1 if not, 2 for wrong usage.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from api_changes import bump_fault, changes_since
from changelog import changelog_faults, dated
from installed import Place, StepFailedError, running_python, try_wheel
from members import (
    FOLDERS,
    LIBRARIES,
    ROOT,
    git,
    last_tag,
    place_of,
    project_of,
    release_tags,
    released_version,
    version_of,
    with_version,
)
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from wheel_contents import check_wheel, siblings_needed, wheels_in

from coord_codec.files import write_text


def tag_faults(name: str, version: Version, *, tagged: bool) -> list[str]:
    """Return contradictions between tags and version."""
    wanted = f"{name}-v{version}"
    here = release_tags(name, "--points-at", "HEAD")
    faults = [f"this commit is tagged {tag}, and the version is {version}" for tag in here if tag != wanted]
    if wanted not in here and wanted in release_tags(name):
        faults.append(f"{wanted} is on another commit: {version} is released, the next release needs a new version")
    if tagged and not here:
        faults.append(f"this commit has no tag {wanted}")
    return faults


def tree_faults(name: str) -> list[str]:
    """Return the files of the member that differ from the commit."""
    changed = git("status", "--porcelain", "--", place_of(name)).splitlines()
    return [f"not committed: {line.strip()}" for line in changed]


def api_faults(name: str, version: Version, tag: str | None) -> list[str]:
    """Return breaking changes that the version step does not announce; prints all changes of public names."""
    if tag is None:
        print(f"  public names: no tag {name}-v* yet, so nothing to compare with")
        return []
    changes = changes_since(tag, name.replace("-", "_"), f"{place_of(name)}/src", ROOT)
    print(f"  public names since {tag}: {len(changes.breaks)} breaking changes, {len(changes.added)} added")
    for line in [*changes.breaks, *(f"added {name}" for name in changes.added)]:
        print(f"    {line}")
    old = released_version(name, tag)
    # Before publishing, the tagged commit itself is checked again, and the version need not grow.
    fault = None if old == version else bump_fault(old, version, changes)
    return [fault] if fault else []


def build(name: str, out: Path) -> dict[str, Path]:
    """Build the member from this tree and the libraries as last tagged (else from this tree); returns the wheels."""
    subprocess.run(["uv", "build", "--quiet", "--package", name, "--out-dir", out], cwd=ROOT, check=True)
    for sibling in LIBRARIES:
        if sibling == name:
            continue
        tag = last_tag(sibling)
        with tempfile.TemporaryDirectory() as old:
            source = FOLDERS[sibling]
            if tag:
                archive = Path(old) / "tree.tar"
                git("archive", "--output", str(archive), tag, place_of(sibling))
                subprocess.run(["tar", "-xf", archive, "-C", old], check=True)
                source = Path(old) / place_of(sibling)
            print(f"  sibling {sibling}: {tag or 'never tagged, from this tree'}")
            subprocess.run(
                ["uv", "build", "--quiet", "--no-config", "--wheel", "--out-dir", out / "siblings", source],
                cwd=old,
                check=True,
            )
    return wheels_in(out) | wheels_in(out / "siblings")


def dependants(name: str, version: Version) -> list[str]:
    """Return what each workspace member that requires the package must do."""
    notes = []
    for member in FOLDERS:
        for requirement in map(Requirement, project_of(member).get("dependencies", [])):
            if canonicalize_name(requirement.name) == name:
                if requirement.specifier.contains(version, prereleases=True):
                    notes.append(f"{member}: '{requirement}' takes {version}; nothing to do")
                else:
                    notes.append(f"{member} must follow: '{requirement}' leaves out {version}")
    return notes


def prepare(name: str, version: Version, day: date) -> int:
    """Write the version to pyproject.toml and date the changelog, if the version step fits; returns the exit code."""
    project, changelog = FOLDERS[name] / "pyproject.toml", FOLDERS[name] / "CHANGELOG.md"
    faults = api_faults(name, version, last_tag(name))
    if last_tag(name) == f"{name}-v{version}":
        faults.append(f"{name} {version} is tagged already: name the next version")
    entries = dated(changelog.read_text("utf-8"), version, day)
    if entries is None:
        faults.append(f"{changelog.name} has no entries under [Unreleased]: say there what {version} changes")
    if faults or entries is None:
        return refused(faults)
    write_text(project, with_version(project.read_text("utf-8"), version))
    write_text(changelog, entries)
    print(f"{name} {version}, {day}: pyproject.toml and CHANGELOG.md are written; commit them, then check")
    return 0


def check(name: str, *, tagged: bool, tests: bool) -> int:
    """Run all checks and print each step; returns the exit code."""
    folder = FOLDERS[name]
    version, tag = version_of(name), last_tag(name)
    print(f"{name} {version}, last tag {tag or '(none)'}")
    faults = [
        *tree_faults(name),
        *tag_faults(name, version, tagged=tagged),
        *changelog_faults(folder / "CHANGELOG.md", version),
        *api_faults(name, version, tag),
    ]
    if faults:
        return refused(faults)
    with tempfile.TemporaryDirectory(prefix="release-") as temporary:
        out = Path(temporary) / "dist"
        wheels = build(name, out)
        if faults := check_wheel(wheels[name], folder, wheels):
            return refused(faults)
        print("  wheel: files, metadata, ranges and imports are right")
        again = Path(temporary) / "again"
        subprocess.run(["uv", "build", "--quiet", "--package", name, "--out-dir", again], cwd=ROOT, check=True)
        if digests(out) != digests(again):
            return refused(["a second build has other bytes"])
        print("  built twice: the same bytes")
        try:
            try_wheel(name, wheels, Path(temporary) / "trial", Place(running_python()), tests=tests)
        except StepFailedError as error:
            return refused([f"installed alone: {error}"])
        print(
            f"  installed alone: README{' and tests' if tests else ''} run"
            if name in LIBRARIES
            else "  installed alone: its program runs; its tests are run in the workspace"
        )
        print_plan(name, version, wheels, out)
    return 0


def print_plan(name: str, version: Version, wheels: dict[str, Path], out: Path) -> None:
    """Print what a person does next."""
    print(f"ready: {name} {version}")
    first = [sibling for sibling in siblings_needed(wheels[name], wheels) if last_tag(sibling) is None]
    for sibling in first:
        print(f"  release first, since it has no tag: {sibling}")
    wanted = f"{name}-v{version}"
    if wanted not in release_tags(name, "--points-at", "HEAD"):
        print(f"  tag:     git tag -a {wanted} -m '{name} {version}'")
    print(f"  build:   uv build --package {name} --out-dir dist/{wanted}")
    print(f"  publish: uv publish dist/{wanted}/*")
    uv_version = subprocess.run(["uv", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    print(f"  files, by uv {uv_version}; another version of uv writes its own number into them:")
    for file, digest in digests(out).items():
        print(f"    {file} sha256 {digest}")
    for line in dependants(name, version) or ["no dependants in this workspace"]:
        print(f"  {line}")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the wheel and the source distribution in a folder."""
    files = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def refused(faults: list[str]) -> int:
    """Print the faults and return exit code 1."""
    print("not ready:")
    print(*(f"  {fault}" for fault in faults), sep="\n")
    return 1


Member = Enum("Member", {name: name for name in FOLDERS}, type=str)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.callback()
def commands() -> None:
    """Prepare and check the release of one member."""


@app.command("prepare")
def prepare_command(
    member: Member,
    version: Annotated[str, typer.Argument(help="The next version, such as 0.2.0.")],
    *,
    day: Annotated[
        str, typer.Option("--date", metavar="YYYY-MM-DD", help="Date of the release; today if not given.")
    ] = "",
) -> None:
    """Write the version and date the changelog of one member; exit code 0 written, 1 refused, 2 wrong usage."""
    try:
        wanted, release_date = Version(version), date.fromisoformat(day) if day else date.today()
    except (InvalidVersion, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    sys.exit(prepare(member.value, wanted, release_date))


@app.command("check")
def check_command(
    member: Member,
    *,
    tagged: Annotated[bool, typer.Option("--tagged", help="Require the tag on this commit.")] = False,
    no_tests: Annotated[
        bool, typer.Option("--no-tests", help="Run only the README of the installed wheel, not its tests.")
    ] = False,
) -> None:
    """Check one member; exit code 0 if ready, 1 if not, 2 for wrong usage."""
    sys.exit(check(member.value, tagged=tagged, tests=not no_tests))


if __name__ == "__main__":
    app()
