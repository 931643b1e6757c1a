"""Is a package ready to be released by itself, and what is to be done then?

    python tools/release.py check coord-eval            before tagging: all but the tag must be right
    python tools/release.py check coord-eval --tagged   the tag on this commit must be there too: before publishing

Checks that the version in pyproject.toml, the head of CHANGELOG.md and the tag agree; that the step from the last
tag fits what changed in the public names; builds; looks into the wheel; installs it alone, beside its siblings *as
last tagged*, and runs its README and its tests there. Prints what to publish and who must follow. Changes nothing:
tagging and publishing are left to a person. Exit 0 ready, 1 not ready, 2 wrong use.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import Annotated

import tomllib
import typer
from api_changes import bump_fault, changes_since
from changelog import changelog_faults
from installed import ROOT, Place, StepFailedError, running_python, try_wheel
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from wheel_contents import check_wheel, siblings_needed, wheels_in


def git(*words: str) -> str:
    """Output of a git command in the repository."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def last_tag(name: str) -> str | None:
    """The newest release tag of a package, `coord-eval-v0.2.0`, among the ancestors of this commit."""
    tags = git("tag", "--list", f"{name}-v*", "--merged", "HEAD").split()
    return max(tags, key=lambda tag: Version(tag.removeprefix(f"{name}-v")), default=None)


def version_of(folder: Path) -> Version:
    """The version that a package's pyproject.toml states."""
    return Version(tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def tag_faults(name: str, version: Version, *, tagged: bool) -> list[str]:
    """Where tags and version contradict each other."""
    wanted = f"{name}-v{version}"
    here = [tag for tag in git("tag", "--points-at", "HEAD").split() if tag.startswith(f"{name}-v")]
    faults = [f"this commit is tagged {tag}, and the version is {version}" for tag in here if tag != wanted]
    if wanted not in here and wanted in git("tag", "--list", wanted):
        faults.append(f"{wanted} is on another commit: {version} is released, the next release needs a new version")
    if tagged and not here:
        faults.append(f"this commit has no tag {wanted}")
    return faults


def tree_faults(name: str) -> list[str]:
    """Files of the package that are not what is committed."""
    changed = git("status", "--porcelain", "--", f"packages/{name}").splitlines()
    return [f"not committed: {line.strip()}" for line in changed]


def api_faults(name: str, version: Version, tag: str | None) -> list[str]:
    """Breaks of the public names that the step of the version doesn't announce; tells all changes."""
    if tag is None:
        print(f"  public names: no tag {name}-v* yet, so nothing to compare with")
        return []
    changes = changes_since(tag, name.replace("-", "_"), f"packages/{name}/src", ROOT)
    print(f"  public names since {tag}: {len(changes.breaks)} breaking changes, {len(changes.added)} added")
    for line in [*changes.breaks, *(f"added {name}" for name in changes.added)]:
        print(f"    {line}")
    old = Version(tag.removeprefix(f"{name}-v"))
    # The commit of the tag itself is checked again before publishing: nothing changed, and nothing needs to grow.
    fault = None if old == version else bump_fault(old, version, changes)
    return [fault] if fault else []


def build(name: str, out: Path) -> dict[str, Path]:
    """The package's wheel from this tree, its siblings' as last tagged, or from this tree where never tagged."""
    subprocess.run(["uv", "build", "--quiet", "--package", name, "--out-dir", out], cwd=ROOT, check=True)
    for folder in sorted((ROOT / "packages").iterdir()):
        sibling = folder.name
        if sibling == name:
            continue
        tag = last_tag(sibling)
        with tempfile.TemporaryDirectory() as old:
            source = folder
            if tag:
                archive = Path(old) / "tree.tar"
                git("archive", "--output", str(archive), tag, f"packages/{sibling}")
                subprocess.run(["tar", "-xf", archive, "-C", old], check=True)
                source = Path(old) / "packages" / sibling
            print(f"  sibling {sibling}: {tag or 'never tagged, from this tree'}")
            subprocess.run(
                ["uv", "build", "--quiet", "--no-config", "--wheel", "--out-dir", out / "siblings", source],
                cwd=old,
                check=True,
            )
    return wheels_in(out) | wheels_in(out / "siblings")


def dependants(name: str, version: Version) -> list[str]:
    """What each workspace member that requires the package must do, in sentences."""
    told = []
    for file in sorted(ROOT.glob("*/*/pyproject.toml")):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        for requirement in map(Requirement, project.get("dependencies", [])):
            if canonicalize_name(requirement.name) == name:
                if requirement.specifier.contains(version, prereleases=True):
                    told.append(f"{project['name']}: '{requirement}' takes {version}; nothing to do")
                else:
                    told.append(f"{project['name']} must follow: '{requirement}' leaves out {version}")
    return told


def check(name: str, *, tagged: bool, tests: bool) -> int:
    """The whole check, told step by step; the exit code."""
    folder = ROOT / "packages" / name
    version, tag = version_of(folder), last_tag(name)
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
        try:
            try_wheel(name, wheels, Path(temporary) / "trial", Place(running_python()), tests=tests)
        except StepFailedError as error:
            return refused([f"installed alone: {error}"])
        print(f"  installed alone: README{' and tests' if tests else ''} run")
        tell_plan(name, version, wheels, out)
    return 0


def tell_plan(name: str, version: Version, wheels: dict[str, Path], out: Path) -> None:
    """What a person does next."""
    print(f"ready: {name} {version}")
    first = [sibling for sibling in siblings_needed(wheels[name], wheels) if last_tag(sibling) is None]
    for sibling in first:
        print(f"  release first, since it has no tag: {sibling}")
    wanted = f"{name}-v{version}"
    if wanted not in git("tag", "--points-at", "HEAD").split():
        print(f"  tag:     git tag -a {wanted} -m '{name} {version}'")
    print(f"  build:   uv build --package {name} --out-dir dist/{wanted}")
    print(f"  publish: uv publish dist/{wanted}/*")
    for file in sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")]):
        print(f"    {file.name} sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}")
    for line in dependants(name, version) or ["no dependants in this workspace"]:
        print(f"  {line}")


def refused(faults: list[str]) -> int:
    """Tell the faults; exit code 1."""
    print("not ready:")
    print(*(f"  {fault}" for fault in faults), sep="\n")
    return 1


PACKAGES = Enum("PACKAGES", {f.name: f.name for f in sorted((ROOT / "packages").iterdir())}, type=str)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.callback()
def commands() -> None:
    """Is a package ready to be released by itself?"""


@app.command("check")
def check_command(
    package: PACKAGES,
    *,
    tagged: Annotated[bool, typer.Option("--tagged", help="Require the tag on this commit.")] = False,
    no_tests: Annotated[
        bool, typer.Option("--no-tests", help="Run only the README of the installed wheel, not its tests.")
    ] = False,
) -> None:
    """Check one package; exit code 0 ready, 1 not ready, 2 wrong usage."""
    sys.exit(check(package.value, tagged=tagged, tests=not no_tests))


if __name__ == "__main__":
    app()
