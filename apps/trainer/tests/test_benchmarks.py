"""The benchmarks start as their documentation writes them."""

import runpy
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("file", "words", "cases"),
    [
        ("step.py", ["--clock", "cpu"], 3),
        ("step.py", ["tiny", "lengths", "--rounds", "5"], 2),
        ("memory.py", [], 2),
        ("memory.py", ["wide"], 1),
    ],
)
def test_benchmark_command_measures_its_cases(file, words, cases):
    main = runpy.run_path(str(BENCHMARKS / file))["main"]
    measured = []

    def compare(*case):
        measured.append(case)
        return [] if file == "step.py" else (1, 2)

    main.__globals__["compare"] = compare
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert len(measured) == cases
