"""The benchmarks start as their documentation writes them."""

import logging
import runpy
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from coord_trainer.config.run_config import load_run_config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("file", "words", "cases"),
    [
        ("step.py", ["--clock", "cpu"], 3),
        ("step.py", ["tiny", "lengths", "--rounds", "5"], 2),
        ("memory.py", ["tiny", "tiny-dora"], 2),
    ],
)
def test_benchmark_command_measures_its_cases(file, words, cases, monkeypatch):
    module = runpy.run_path(str(BENCHMARKS / file))
    main, parts, measured = module["main"], module.get("PARTS", ()), []

    def compare(*case):
        measured.append(case)
        return [] if file == "step.py" else (dict.fromkeys(parts, 1), dict.fromkeys(parts, 2))

    main.__globals__["compare"] = compare
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert len(measured) == cases
    assert logging.root.manager.disable == logging.NOTSET  # what runs afterwards in this process logs as before


@pytest.mark.parametrize("case", ["tiny", "vocabulary", "lengths"])
@pytest.mark.parametrize("group", ["GROUP_A", "SOFT"])
def test_steps_are_timed_under_settings_that_are_accepted(case, group):
    step = runpy.run_path(str(BENCHMARKS / "step.py"))
    settings = step["COMMON"] | step["CASES"][case][0] | step[group]
    load_run_config(None, [f"{key}={value}" for key, value in settings.items()])
