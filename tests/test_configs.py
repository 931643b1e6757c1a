"""Every YAML that is shipped resolves, and says in its first line what question it answers."""

from pathlib import Path

import pytest

from coord_trainer.config_files import load_run_config

ROOT = Path(__file__).parents[1]
SHIPPED = sorted([*ROOT.glob("configs/**/*.yaml"), *ROOT.glob("apps/trainer/src/coord_trainer/*.yaml")])


@pytest.mark.parametrize("file", SHIPPED, ids=[path.name for path in SHIPPED])
def test_it_resolves_and_asks_a_question(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    # The memorising config leaves the data to whoever runs it.
    config = load_run_config(file, ["data.annotations=a.jsonl", "evaluation.pictures=train"])
    assert config.custom.trains_coordinates or not config.custom.coord_tokens.enabled
    first = file.read_text().splitlines()[0]
    assert first.startswith("# ") and "?" in first
