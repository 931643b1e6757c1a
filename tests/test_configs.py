"""Every YAML that is shipped resolves, and says in its first line what question it answers."""

from pathlib import Path

import pytest
import yaml

from coord_detect.settings.decoding import Decoding
from coord_trainer.comparison.plan import differing_settings, plan_groups, result_settings
from coord_trainer.config.run_config import load_run_config

ROOT = Path(__file__).parents[1]
SHIPPED = sorted([*ROOT.glob("configs/**/*.yaml"), *ROOT.glob("apps/trainer/src/coord_trainer/*.yaml")])
BASES = sorted(ROOT.glob("configs/base/*.yaml"))
GROUPS = sorted(ROOT.glob("configs/phase1/*.yaml"))
SWEEPS = sorted(ROOT.glob("configs/sweeps/*.yaml"))
WHOLE = [path for path in SHIPPED if path not in (*BASES, *SWEEPS)]


@pytest.mark.parametrize("file", WHOLE, ids=[path.name for path in WHOLE])
def test_it_resolves(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    # The memorising config leaves the data to whoever runs it.
    config = load_run_config(file, ["data.annotations=a.jsonl", "evaluation.images=train"])
    assert config.custom.trains_coordinates or not config.custom.coord_tokens.enabled


@pytest.mark.parametrize("file", SHIPPED, ids=[path.name for path in SHIPPED])
def test_its_first_line_asks_a_question(file):
    first = file.read_text().splitlines()[0]
    assert first.startswith("# ") and "?" in first


@pytest.mark.parametrize("base", BASES, ids=[path.name for path in BASES])
def test_under_each_base_the_groups_differ_in_nothing_but_loss_flags(base):
    groups = plan_groups(GROUPS, base, [], None)
    assert {group.name for group in groups} >= {"a", "b", "c", "mixed", "soft"}
    rest, flags = [], []
    for group in groups:
        values = group.config.model_dump(mode="json")
        custom = values.pop("custom")
        flags.append([custom.pop("coord_objective"), custom.pop("coord_soft_ce_w1")])
        rest.append((values, custom))
    assert all(one == rest[0] for one in rest)
    assert all(one not in flags[:place] for place, one in enumerate(flags))


@pytest.mark.parametrize("file", GROUPS, ids=[path.name for path in GROUPS])
def test_a_group_says_nothing_but_custom(file):
    assert list(yaml.safe_load(file.read_text())) == ["custom"]


@pytest.mark.parametrize("file", SWEEPS, ids=[path.name for path in SWEEPS])
def test_every_variant_of_a_sweep_resolves_to_settings_of_its_own(file):
    variants = {name: set(found) for name, found in yaml.safe_load(file.read_text()).items()}
    files = [path for path in GROUPS if path.stem in variants]
    assert {path.stem for path in files} == variants.keys()
    groups = plan_groups(files, BASES[-1], [], file)
    assert {group.name for group in groups} == {
        f"{name}-{found}" for name, kinds in variants.items() for found in kinds
    }
    settings = [result_settings(group.config) for group in groups]
    assert all(one not in settings[:place] for place, one in enumerate(settings))


def test_targets_are_a_row_beside_the_groups():
    files = [ROOT / "configs/phase1/a.yaml", *(ROOT / f"configs/targets/{name}.yaml" for name in ("digits", "json"))]
    a, digits, json = plan_groups(files, BASES[-1], [], None)
    assert set(differing_settings([digits, json])) == {"data.style"}
    assert {group.config.evaluation.decoding for group in (a, digits, json)} == {(Decoding(),)}
