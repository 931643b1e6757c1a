"""The boundary to ms-swift, transformers' trainer and peft: its table is true, and nothing outside knows its names."""

import ast
from functools import cache
from pathlib import Path

import pytest

from coord_trainer.swift.doctor import Seam, read_seams

ROOT = Path(__file__).parents[4]
BOUNDARY = ROOT / "apps" / "trainer" / "src" / "coord_trainer" / "swift"
COMPARES_WITH_PLAIN_SWIFT = {ROOT / "apps" / "trainer" / "benchmarks" / "step.py"}
PUBLIC = {"args", "config", "encode", "engine", "evaluate", "generate", "log", "trainer"}
"""Names of seams that mean other things elsewhere."""


@cache
def nodes_of(path):
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def names_in(path):
    """Yield every name that a file imports, defines, reads, sets or passes by keyword."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def modules_imported_by(path):
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def outside():
    folders = [ROOT / "apps" / "trainer" / part for part in ("src", "benchmarks")]
    files = {path for folder in folders for path in folder.rglob("*.py")}
    return sorted(file for file in files - COMPARES_WITH_PLAIN_SWIFT if BOUNDARY not in file.parents)


@pytest.mark.slow
def test_seams_hold_on_the_installed_packages():
    pytest.importorskip("swift")
    seams = read_seams()
    assert len(seams) > 40
    assert {seam.name: problem for seam in seams if (problem := seam.problem()) is not None} == {}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("json:JSONDecoder.decode", None),
        ("json:JSONDecoder._decode", "_decode"),
        ("no_such_package:name", "no_such_package"),
        ("json:dumps(obj, indent)", None),
        ("json:dumps(obj, indentation)", "without indentation"),
        ('os:environ["PATH"]', None),
        ('os:environ["NO_SUCH_VARIABLE"]', "no key 'NO_SUCH_VARIABLE'"),
        ("json:JSONDecoder#memo", None),
        ("json:JSONDecoder#memory", "no instance has it"),
        ('json:loads{"utf-8"}', None),
        ('json:loads{"surrogatepass", "nothing"}', "without nothing"),
    ],
)
def test_seam_names_what_is_missing(name, problem):
    found = Seam(name, "why", "without").problem()
    assert found is None if problem is None else problem in found


def test_seams_are_listed_once_with_reason_and_consequence():
    seams = read_seams()
    assert len({seam.name for seam in seams}) == len(seams)
    rows = [row for row in (BOUNDARY / "__init__.py").read_text().splitlines() if row.startswith("    ")]
    assert len(rows) == sum(1 for row in rows if row.startswith(" " * 8)) * 2
    assert {row.strip() for row in rows[::2]} <= {seam.name for seam in seams}


@pytest.mark.slow
def test_names_of_seams_stand_in_their_folder_alone():
    known = {seam.identifier for seam in read_seams()} - PUBLIC
    found = {path.name: sorted(known & set(names_in(path))) for path in outside()}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.slow
def test_peft_internals_are_imported_in_their_folder_alone():
    private = ("peft.", "transformers.trainer", "transformers.integrations.deepspeed")
    found = {
        path.name: [module for module in modules_imported_by(path) if module.startswith(private)] for path in outside()
    }
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_every_import_of_the_folder_is_a_row_of_the_table():
    rows = " ".join(seam.name for seam in read_seams())
    for path in BOUNDARY.glob("*.py"):
        for node in nodes_of(path):
            foreign = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("swift", "peft")
            for alias in node.names if foreign else ():
                assert alias.name in rows, f"{path.name}: {node.module}.{alias.name} is not in the table"
