"""What each package drags in, seen from a fresh interpreter."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]

HEAVY = ("torch", "transformers", "swift", "peft", "numpy", "pycocotools", "deepspeed")


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("coord_codec", set()),
        ("coord_eval", {"numpy", "pycocotools"}),
        ("coord_losses", {"torch", "numpy"}),
        ("coord_exporter", set()),
        ("coord_trainer", set()),
        ("coord_trainer.console", set()),
        ("coord_adapter", set()),
    ],
)
def test_importing_a_package_loads_no_more_than_it_promises(package, allowed):
    code = f"import sys, {package}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= allowed


def test_the_apps_use_only_what_the_evaluation_package_makes_public():
    sources = "\n".join(path.read_text() for path in (ROOT / "apps").glob("*/src/**/*.py"))
    modules = set(re.findall(r"^\s*(?:from|import) (coord_eval[\w.]*)", sources, re.MULTILINE))
    assert modules == {"coord_eval", "coord_eval.diagnosis", "coord_eval.html"}


def test_records_of_large_files_import_all_of_arrow_that_they_use():
    """Training on large files reads them before any library that imports `pyarrow.compute` too."""
    code = "import coord_data.large.records as records; print(records.pa.compute.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "pyarrow.compute\n", done.stderr


@pytest.mark.parametrize("app", ["trainer", "exporter"])
def test_interrupt_while_an_app_is_imported_prints_no_traceback(app, monkeypatch):
    class Interrupted(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    name = f"coord_{app}.cli"
    monkeypatch.setitem(sys.modules, name, Interrupted(name))
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "apps" / app), run_name="__main__")
    assert stopped.value.code == 130
