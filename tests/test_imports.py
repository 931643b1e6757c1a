"""What each package drags in, seen from a fresh interpreter."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "swift", "peft", "numpy", "pycocotools", "deepspeed")


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("coord_codec", set()),
        ("coord_eval", {"numpy", "pycocotools"}),
        ("coord_losses", {"torch", "numpy"}),
        ("coord_exporter", set()),
        ("coord_trainer", set()),
        ("coord_trainer.errors", set()),
    ],
)
def test_importing_a_package_loads_no_more_than_it_promises(package, allowed):
    code = f"import sys, {package}; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(loaded) <= allowed


def test_only_the_trainer_imports_swift_and_there_in_few_files():
    from pathlib import Path

    root = Path(__file__).parents[1]
    importing = {
        path.relative_to(root).as_posix()
        for folder in ("packages", "apps")
        for path in (root / folder).glob("*/src/**/*.py")
        if any(
            line.lstrip().startswith(("import swift", "from swift")) for line in path.read_text().splitlines()
        )
    }
    home = "apps/trainer/src/coord_trainer/"
    assert importing == {
        home + name for name in ("swift_model.py", "swift_pipeline.py", "swift_training.py", "doctor.py")
    }


def test_the_apps_use_only_what_the_evaluation_package_makes_public():
    import re
    from pathlib import Path

    root = Path(__file__).parents[1]
    sources = "\n".join(path.read_text() for path in (root / "apps").glob("*/src/**/*.py"))
    modules = set(re.findall(r"^\s*(?:from|import) (coord_eval[\w.]*)", sources, re.MULTILINE))
    assert modules == {"coord_eval", "coord_eval.html"}
