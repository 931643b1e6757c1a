"""The README's example runs as it stands."""

import re
import shutil
from pathlib import Path

import pytest
from tiny_checkpoint import make_adapter

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_readme_example_runs(bases, tmp_path, monkeypatch, capsys):
    shutil.copytree(bases(True), tmp_path / "base")
    make_adapter(tmp_path / "adapter", tmp_path / "base", "separate")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 12
    exec(compile(code, str(README), "exec"), {})
    shown = capsys.readouterr().out.splitlines()[-3:]  # libraries may log before
    assert shown[0] == "16 of 52 tensors changed" and "equal to PEFT's" in shown[1]
    assert shown[2] == re.search(r"# (adapter: .*)", code)[1]
