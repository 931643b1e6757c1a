"""The notebook of the guides runs from its first cell to its last, and shows something below each expression."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "docs" / "guides" / "python.ipynb"
SHOWN = ("_repr_html_", "_repr_png_")


def shown(value):
    """Return what a notebook would display: the first rich form that a value has, else its text."""
    for name in SHOWN:
        if name in dir(type(value)) and (found := getattr(value, name)()):
            return found
    return repr(value)


def run_cell(source, names):
    """Run a cell; returns what is displayed below it, None if it ends with a statement."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last is None:
        return None
    return shown(eval(compile(ast.Expression(last.value), "cell", "eval"), names))


@pytest.mark.slow
def test_notebook_runs_and_shows_a_result_below_each_expression(monkeypatch):
    monkeypatch.chdir(NOTEBOOK.parent)
    before = sorted(NOTEBOOK.parent.iterdir())
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    names, displays = {}, []
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace("STEPS = 150", "STEPS = 2")
            displays.append(run_cell(source, names))
    assert displays[0] is None and all(displays[1:])
    pages = [display for display in displays if isinstance(display, str) and "<" in display]
    assert sum("<table" in page or "<ul" in page for page in pages) >= 6
    assert any(isinstance(display, bytes) and display[:4] == b"\x89PNG" for display in displays)
    assert names["detector"].names == ("ball", "box") and len(names["results"]) == 12
    assert (names["folder"] / "run" / "report.html").is_file()
    assert sorted(NOTEBOOK.parent.iterdir()) == before
