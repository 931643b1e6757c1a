"""Configuration: what resolves, and that every mistake is named with both sides."""

from itertools import product
from pathlib import Path

import pytest
import yaml

from coord_codec import InputError
from coord_losses import ObjectiveConfig
from coord_trainer.config.run_config import check_run_config, load_run_config

SOFT = {"coord_soft_ce_w1": {"enabled": True}}


def resolve(**sections):
    return check_run_config({"custom": SOFT, **sections}, "test")


def objective(**custom):
    return check_run_config({"custom": custom}, "test").custom.objective


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"use_coord_ce": True}, ObjectiveConfig.group_a()),
        ({"use_coordexp_loss": True, "use_geom_loss": True}, ObjectiveConfig.group_b()),
        ({"use_coord_ce": True, "use_coordexp_loss": True, "use_geom_loss": True}, ObjectiveConfig.group_c()),
        (
            {"use_coord_ce": True, "use_coordexp_loss": True, "use_geom_loss": True, "lambda_coord": 0},
            ObjectiveConfig.group_a(),
        ),
        ({"use_coord_ce": True, "lambda_coord_ce": 0.5}, ObjectiveConfig(coord_ce_weight=0.5)),
        (
            {"use_coordexp_loss": True, "use_geom_loss": True, "lambda_coord": 0.2, "alpha_l1": 5, "beta_giou": 2},
            ObjectiveConfig(box_weight=0.2, alpha_l1=5, beta_giou=2),
        ),
    ],
)
def test_objective_flags_of_phase_1_resolve_to_weights(flags, expected):
    assert objective(coord_objective=flags) == expected


def test_objective_of_soft_terms_combines_with_coordinate_ce():
    assert objective(**SOFT) == ObjectiveConfig.soft()
    assert objective(**SOFT, coord_objective={"use_coord_ce": True}) == ObjectiveConfig.mixed()
    weights = {"enabled": True, "soft_ce_weight": 0.25, "w1_weight": 0, "gate_weight": 2, "target_sigma": 3}
    found = objective(coord_soft_ce_w1=weights)
    assert (found.soft_ce_weight, found.w1_weight, found.gate_weight, found.target_sigma) == (0.25, 0, 2, 3)


SWITCHES = (
    "custom.coord_tokens.enabled",
    "custom.coord_soft_ce_w1.enabled",
    "custom.coord_objective.use_coord_ce",
    "custom.coord_objective.use_coordexp_loss",
    "custom.coord_objective.use_geom_loss",
)
# tokens, soft, coordinate CE, expected box, its loss -> the weights of the terms that are on.
LEGAL = {
    (1, 1, 0, 0, 0): {"soft_ce": 0.2, "w1": 0.3, "gate": 0.4},
    (1, 0, 1, 0, 0): {"coord_ce": 0.6},
    (1, 1, 1, 0, 0): {"coord_ce": 0.6, "soft_ce": 0.2, "w1": 0.3, "gate": 0.4},
    (1, 0, 0, 1, 1): {"box": 0.7},
    (1, 0, 1, 1, 1): {"coord_ce": 0.6, "box": 0.7},
    (1, 1, 0, 1, 1): {"soft_ce": 0.2, "w1": 0.3, "gate": 0.4, "box": 0.7},
    (1, 1, 1, 1, 1): {"coord_ce": 0.6, "soft_ce": 0.2, "w1": 0.3, "gate": 0.4, "box": 0.7},
    (0, 0, 0, 0, 0): {},
}
WEIGHTS = (
    "custom.coord_soft_ce_w1.soft_ce_weight=0.2",
    "custom.coord_soft_ce_w1.w1_weight=0.3",
    "custom.coord_soft_ce_w1.gate_weight=0.4",
    "custom.coord_objective.lambda_coord_ce=0.6",
    "custom.coord_objective.lambda_coord=0.7",
)


