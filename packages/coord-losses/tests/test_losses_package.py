"""The package as a package: what importing it costs, and that its README is true."""

import re
import subprocess
import sys
from pathlib import Path

import coord_losses


def test_import_loads_no_transformers():
    code = (
        "import sys, coord_losses; print([m for m in ('transformers', 'peft', 'swift') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_exist_and_are_all_in_the_readme():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for name in coord_losses.__all__:
        assert hasattr(coord_losses, name)
        assert f"`{name}" in readme, f"README.md does not mention {name}"


def test_the_examples_of_the_readme_run(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec("\n".join(examples), {})
    assert len(examples) == 2
    assert "loss" in capsys.readouterr().out
