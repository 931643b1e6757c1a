"""Wrong configurations, names of the specification, and damaged files: one message each, never a traceback."""

from pathlib import Path

import pytest

from coord_codec import InputError
from coord_losses import ObjectiveConfig
from coord_trainer.config.run_config import check_run_config, load_run_config

ROOT = Path(__file__).parents[4]
SOFT = {"coord_soft_ce_w1": {"enabled": True}}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"coord_offset": {"enabled": True}}, "coord_offset: unknown key; it belongs at custom.coord_offset"),
        ({"use_coord_ce": True}, "use_coord_ce: unknown key; it belongs at custom.coord_objective.use_coord_ce"),
        ({"custom": {"use_coord_ce": True}}, "it belongs at custom.coord_objective.use_coord_ce"),
        ({"learning_rate": 1e-4}, "it belongs at training.learning_rate"),
        ({"run": {"seed": -1}}, "run.seed"),
        ({"run": {"seed": 2**40}}, "run.seed"),
        ({"run": 3}, "run: "),
        ({"run": None}, "run: "),
        ({"training": [1]}, "training: "),
        ({1: 2}, "1: "),
        ({"data": {"shapes": {"min_side": 0.6}}}, "data.shapes.min_side is 0.6 but data.shapes.max_side is 0.5"),
        ({"data": {"shapes": {"max_side": float("nan")}}}, "data.shapes.max_side"),
        ({"data": {"shapes": {"noise": float("inf")}}}, "data.shapes.noise"),
        ({"data": {"min_pixels": 900, "max_pixels": 100}}, "data.min_pixels is 900 but data.max_pixels is 100"),
        ({"model": {"tiny": {"min_pixels": 10**6}}}, "model.tiny.min_pixels is 1000000"),
        ({"custom": {"coord_offset": {"enabled": True, "ids": {"start": 1, "end": 2, "step": 3}}}}, "coord_offset.ids"),
        ({"custom": {"coord_offset": {"enabled": True, "embed_lr": "fast"}}}, "coord_offset.embed_lr"),
        ({"custom": {"coord_offset": {"enabled": True, "embed_lr": float("inf")}}}, "coord_offset.embed_lr"),
        ({"evaluation": {"images": False}}, "found False, which is how YAML reads no and off"),
        ({"data": {"max_object": 3}}, "data.max_object: unknown key; did you mean max_objects?"),
        ({"data": {"markers": "box"}}, "'qwen' or 'obj'"),
        ({"data": {"images": "x"}}, "data.annotations"),
        ({"data": {"max_vertices": 2}}, "data.max_vertices"),
        ({"data": {"class_prompt": "Find it"}}, "classes"),
        (
            {"custom": SOFT | {"coord_objective": {"matching": "hungarian"}}, "data": {"geometry": "point"}},
            "matches boxes only",
        ),
        ({"data": {"annotations": "x.jsonl"}}, "data.heldout_annotations"),
        ({"data": {"order": "sideways"}}, "data.order"),
        ({"model": {"tiny": {"hidden": 90}}}, "model.tiny"),
        ({"run": {"seed": "many"}}, "run.seed"),
        ({"custom": SOFT | {"coord_tokens": {"skip_bbox_norm": False}}}, "skip_bbox_norm is false, but there is"),
    ],
    ids=str,
)
def test_wrong_settings_name_the_key(values, told):
    with pytest.raises(InputError) as caught:
        check_run_config({"custom": SOFT, **values}, "test")
    assert told in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "run: {dir: '${nowhere}'}",
        "run: {dir: '${'}",
        "1: {2: 3}",
        "run: [1, 2]",
        "? [a, b]\n: c",
        "\x00",
        "run: &a {dir: *b}",
    ],
)
def test_wrong_yaml_is_an_input_error(tmp_path, text):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"run\.yaml"):
        load_run_config(file, [])
    with pytest.raises(InputError):
        load_run_config(None, ["run.seed.x=3", "run.dir=${nowhere}"])


def test_list_in_the_place_of_a_section_is_an_input_error(tmp_path):
    (tmp_path / "base.yaml").write_text("custom: {coord_soft_ce_w1: {enabled: true}}")
    (tmp_path / "run.yaml").write_text("extends: base.yaml\ncustom: []")
    (tmp_path / "alone.yaml").write_text("custom: []")
    for file, words, base in (
        (tmp_path / "run.yaml", [], None),
        (tmp_path / "alone.yaml", [], tmp_path / "base.yaml"),
        (tmp_path / "base.yaml", ["custom=[]"], None),
    ):
        with pytest.raises(InputError, match="incompatible container types"):
            load_run_config(file, words, base)


def test_offsets_of_the_specification_alone_train_by_cross_entropy(tmp_path):
    file = tmp_path / "offset.yaml"
    file.write_text(
        "custom:\n  coord_offset:\n    enabled: true\n    tie_head: true\n    ids: {start: 151670, end: 152669}\n"
        "    embed_lr: 1.0e-4\n    head_lr: 1.0e-4\n    weight_decay: 0.0\n"
    )
    config = load_run_config(file, [])
    assert config.custom.objective == ObjectiveConfig.group_a() and config.custom.coord_offset.enabled
    assert check_run_config(config.model_dump(mode="json"), "again") == config
    with pytest.raises(InputError, match="nothing trains the coordinates"):
        load_run_config(file, ["custom.coord_objective.use_coord_ce=false"])


def test_check_model_path_refuses_a_folder_without_a_checkpoint(tmp_path):
    from coord_trainer.model.model_path import check_model_path

    config = check_run_config({"custom": SOFT, "model": {"path": str(tmp_path)}}, "test")
    with pytest.raises(InputError, match=r"config\.json"):
        check_model_path(config.model)
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match=r"config\.json"):
            check_model_path(config.model)
    (tmp_path / "config.json").write_text("{}")
    check_model_path(config.model)


def test_check_model_path_names_the_checkpoint_of_a_run_folder(tmp_path):
    from coord_detect.model.checkpoints import mark_complete
    from coord_trainer.model.model_path import check_model_path

    checkpoint = tmp_path / "checkpoints" / "checkpoint-7"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    mark_complete(checkpoint)
    config = check_run_config({"custom": SOFT, "model": {"path": str(tmp_path)}}, "test")
    with pytest.raises(InputError, match=f"name its checkpoint {checkpoint}"):
        check_model_path(config.model)