@pytest.mark.drawn(20)
@pytest.mark.parametrize("on", list(product((0, 1), repeat=5)), ids=lambda on: "".join(map(str, on)))
@pytest.mark.parametrize("way", ["command line", "yaml"])
def test_custom_switches_resolve_or_name_both_sides_in_every_combination(tmp_path, on, way):
    words = [*(f"{name}={bool(value)}" for name, value in zip(SWITCHES, on, strict=True)), *WEIGHTS]
    file = None
    if way == "yaml":
        file, nested = tmp_path / "run.yaml", {}
        for word in words:
            name, value = word.split("=")
            _, section, key = name.split(".")
            nested.setdefault(section, {})[key] = yaml.safe_load(value)
        file.write_text(yaml.safe_dump({"custom": nested}))
        words = []
    if on in LEGAL:
        assert load_run_config(file, words).custom.objective.weights == {"text_ce": 1.0} | LEGAL[on]
        return
    with pytest.raises(InputError) as caught:
        load_run_config(file, words)
    tokens, _, _, expected, geometry = on
    told = str(caught.value)
    if expected != geometry:
        assert "use_geom_loss is" in told and "use_coordexp_loss is" in told
    elif tokens:
        assert "coord_tokens.enabled is true" in told and "coord_soft_ce_w1.enabled" in told
    else:
        first = next(name for name, value in zip(SWITCHES[1:], on[1:], strict=True) if value)
        assert "coord_tokens.enabled is false" in told
        assert f"{first} is true" in told or "use_geom_loss is true" in told


def test_yaml_of_the_specification_parses(tmp_path):
    (tmp_path / "base.yaml").write_text("training: {learning_rate: 1.0e-4, vit_lr: 1.0e-5}\n")
    file = tmp_path / "run.yaml"
    file.write_text(
        """
extends: base.yaml
custom:
  coord_tokens: {enabled: true, skip_bbox_norm: true}
  coord_soft_ce_w1: {enabled: true, soft_ce_weight: 1.0, w1_weight: 1.0, gate_weight: 1.0, temperature: 1.0,
                     target_sigma: 2.0, target_truncate: 16}
  coord_offset: {enabled: true, ids: {start: 151670, end: 152669}, tie_head: true, embed_lr: 4.0e-4, head_lr: 1.0e-4,
                 weight_decay: 0.0}
training: {optimizer: multimodal_coord_offset, learning_rate: 2.0e-4}
"""
    )
    config = load_run_config(file, ["run.seed=3", "data.order=size"])
    assert config.training == {"learning_rate": 2e-4, "vit_lr": 1e-5, "optimizer": "multimodal_coord_offset"}
    assert config.custom.coord_offset.token_ids([])[:2] == [151670, 151671]
    assert (config.run.seed, config.data.order) == (3, "size")


def test_extends_is_looked_up_beside_the_file_then_from_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.yaml").write_text("extends: base.yaml\ncustom: {coord_soft_ce_w1: {enabled: true}}\n")
    (tmp_path / "base.yaml").write_text("run: {seed: 7}\n")
    monkeypatch.chdir(tmp_path)
    assert load_run_config(Path("a/run.yaml"), []).run.seed == 7
    (tmp_path / "a" / "base.yaml").write_text("run: {seed: 8}\n")
    assert load_run_config(Path("a/run.yaml"), []).run.seed == 8


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("- a\n- b\n", [], "expected a mapping"),
        ("a: [", [], "not YAML"),
        ("extends: run.yaml\n", [], "extends itself"),
        ("extends: nowhere.yaml\n", [], "no such config file"),
        ("extends: [a, b]\n", [], "one file name"),
        ("", ["--run.dir"], "section.key=value"),
        ("", ["rundir"], "section.key=value"),
    ],
)
def test_load_run_config_refuses_files_and_words_it_cannot_read(tmp_path, text, words, told):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=told):
        load_run_config(file, words)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("run.dir=off", "run.dir: expected a path, found False, which is how YAML reads no and off (a boolean); put"),
        ("run.dir=off", """put the word in quotes, on a command line '"off"'"""),
        (
            "run.dir=2024",
            "run.dir: expected a path, found 2024, which YAML has read as a number; put the word in quotes",
        ),
        ("run.dir={a: b}", "run.dir: expected a path, found {'a': 'b'}"),
        ("model.path=on", "model.path: expected text, found True, which is how YAML reads yes and on"),
        ("training.run_name=7", "training.run_name: expected text, found 7, which YAML has read as a number"),
        ("run.seed=yes", "run.seed: expected a number, found True, which is how YAML reads yes and on"),
        ("data.augment.flip=on", "data.augment.flip: expected a number, found True"),
        ("data.shapes.noise=no", "data.shapes.noise: expected a number, found False"),
        ("data.classes=cat", "data.classes: expected a list, found 'cat'; write [cat]"),
        ("run.dir=try #2", """what follows # is a comment in YAML; put the value in quotes: run.dir='"..."'"""),
        ("run.dir=#2", "what follows # is a comment in YAML"),
        ("=x", "=x: expected section.key=value"),
    ],
)
def test_what_yaml_makes_of_a_word_is_told(word, told):
    with pytest.raises(InputError) as caught:
        load_run_config(None, ["custom.coord_soft_ce_w1.enabled=true", word])
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("word", ['"off"', "2024-05-06", "a#2", '"try #2"', "ü b"])
def test_words_that_yaml_keeps_are_taken(word):
    config = load_run_config(None, ["custom.coord_soft_ce_w1.enabled=true", f"run.dir={word}"])
    assert config.run.dir == Path(word.strip('"'))


