"""The list of configuration keys."""

import pytest

from coord_codec import InputError
from coord_trainer.config.reference import as_markdown, config_keys
from coord_trainer.config.run_config import check_run_config
from coord_trainer.config.swift_arguments import argument_table


def leaves(values, prefix=""):
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_config_keys_are_those_of_a_resolved_configuration_each_with_a_meaning():
    config = check_run_config({"custom": {"coord_soft_ce_w1": {"enabled": True}}}, "test")
    keys = config_keys()
    assert [key.name for key in keys if "[]" not in key.name] == list(leaves(config.model_dump(mode="json")))
    assert [key.name for key in keys if not key.meaning or not key.type] == []


def test_config_keys_of_a_prefix():
    assert [key.name for key in config_keys("run.se")] == ["run.seed"]
    assert {key.name for key in config_keys("training.")} == {f"training.{name}" for name in argument_table()}
    with pytest.raises(InputError, match=r"did you mean data\.order\?"):
        config_keys("data.ordre")


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("lr", "training.learning_rate"),
        ("lr", "custom.coord_offset.embed_lr"),
        ("epochs", "training.num_train_epochs"),
        ("mirror", "evaluation.views"),
    ],
)
def test_config_keys_are_searched_for_a_word_that_begins_none(word, name):
    assert name in [key.name for key in config_keys(word)]


def test_as_markdown_has_a_row_a_key():
    keys = config_keys("custom")
    rows = [line for line in as_markdown(keys).splitlines() if line.startswith("| `")]
    assert len(rows) == len(keys)
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)


def test_borders_are_told_with_or_without_their_ends():
    types = {key.name: key.type for key in config_keys("custom")}
    assert types["custom.coord_objective.lambda_coord"] == "number of at least 0"
    assert types["custom.coord_soft_ce_w1.temperature"] == "number above 0"
    assert types["custom.coord_soft_ce_w1.target_truncate"] == "whole number above 0"
