"""Checks the contents of a built wheel against the folder of its package.

The checks return descriptions of all faults, so that one run lists all of them.
"""

from __future__ import annotations

import ast
import email.parser
import subprocess
import sys
import zipfile
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

PROMISED_FIELDS = "Summary", "Keywords", "Author", "License-Expression", "License-File", "Requires-Python"
PROMISED_CLASSIFIERS = "Development Status ::", "Intended Audience ::", "Programming Language ::", "Topic ::"


def wheels_in(folder: Path) -> dict[str, Path]:
    """Return the wheels in a folder by the canonical name of their distribution."""
    return {str(parse_wheel_filename(path.name)[0]): path for path in sorted(folder.glob("*.whl"))}


def metadata_of(wheel: Path) -> Message:
    """Return the parsed METADATA file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(archive.read(name).decode("utf-8"))


def requirements_of(wheel: Path) -> list[Requirement]:
    """Return all requirements of a wheel, including those of extras."""
    return [Requirement(text) for text in metadata_of(wheel).get_all("Requires-Dist", [])]


def siblings_needed(wheel: Path, wheels: dict[str, Path]) -> list[str]:
    """Return the names of `wheels` that a wheel requires without extras, directly or indirectly."""
    siblings: list[str] = []
    pending = [wheel]
    while pending:
        for requirement in requirements_of(pending.pop()):
            name = canonicalize_name(requirement.name)
            if name in wheels and name not in siblings and "extra" not in str(requirement.marker):
                siblings.append(name)
                pending.append(wheels[name])
    return siblings


def check_wheel(wheel: Path, folder: Path, wheels: dict[str, Path]) -> list[str]:
    """Return the faults of one wheel: in files, metadata, version ranges of siblings and undeclared imports.

    Args:
        wheel: the wheel
        folder: the package's folder, with `pyproject.toml` and `src/`
        wheels: all wheels built together, by name, whose versions the ranges must include
    """
    faults = [*_files(wheel, folder), *_metadata(wheel, folder), *_ranges(wheel, wheels), *_imports(wheel)]
    return [f"{wheel.name}: {fault}" for fault in faults]


def _files(wheel: Path, folder: Path) -> list[str]:
    tracked = subprocess.run(
        ["git", "ls-files", "src"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    expected = {name.removeprefix("src/") for name in tracked}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    contents = {name for name in names if ".dist-info/" not in name}
    faults = [f"lacks {name}" for name in sorted(expected - contents)]
    faults += [f"has the stray file {name}" for name in sorted(contents - expected)]
    if not any(name.endswith("/py.typed") for name in contents):
        faults.append("lacks py.typed: type checkers would ignore its annotations")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        faults.append("lacks the licence's text")
    return faults


def _metadata(wheel: Path, folder: Path) -> list[str]:
    fields = metadata_of(wheel)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    faults = [f"METADATA has no {name}" for name in PROMISED_FIELDS if not fields.get(name)]
    if (fields["Name"], fields["Version"]) != (project["name"], project["version"]):
        faults.append(f"is {fields['Name']} {fields['Version']}, pyproject.toml says {project['version']}")
    classifiers = fields.get_all("Classifier", [])
    faults += [
        f"METADATA has no classifier '{start}'"
        for start in (*PROMISED_CLASSIFIERS, "Typing :: Typed")
        if not any(classifier.startswith(start) for classifier in classifiers)
    ]
    readme = (folder / "README.md").read_text("utf-8")
    if fields["Description-Content-Type"] != "text/markdown" or fields.get_payload().strip() != readme.strip():
        faults.append("its long description is not README.md")
    faults += [
        f"requires {requirement.name} from an address; an index would refuse the upload"
        for requirement in requirements_of(wheel)
        if requirement.url
    ]
    return faults


def _ranges(wheel: Path, wheels: dict[str, Path]) -> list[str]:
    faults = []
    for requirement in requirements_of(wheel):
        sibling = wheels.get(canonicalize_name(requirement.name))
        if sibling is None:
            continue
        version = metadata_of(sibling)["Version"]
        if not requirement.specifier:
            faults.append(f"requires {requirement.name} without a range")
        elif not requirement.specifier.contains(Version(version), prereleases=True):
            faults.append(f"requires '{requirement}', which leaves out {version}, the version beside it")
    return faults


def _imports(wheel: Path) -> list[str]:
    """Return the imports, also those inside functions, of modules that no requirement or extra declares."""
    declared = {canonicalize_name(requirement.name) for requirement in requirements_of(wheel)}
    own = str(parse_wheel_filename(wheel.name)[0]).replace("-", "_")
    distributions = packages_distributions()
    faults = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith(".py"):
                continue
            for module in sorted(_imported(ast.parse(archive.read(name)))):
                if module == own or module in sys.stdlib_module_names:
                    continue
                providers = {canonicalize_name(provider) for provider in distributions.get(module, [module])}
                if not providers & declared:
                    faults.append(f"{name} imports {module}, which pyproject.toml doesn't declare")
    return faults


def _imported(tree: ast.Module) -> set[str]:
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules.add(node.module.partition(".")[0])
    return modules
