"""The README's example runs as it stands."""

import re
import shutil
from pathlib import Path

from export_tiny import make_adapter

README = Path(__file__).parents[1] / "README.md"


def test_example(bases, tmp_path, monkeypatch, capsys):
    shutil.copytree(bases(True), tmp_path / "base")
    make_adapter(tmp_path / "adapter", tmp_path / "base", "separate")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 12
    exec(compile(code, str(README), "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "16 of 52 tensors changed" and "equal to PEFT's" in said[1]
    assert said[2] == re.search(r"# (adapter: .*)", code)[1]
