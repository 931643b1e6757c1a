"""What a package's public names lost since its last tag, and the version that such a loss asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import griffe
from packaging.version import Version


@dataclass(frozen=True)
class ApiChanges:
    """Changes of what `__all__` names, from a tag to the working tree.

    Attributes:
        breaks: One sentence for each change that can break a caller.
        added: New names.
    """

    breaks: list[str]
    added: list[str]


def changes_since(tag: str, module: str, source: str, root: Path) -> ApiChanges:
    """Compare the working tree with a tag, statically: nothing of either is imported.

    Args:
        tag: A git tag of an earlier release.
        module: Name of the package to import, `coord_eval`.
        source: Folder of the sources below the root, `packages/coord-eval/src`.
        root: The repository.
    """
    old = griffe.load_git(module, ref=tag, repo=root, search_paths=[source], allow_inspection=False)
    new = griffe.load(module, search_paths=[root / source], try_relative_path=False, allow_inspection=False)
    before, after = (set(map(str, package.exports or ())) for package in (old, new))
    # A name that is still imported but no longer exported is gone for callers, though not for griffe.
    hidden = sorted(name for name in before - after if name in new.all_members)
    breaks = [f"{module}.{name}: no longer in __all__" for name in hidden]
    breaks += [_sentence(change) for change in griffe.find_breaking_changes(old, new)]
    return ApiChanges(breaks, sorted(after - before))


def _sentence(change: griffe.Breakage) -> str:
    place = change.obj.canonical_path
    detail = f": {change.old_value} -> {change.new_value}" if change.old_value or change.new_value else ""
    # One line, also where griffe shows a whole signature.
    return " ".join(f"{place}: {change.kind.value}{detail}".split())[:200]


def bump_fault(old: Version, new: Version, changes: ApiChanges) -> str | None:
    """Why the step from `old` to `new` is too small or no step at all; None where it is right.

    SemVer 2.0 as from version 1.0 on, below it as well: a break asks for the next major version, an addition for the
    next minor one. So a range `>=0.1,<1` of a dependant holds whatever a minor version brings.
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
