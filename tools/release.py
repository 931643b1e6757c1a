"""Says what a release of one member of the workspace needs, and changes nothing.

    uv run python tools/release.py coord-eval

It compares version, changelog, the ranges of siblings and tags with the tree. The exit code is 0 if nothing but the tag
is missing, 1 if something is, 2 for wrong usage. The tag starts `.github/workflows/release.yml`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomllib
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?[ \t]*$", re.MULTILINE)


def projects() -> dict[str, dict[str, Any]]:
    """Return the table `project` of each member by name, with its folder below the root as `place`."""
    found = {}
    for file in sorted([*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("apps/*/pyproject.toml")]):
        table = tomllib.loads(file.read_text("utf-8"))["project"]
        found[table["name"]] = table | {"place": file.parent.relative_to(ROOT).as_posix()}
    return found


def git(*words: str) -> str:
    """Run a git command in the repository and return its output."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def tree_needs(member: dict[str, Any]) -> list[str]:
    """Return what has to be committed."""
    return [f"tree: not committed: {line}" for line in git("status", "--porcelain", "--", member["place"]).splitlines()]


def changelog_needs(member: dict[str, Any]) -> list[str]:
    """Return what the changelog needs to announce the version, in the format of Keep a Changelog 1.1."""
    parts = HEADING.split((ROOT / member["place"] / "CHANGELOG.md").read_text("utf-8"))
    sections = {title: (date, body) for title, date, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)}
    wanted = f"'## [{member['version']}] - YYYY-MM-DD'"
    needs = []
    if sections.pop("Unreleased", (None, ""))[1].strip():
        needs.append(f"changelog: there are entries under [Unreleased]; put them under {wanted}")
    date, body = sections.get(member["version"], (None, ""))
    if date is None or not re.search(r"^- ", body, re.MULTILINE):
        needs.append(f"changelog: expected {wanted} with entries, found {'no date' if body else 'no such section'}")
    return needs


def sibling_needs(member: dict[str, Any], members: dict[str, dict[str, Any]]) -> list[str]:
    """Return what the siblings need: each range begins at the tagged version that the member was tested with."""
    needs = []
    extras = [text for texts in member.get("optional-dependencies", {}).values() for text in texts]
    for requirement in map(Requirement, [*member.get("dependencies", ()), *extras]):
        if requirement.name not in members:
            continue
        tested = Version(members[requirement.name]["version"])
        wanted = f">={tested.major}.{tested.minor}{f'.{tested.micro}' if tested.micro else ''},<{tested.major + 1}"
        if str(requirement.specifier) != str(Requirement(f"x{wanted}").specifier):
            needs.append(f"ranges: '{requirement}', tested with {tested}: begin it there: {wanted}")
        tag, place = f"{requirement.name}-v{tested}", members[requirement.name]["place"]
        if not git("tag", "--list", tag, "--merged", "HEAD"):
            needs.append(f"siblings: release {requirement.name} first, {tested} has no tag {tag}")
        elif git("diff", "--name-only", tag, "--", f"{place}/src"):
            needs.append(f"siblings: release {requirement.name} first, it has changed since {tag}")
    return needs


def main() -> int:
    """Print what the release of one member needs."""
    members = projects()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("member", choices=members)
    name = parser.parse_args().member
    member = members[name]
    version, tag = member["version"], f"{name}-v{member['version']}"
    needs = [*tree_needs(member), *changelog_needs(member), *sibling_needs(member, members)]
    if git("tag", "--list", tag) and not git("tag", "--list", tag, "--points-at", "HEAD"):
        needs.append(f"version: {version} is released from another commit; set the next: uv version --package {name}")
    print(f"{name} {version}")
    if needs:
        print("needs:", *needs, sep="\n  ")
        return 1
    print(f"ready:\n  git tag -a {tag} -m '{name} {version}' && git push origin {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
