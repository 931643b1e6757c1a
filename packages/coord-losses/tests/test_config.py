"""The weights of an objective: presets, and what is refused."""

import math

import pytest
from pydantic import ValidationError

from coord_losses import ObjectiveConfig
from coord_losses.terms.weights import TermWeights


def test_presets_take_changes():
    assert ObjectiveConfig.soft(w1_weight=0.25).w1_weight == 0.25
    assert ObjectiveConfig.soft(gate_weight=0.0).weights == {"text_ce": 1.0, "soft_ce": 1.0, "w1": 1.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, value) for name in (*TermWeights.model_fields, "alpha_l1", "beta_giou")
          for value in (-1e-9, math.inf, math.nan)),
        *((name, value) for name in ("temperature", "expectation_temperature", "target_sigma")
          for value in (0.0, -1.0, math.inf, math.nan)),
        *(("target_truncate", value) for value in (-1, 1.5)),
        *(("label_smoothing", value) for value in (-1e-9, 1.0, math.nan)),
        ("matching", "Hungarian"), ("shape_boxes", "perhaps"), ("extra_weights", {"w1": 1.0}), ("lambda_box", 1.0),
        ("extra_weights", {"eror": 1.0}), ("term_options", {"eror": {}}), ("term_options", {"gate": {"power": 1}}),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    "given",
    [
        *(
            {"box_weight": 1.0, "alpha_l1": 0.0},
            {"box_weight": 1.0, "beta_giou": 0.0},
            {"alpha_l1": 0.0, "beta_giou": 0.0},
        ),
        *({"target_truncate": 0}, {"label_smoothing": 0.0}, {"label_smoothing": 0.99}, {"temperature": 1e-3}),
        {"text_weight": 0.0, "gate_weight": 0.5},
    ],
)
def test_values_at_the_borders_are_allowed(given):
    made = ObjectiveConfig(**given)
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.parametrize("preset", ObjectiveConfig.presets())
def test_every_weight_of_a_preset_can_be_another(preset):
    weights = {name: 0.1 * n for n, name in enumerate(TermWeights.model_fields, 1)}
    assert getattr(ObjectiveConfig, preset)(**weights) == ObjectiveConfig(**weights)
    for name in weights:
        changed = getattr(ObjectiveConfig, preset)(**{name: 0.25}).model_dump(exclude={name})
        assert changed == getattr(ObjectiveConfig, preset)().model_dump(exclude={name})
