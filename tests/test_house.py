"""The shape of the house: dependencies point one way, no circles, folders that can be surveyed."""

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted([*ROOT.glob("packages/*/src/*"), *ROOT.glob("apps/*/src/*")])
PACKAGES = [path for path in PACKAGES if (path / "__init__.py").exists()]
FOLDERS = [path.parent for package in PACKAGES for path in package.rglob("__init__.py")]
ALLOWED = {
    "coord_codec": set(),
    "coord_losses": {"coord_codec"},
    "coord_adapter": {"coord_codec"},
    "coord_eval": {"coord_codec"},
    "coord_exporter": {"coord_codec", "coord_adapter"},
    "coord_trainer": {"coord_codec", "coord_losses", "coord_adapter", "coord_eval"},
}


def name_of(path):
    """The dotted name of a source file."""
    (package,) = (p for p in PACKAGES if p in path.parents)
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path for package in PACKAGES for path in package.rglob("*.py")}


def imported(path):
    """Our modules that a file imports anywhere, but for type checkers alone."""
    tree = ast.parse(path.read_text())
    typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    passed_over = {id(inner) for block in typing for inner in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in SOURCES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


# A package's __init__ hands out names of the modules below it: no arrow of the structure.
GRAPH = {
    name: {target for target in imported(path) if target in SOURCES and target != name}
    for name, path in SOURCES.items()
    if path.name != "__init__.py"
}


def circles(graph):
    """The nodes that can be reached from themselves."""

    def reach(node, seen):
        for target in graph.get(node, ()):
            if target not in seen:
                seen.add(target)
                reach(target, seen)
        return seen

    return sorted(node for node in graph if node in reach(node, set()))


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_what_lies_below_them(package):
    found = {
        target.partition(".")[0]
        for name, path in SOURCES.items()
        if name.partition(".")[0] == package
        for target in imported(path)
        if target.startswith("coord_")
    }
    assert found <= ALLOWED[package] | {package}


def test_files_import_each_other_in_no_circle():
    assert circles(GRAPH) == []


def test_folders_import_each_other_in_no_circle():
    folder = {name: name.rpartition(".")[0] for name in GRAPH}
    roots = {path.name for path in PACKAGES}
    place = {name: name if folder[name] in roots else folder[name] for name in GRAPH}
    graph = {}
    for name, targets in GRAPH.items():
        graph.setdefault(place[name], set()).update(place[t] for t in targets if t in place and place[t] != place[name])
    assert circles(graph) == []


@pytest.fixture(scope="module")
def tracked():
    """The files of the repository, as paths below its root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"not a git repository: {listed.stderr.strip()}")
    return [path for path in map(Path, listed.stdout.split("\0")[:-1]) if (ROOT / path).is_file()]


def test_no_file_is_longer_than_a_whole_idea_and_no_folder_larger_than_can_be_surveyed(tracked):
    modules = [path for path in tracked if path.suffix == ".py"]
    assert [path for path in modules if len((ROOT / path).read_text().splitlines()) > 350] == []
    folders = Counter(path.parent for path in modules if path.name != "__init__.py")
    assert [folder for folder, count in folders.items() if count > 16] == []


def test_root_holds_documents_and_settings_alone(tracked):
    kinds = {".md", ".toml", ".yml", ".cff", ".lock"}
    others = {path.name for path in tracked if path.parent == Path() and path.suffix not in kinds}
    assert others == {".gitignore", "LICENSE", "conftest.py"}


@pytest.mark.parametrize("folder", FOLDERS, ids=[name_of(path / "__init__.py") for path in FOLDERS])
def test_folder_says_what_it_is(folder):
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


def test_only_the_folder_swift_imports_ms_swift():
    importing = {
        name
        for name, path in SOURCES.items()
        if re.search(r"^\s*(?:from|import) swift\b", path.read_text(), re.MULTILINE)
    }
    assert importing and all(name.startswith("coord_trainer.swift") for name in importing)
