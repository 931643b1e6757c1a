"""The six members of the workspace: their names, folders and versions."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import tomllib
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FOLDERS = {
    tomllib.loads(file.read_text("utf-8"))["project"]["name"]: file.parent
    for kind in ("packages", "apps")
    for file in sorted(ROOT.glob(f"{kind}/*/pyproject.toml"))
}
"""The folder of each member by the name of its distribution, libraries first."""

LIBRARIES = [name for name, folder in FOLDERS.items() if folder.parent.name == "packages"]


def project_of(name: str) -> dict[str, Any]:
    """Return the table `project` of a member's pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def version_of(name: str) -> Version:
    """Return the version in a member's pyproject.toml."""
    return Version(project_of(name)["version"])


def place_of(name: str) -> str:
    """Return a member's folder relative to the root, such as `packages/coord-eval`."""
    return FOLDERS[name].relative_to(ROOT).as_posix()


def git(*words: str) -> str:
    """Run a git command in the repository and return its output."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def release_tags(name: str, *where: str) -> list[str]:
    """Return a member's release tags, such as `coord-eval-v0.2.0`; `where` are options of `git tag`."""
    tags = git("tag", "--list", f"{name}-v*", *where).split()
    return [tag for tag in tags if re.fullmatch(r"\d+(\.\d+)*", tag.removeprefix(f"{name}-v"))]


def last_tag(name: str) -> str | None:
    """Return the newest release tag of a member among the ancestors of this commit."""
    return max(release_tags(name, "--merged", "HEAD"), key=lambda tag: released_version(name, tag), default=None)


def released_version(name: str, tag: str) -> Version:
    """Return the version in a tag."""
    return Version(tag.removeprefix(f"{name}-v"))


def with_version(project: str, version: Version) -> str:
    """Return the text of a pyproject.toml with another version.

    Raises:
        ValueError: if the text has no version
    """
    text, count = re.subn(
        r'(?m)^(\[project\]\n(?:(?!\[).*\n)*?version = ")[^"]*"', rf'\g<1>{version}"', project, count=1
    )
    if not count:
        raise ValueError("pyproject.toml: [project] has no line 'version = \"...\"'")
    return text
