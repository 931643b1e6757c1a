"""The package as a whole: what it imports and when, its documentation, its examples."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import coord_adapter

FILES = sorted(Path(coord_adapter.__file__).parent.glob("*.py"))
README = (Path(__file__).parents[1] / "README.md").read_text()
ALLOWED = {"coord_adapter", "coord_codec", "peft", "pydantic", "safetensors", "torch", "transformers"}


def imported_modules(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield node.module


def test_imports_are_the_declared_dependencies_alone():
    roots = {module.partition(".")[0] for file in FILES for module in imported_modules(file)}
    assert "torch" in roots
    assert roots - set(sys.stdlib_module_names) <= ALLOWED


def test_imports_from_inside_peft_and_transformers_are_those_of_one_file():
    inside = ("peft.", "transformers.")
    users = {file.name for file in FILES for module in imported_modules(file) if module.startswith(inside)}
    assert users == {"peft.py"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "loaded"),
    [
        ("import coord_adapter, coord_adapter.format, coord_adapter.initial_rows", set()),
        ("import coord_adapter.config; from coord_adapter import CoordOffsetConfig, IdRange", {"pydantic"}),
    ],
    ids=["format and initial rows", "config"],
)
def test_import_of_a_light_module_leaves_the_heavy_libraries_out(statement, loaded):
    heavy = "{'peft', 'pydantic', 'safetensors', 'torch', 'transformers'}"
    script = f"import sys; {statement}; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == loaded


def test_public_names_are_listed_and_others_refused():
    assert set(coord_adapter.__all__) <= set(dir(coord_adapter))
    assert all(getattr(coord_adapter, name).__doc__ for name in coord_adapter.__all__)
    with pytest.raises(AttributeError, match="no attribute 'install'"):
        coord_adapter.__getattr__("install")


def test_public_names_are_in_the_table_of_the_readme():
    table = README.partition("## Names")[2].partition("##")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= set(coord_adapter.__all__)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_readme_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    namespace = {}
    exec(example, namespace)
    assert namespace["again"].peft_config["default"].inference_mode
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()
