"""The weights of an objective: presets, and what is refused."""

import math

import pytest
from pydantic import ValidationError

from coord_losses import ObjectiveConfig


def test_presets_take_changes():
    assert ObjectiveConfig.soft(w1_weight=0.25).w1_weight == 0.25
    assert ObjectiveConfig.soft(gate_weight=0.0).weights == {"text_ce": 1.0, "soft_ce": 1.0, "w1": 1.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("w1_weight", -1.0),
        ("box_weight", math.inf),
        ("temperature", 0.0),
        ("target_sigma", math.nan),
        ("target_truncate", -1),
        ("lambda_box", 1.0),
    ],
)
def test_config_errors_name_the_field(field, value):
    with pytest.raises(ValidationError, match=field):
        ObjectiveConfig(**{field: value})


def test_config_refuses_what_would_train_nothing():
    with pytest.raises(ValidationError, match="text_weight"):
        ObjectiveConfig(text_weight=0.0)
    with pytest.raises(ValidationError, match="alpha_l1"):
        ObjectiveConfig.group_b(alpha_l1=0.0, beta_giou=0.0)
    with pytest.raises(ValidationError, match="frozen"):
        ObjectiveConfig().text_weight = 2.0
