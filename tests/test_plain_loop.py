"""The plain loop of coord-adapter's README: losses and adapter without ms-swift."""

import ast
import json
import re
from pathlib import Path

import pytest
from safetensors import safe_open

README = Path(__file__).parents[1] / "packages" / "coord-adapter" / "README.md"


@pytest.mark.slow
def test_plain_loop_learns_its_box(tmp_path, forked):
    block = r'^```python title="run by tests/test_plain_loop.py"\n(.*?)^```$'
    (code,) = re.findall(block, README.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "loop.py").write_text(code)
    done = forked(tmp_path / "loop.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *steps, box = done.stdout.splitlines()
    first, *_, last = (ast.literal_eval(line.partition(" ")[2]) for line in steps)
    assert set(first) == {"text_ce", "soft_ce", "w1", "gate", "box"}
    assert all(last[name] < first[name] for name in first)
    assert json.loads(box.removeprefix("expected box ")) == [pytest.approx([0.1, 0.25, 0.5, 0.75], abs=2e-3)]
    with safe_open(tmp_path / "adapter/adapter_model.safetensors", framework="pt") as file:
        names = [key for key in file.keys() if key.endswith("embed_offset")]  # noqa: SIM118 (no mapping)
        assert file.get_tensor(*names).abs().sum() > 0
