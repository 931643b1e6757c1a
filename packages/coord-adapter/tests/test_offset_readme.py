"""The README's example runs as it stands, and its table names what is public."""

import re
from pathlib import Path

import pytest

import coord_adapter

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.filterwarnings("ignore")
def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    namespace = {}
    exec(example, namespace)
    assert namespace["again"].peft_config["default"].inference_mode
    assert (tmp_path / "adapter" / "adapter_model.safetensors").exists()


def test_every_public_name_is_in_the_table():
    table = README.partition("## Names")[2].partition("##")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= set(coord_adapter.__all__)
