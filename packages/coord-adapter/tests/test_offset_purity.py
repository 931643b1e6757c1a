"""What the package depends on: nothing that trains, nothing beside it in the workspace."""

import ast
import sys
from pathlib import Path

import coord_adapter

ALLOWED = {"coord_adapter", "peft", "pydantic", "safetensors", "torch", "transformers"}


def imported_roots(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield node.module.partition(".")[0]


def test_it_imports_its_declared_dependencies_alone():
    files = list(Path(coord_adapter.__file__).parent.glob("*.py"))
    roots = {root for file in files for root in imported_roots(file)}
    assert "torch" in roots
    assert roots - set(sys.stdlib_module_names) <= ALLOWED


def test_every_public_name_exists_and_is_documented():
    for name in coord_adapter.__all__:
        assert getattr(coord_adapter, name).__doc__, name