def test_file_is_read_as_it_was_written(tmp_path):
    """A date stays text, byte order mark and Windows' line ends are no part of it, and no key is stated twice."""
    soft = "custom: {coord_soft_ce_w1: {enabled: true}}\r\n"
    (tmp_path / "a.yaml").write_bytes(("\ufeff" + soft + "run:\r\n  dir: 2024-05-06\r\n").encode())
    assert load_run_config(tmp_path / "a.yaml", []).run.dir == Path("2024-05-06")
    (tmp_path / "a.yaml").write_text(soft + "run: {seed: 1}\nrun: {profile: true}")
    with pytest.raises(InputError, match=r"a\.yaml: not YAML: .* found duplicate key run"):
        load_run_config(tmp_path / "a.yaml", [])


def test_resolved_config_resolves_to_itself():
    config = resolve(data={"max_objects": 5}, training={"max_steps": 3})
    assert check_run_config(config.model_dump(mode="json"), "again") == config


def test_flash_attention_is_replaced_where_it_cannot_run(capsys, monkeypatch):
    from coord_detect.model import checkpoint

    asked = resolve(model={"attention": "flash_attention_2", "dtype": "bfloat16"})
    monkeypatch.setattr(checkpoint, "find_spec", lambda name: None)
    assert checkpoint.with_usable_attention(asked).model.attention == "sdpa"
    assert "flash_attn is not installed" in capsys.readouterr().out
    monkeypatch.setattr(checkpoint, "find_spec", lambda name: object())
    monkeypatch.setattr(checkpoint.torch.cuda, "is_available", lambda: True)
    assert checkpoint.with_usable_attention(asked) is asked
    plain = resolve()
    assert checkpoint.with_usable_attention(plain) is plain
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("first", "later"), [("max_steps", "num_train_epochs"), ("num_train_epochs", "max_steps")])
def test_later_word_says_where_training_ends(tmp_path, first, later, capsys):
    file = tmp_path / "a.yaml"
    file.write_text(f"custom: {{coord_soft_ce_w1: {{enabled: true}}}}\ntraining: {{{first}: 7}}\n")
    config = load_run_config(file, [f"training.{later}=3"])
    assert config.training == {later: 3}
    told = capsys.readouterr().out
    assert f"training.{later}" in told and f"training.{first}=7" in told
    child = tmp_path / "b.yaml"
    child.write_text(f"extends: a.yaml\ntraining: {{{later}: 3}}\n")
    assert load_run_config(child, []).training == {later: 3}


def test_setting_that_a_file_leaves_open_has_to_be_given(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(
        "custom: {coord_soft_ce_w1: {enabled: true}}\ndata:\n  annotations: ???\nevaluation: {images: none}\n"
    )
    with pytest.raises(InputError, match=r"own\.yaml: data\.annotations has to be given"):
        load_run_config(file, [], needs_data=True)
    assert load_run_config(file, []).data.annotations is None  # inference needs no data
    given = load_run_config(file, ["data.annotations=a.json"], needs_data=True)
    assert given.data.annotations == Path("a.json")
    sources = load_run_config(file, ["data.sources=[{annotations: b.json}]"], needs_data=True)
    assert sources.data.annotations is None and len(sources.data.sources) == 1
