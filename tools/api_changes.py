"""Compares the public names of a package with its last tag, and checks that the version step fits the changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import griffe
from packaging.version import Version


@dataclass(frozen=True)
class ApiChanges:
    """Changes of the public names, which `__all__` lists, from a tag to the working tree.

    Attributes:
        breaks: a description of each change that can break a caller
        added: the new names
    """

    breaks: list[str]
    added: list[str]


def changes_since(tag: str, module: str, source: str, root: Path) -> ApiChanges:
    """Compare the working tree with a tag statically, without importing either.

    Args:
        tag: the git tag of an earlier release
        module: the name of the package, such as `coord_eval`
        source: the folder of the sources below the root, such as `packages/coord-eval/src`
        root: the root of the repository
    """
    old = griffe.load_git(module, ref=tag, repo=root, search_paths=[source], allow_inspection=False)
    new = griffe.load(module, search_paths=[root / source], try_relative_path=False, allow_inspection=False)
    before, after = (set(map(str, package.exports or ())) for package in (old, new))
    # griffe does not report a name that is still imported but no longer in `__all__`.
    hidden = sorted(name for name in before - after if name in new.all_members)
    breaks = [f"{module}.{name}: no longer in __all__" for name in hidden]
    breaks += [_description(change) for change in griffe.find_breaking_changes(old, new)]
    return ApiChanges(breaks, sorted(after - before))


def _description(change: griffe.Breakage) -> str:
    place = change.obj.canonical_path
    detail = f": {change.old_value} -> {change.new_value}" if change.old_value or change.new_value else ""
    # griffe may give a signature of several lines.
    return " ".join(f"{place}: {change.kind.value}{detail}".split())[:200]


def bump_fault(old: Version, new: Version, changes: ApiChanges) -> str | None:
    """Return why the step from `old` to `new` does not fit the changes; None if it does.

    SemVer 2.0 applies below version 1.0 too: a breaking change needs the next major version, an addition the next minor
    version. A range `>=0.1,<1` of a dependant therefore stays valid with every minor version.
    """
    if new <= old:
        return f"version {new} does not follow {old}, which is tagged already"
    if changes.breaks and new.major == old.major:
        return (
            f"public names broke, and {new} after {old} does not say so: "
            f"the version must be {old.major + 1}.0.0 or later"
        )
    if changes.added and new.release[:2] == old.release[:2]:
        return f"version {new} after {old} adds public names: it must be {old.major}.{old.minor + 1}.0 or later"
    return None
