"""Two projects of somebody else's: each runs, says what its comments claim, and is the example of a README."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE = ROOT / "tests" / "outside"
EXAMPLES = {"eval_only/score_qwen.py": "coord-eval", "plain_loop/train.py": "coord-adapter"}
OURS = {"coord_codec", "coord_losses", "coord_adapter", "coord_eval", "coord_trainer", "coord_exporter"}


def run(script, folder):
    """Its output, and the packages that were loaded when it ended."""
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "print('loaded', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(OUTSIDE / script)]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    *lines, loaded = output.splitlines()
    return lines, set(loaded.split())


def test_another_models_answers_are_scored_with_coord_eval_alone(tmp_path):
    script = "eval_only/score_qwen.py"
    lines, loaded = run(script, tmp_path)
    assert lines == re.findall(r"print\(.*\)  # (.*)", (OUTSIDE / script).read_text())
    assert len(lines) == 4
    assert loaded & (OURS | {"torch", "transformers"}) == {"coord_eval", "coord_codec"}
    assert json.loads((tmp_path / "report/evaluation.json").read_text())["format"]["truncated"] == 1


def test_a_plain_loop_learns_its_box_with_losses_and_adapter(tmp_path):
    from safetensors import safe_open

    lines, loaded = run("plain_loop/train.py", tmp_path)
    first, *_, last = (ast.literal_eval(line.partition(" ")[2]) for line in lines[:-1])
    assert set(first) == {"text_ce", "soft_ce", "w1", "gate", "box"}
    assert all(last[name] < first[name] for name in first)
    box = json.loads(lines[-1].removeprefix("expected box "))
    assert box == [pytest.approx([0.1, 0.25, 0.5, 0.75], abs=2e-3)]
    assert loaded & (OURS | {"swift"}) == {"coord_codec", "coord_losses", "coord_adapter"}
    with safe_open(tmp_path / "adapter/adapter_model.safetensors", framework="pt") as file:
        names = [key for key in file.keys() if key.endswith("embed_offset")]  # noqa: SIM118 (no mapping)
        assert file.get_tensor(*names).abs().sum() > 0


@pytest.mark.parametrize(("script", "package"), EXAMPLES.items())
def test_the_file_is_the_example_of_a_readme(script, package):
    text = (OUTSIDE / script).read_text()
    readme = (ROOT / "packages" / package / "README.md").read_text()
    examples = re.findall(r"```python[^\n]*\n(.*?)```", readme, re.DOTALL)
    assert text.partition("\n\n")[2] in examples
