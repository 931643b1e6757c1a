"""The plain loop of coord-adapter's README: losses and adapter without ms-swift."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

README = Path(__file__).parents[1] / "packages" / "coord-adapter" / "README.md"
OURS = {"coord_codec", "coord_losses", "coord_adapter", "coord_eval", "coord_trainer", "coord_exporter", "swift"}


@pytest.mark.slow
def test_plain_loop_learns_its_box_with_losses_and_adapter_alone(tmp_path):
    block = r'^```python title="run by tests/test_plain_loop.py"\n(.*?)^```$'
    (code,) = re.findall(block, README.read_text(), re.DOTALL | re.MULTILINE)
    code += "\nimport sys; print('loaded', *sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    *steps, box, loaded = output.splitlines()
    first, *_, last = (ast.literal_eval(line.partition(" ")[2]) for line in steps)
    assert set(first) == {"text_ce", "soft_ce", "w1", "gate", "box"}
    assert all(last[name] < first[name] for name in first)
    assert json.loads(box.removeprefix("expected box ")) == [pytest.approx([0.1, 0.25, 0.5, 0.75], abs=2e-3)]
    assert OURS & set(loaded.split()) == {"coord_codec", "coord_losses", "coord_adapter"}
    with safe_open(tmp_path / "adapter/adapter_model.safetensors", framework="pt") as file:
        names = [key for key in file.keys() if key.endswith("embed_offset")]  # noqa: SIM118 (no mapping)
        assert file.get_tensor(*names).abs().sum() > 0
