"""Compares the installed packages with what ms-swift declares, before anything slow is imported."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement

from coord_codec import RunError


def refuse_other_versions(package: str = "ms-swift") -> None:
    """Raise `RunError` if an installed package is one that `package` declares not to work with."""
    for line in metadata.requires(package) or ():
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            found = None
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            raise RunError(
                f"{requirement.name}: {package} {metadata.version(package)} needs {requirement.specifier or 'it'}, "
                f"found {found or 'nothing installed'}; install the pinned versions (uv sync). "
                "uv run apps/trainer doctor checks the rest"
            )
