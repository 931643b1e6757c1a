"""The settings section."""

import pytest
from pydantic import ValidationError

from coord_adapter import CoordOffsetConfig, IdRange


def test_config_is_off_by_default():
    config = CoordOffsetConfig()
    assert config.model_dump() == {
        "enabled": False, "ids": None, "allow_wildcard": False, "tie_head": True, "embed_lr": None, "head_lr": None,
        "weight_decay": 0.0, "dtype": "auto",
    }  # fmt: skip


def test_token_ids_come_from_the_tokenizer_a_list_or_a_range_with_both_ends():
    assert CoordOffsetConfig().token_ids(range(7, 10)) == [7, 8, 9]
    assert CoordOffsetConfig(ids=[9, 3]).token_ids([1]) == [9, 3]
    ranged = CoordOffsetConfig.model_validate({"ids": {"start": 151670, "end": 152669}})
    assert ranged.ids == IdRange(start=151670, end=152669)
    assert ranged.token_ids([]) == list(range(151670, 152670))
    assert CoordOffsetConfig(ids=IdRange(start=7, end=7)).token_ids([1]) == [7]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ids": []}, "at least 1 item"),
        ({"ids": [1, 1]}, "repeat"),
        ({"ids": [-1]}, "greater than or equal to 0"),
        ({"ids": {"start": 5, "end": 4}}, r"end \(4\) lies before start \(5\)"),
        ({"ids": {"start": 5, "end": 6, "step": 1}}, "step"),
        ({"embed_lr": 0.0}, "embed_lr"),
        ({"head_lr": -1.0}, "head_lr"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"dtype": "int8"}, "dtype"),
        ({"enable": True}, "enable"),
    ],
)
def test_config_names_mistakes(settings, message):
    with pytest.raises(ValidationError, match=message):
        CoordOffsetConfig.model_validate(settings)


def test_config_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        CoordOffsetConfig().enabled = True
