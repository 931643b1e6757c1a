"""Says what a release of one member of the workspace needs, and changes nothing.

    uv run python tools/release.py coord-eval

It compares versions, changelog, the ranges of siblings and tags with the tree, and the public names with those of the
last tag (griffe). The exit code is 0 if nothing but the tag is missing, 1 if something is, 2 for wrong usage. Building,
checking and publishing are uv's commands, which it prints.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
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


def tags_of(name: str, *where: str) -> list[Version]:
    """Return the released versions of a member, oldest first; `where` are options of `git tag`."""
    tags = [tag.removeprefix(f"{name}-v") for tag in git("tag", "--list", f"{name}-v*", *where).split()]
    return sorted(Version(tag) for tag in tags if re.fullmatch(r"\d+(\.\d+)*", tag))


def names_in(member: Any) -> Iterator[str]:
    """Yield the names in a module or class at any depth that do not begin with an underscore, with parameters."""
    for name, inner in member.members.items():
        if name.startswith("_") or inner.is_alias:
            continue
        yield inner.path
        if inner.is_function:
            yield from (f"{inner.path}({parameter.name})" for parameter in inner.parameters)
        elif inner.is_module or inner.is_class:
            yield from names_in(inner)


def names_needed(name: str, member: dict[str, Any], members: dict[str, dict[str, Any]]) -> Version | None:
    """Return the lowest next version that fits the changes of names since the last tag, None without a tag; print them.

    SemVer 2.0, kept below 1.0 too. A name that goes or changes is a break if `__all__` lists it or a released sibling
    uses it; a name that comes, at any depth, asks for a minor version, since siblings may use it.
    """
    if not (released := tags_of(name, "--merged", "HEAD")):
        print("  public names: no tag yet, so nothing to compare with")
        return None
    last, module, source = released[-1], name.replace("-", "_"), f"{member['place']}/src"
    tag = f"{name}-v{last}"
    old = griffe.load_git(module, ref=tag, repo=ROOT, search_paths=[source], allow_inspection=False)
    new = griffe.load(module, search_paths=[ROOT / source], try_relative_path=False, allow_inspection=False)
    before, after = (set(names_in(package)) for package in (old, new))
    breaks = [f"{change.obj.canonical_path}: {change.kind.value}" for change in griffe.find_breaking_changes(old, new)]
    breaks += [f"{module}.{gone}: no longer in __all__" for gone in set(old.exports or ()) - set(new.exports or ())]
    for gone in sorted(path for path in before - after if not path.endswith(")")):
        breaks += [f"{gone} is gone, and {tag} names it" for tag in _tags_that_name(gone, name, members)]
    added = sorted(after - before)
    for line in [*sorted(set(breaks)), *(f"added {path}" for path in added)]:
        print(f"    {line}")
    print(f"  public names since {tag}: {len(set(breaks))} breaking changes, {len(added)} added")
    if breaks:
        return Version(f"{last.major + 1}.0.0")
    return Version(f"{last.major}.{last.minor + 1}.0" if added else f"{last.major}.{last.minor}.{last.micro + 1}")


def _tags_that_name(path: str, name: str, members: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the last tags of other members whose sources contain the last part of a dotted name."""
    for other, member in members.items():
        for version in tags_of(other, "--merged", "HEAD")[-1:] if other != name else ():
            words = [
                "git",
                "grep",
                "-qw",
                path.rpartition(".")[2],
                f"{other}-v{version}",
                "--",
                f"{member['place']}/src",
            ]
            if subprocess.run(words, cwd=ROOT, check=False).returncode == 0:
                yield f"{other}-v{version}"


def version_needs(name: str, member: dict[str, Any], lowest: Version | None) -> list[str]:
    """Return what the version and its tag need."""
    version, here = Version(member["version"]), tags_of(name, "--points-at", "HEAD")
    command = f"uv version --package {name}"
    if here:
        return [f"version: {version}, but this commit is tagged {name}-v{tag}" for tag in here if tag != version]
    if version in tags_of(name):
        return [f"version: {version} is released from another commit; set the next one: {command} {lowest}"]
    if lowest is not None and version < lowest:
        return [f"version: {version} does not fit the changes of names; {command} {lowest} or higher"]
    return []


def changelog_needs(name: str, member: dict[str, Any]) -> list[str]:
    """Return what the changelog needs to announce the version, in the format of Keep a Changelog 1.1."""
    parts = HEADING.split((ROOT / member["place"] / "CHANGELOG.md").read_text("utf-8"))
    sections = {title: (date, body) for title, date, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)}
    wanted = f"'## [{member['version']}] - YYYY-MM-DD'"
    needs = []
    if sections.pop("Unreleased", (None, ""))[1].strip():
        needs.append(f"changelog: there are entries under [Unreleased]; put them under {wanted}")
    date, body = sections.pop(member["version"], (None, ""))
    if date is None or not re.search(r"^- ", body, re.MULTILINE):
        needs.append(f"changelog: expected {wanted} with entries, found {'no date' if body else 'no such section'}")
    untagged = [title for title, (day, _) in sections.items() if day and Version(title) not in tags_of(name)]
    return needs + [f"changelog: [{title}] has a date and no tag {name}-v{title}" for title in untagged]


def sibling_needs(member: dict[str, Any], members: dict[str, dict[str, Any]]) -> list[str]:
    """Return what the ranges of siblings need: each begins at the version that the member was tested with."""
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
        if tested not in tags_of(requirement.name, "--merged", "HEAD"):
            needs.append(f"siblings: release {requirement.name} first, {tested} has no tag {tag}")
        elif subprocess.run(["git", "diff", "--quiet", tag, "--", f"{place}/src"], cwd=ROOT, check=False).returncode:
            needs.append(f"siblings: release {requirement.name} first, it has changed since {tag}")
    return needs


def main() -> int:
    """Print what the release of one member needs."""
    members = projects()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("member", choices=members)
    name = parser.parse_args().member
    member = members[name]
    version = Version(member["version"])
    print(f"{name} {version}")
    needs = [
        f"tree: not committed: {line}" for line in git("status", "--porcelain", "--", member["place"]).splitlines()
    ]
    needs += version_needs(name, member, names_needed(name, member, members))
    needs += changelog_needs(name, member)
    needs += sibling_needs(member, members)
    for dependant, other in members.items():
        ranges = [Requirement(text) for text in other.get("dependencies", ()) if Requirement(text).name == name]
        for requirement in (one for one in ranges if not one.specifier.contains(version)):
            print(f"  {dependant} must follow: '{requirement}' leaves out {version}")
    if needs:
        print("needs:", *needs, sep="\n  ")
        return 1
    out = f"dist/{name}-v{version}"
    print("ready:")
    if not tags_of(name, "--points-at", "HEAD"):
        print(f"  git tag -a {name}-v{version} -m '{name} {version}'")
    print(f"  uv build --package {name} --out-dir {out} && uvx check-wheel-contents {out}/*.whl && uv publish {out}/*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
