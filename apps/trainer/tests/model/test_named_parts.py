"""Settings that name parts of the model: a name that is not there would change nothing."""

import pytest
from torch import nn

from coord_codec import InputError
from coord_trainer.model.named_parts import check_named_parts


@pytest.fixture(scope="module")
def model():
    layers = nn.ModuleList(nn.ModuleDict({"q_proj": nn.Linear(2, 2), "norm": nn.LayerNorm(2)}) for _ in range(2))
    return nn.ModuleDict({"layers": layers, "lm_head": nn.Linear(2, 3)})


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"target_modules": ["all-linear"], "modules_to_save": ["all-norm"]},
        {"target_modules": ["q_proj", "layers.0.q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": "q_proj", "freeze_parameters": ["layers.0"], "trainable_parameters": ["layers.1.norm"]},
        {"target_regex": r"layers\.\d\.q_proj", "freeze_parameters_regex": "bias$", "trainable_parameters_regex": None},
    ],
)
def test_parts_that_the_model_has_pass(model, training):
    check_named_parts(training, model)


@pytest.mark.parametrize(
    ("training", "told"),
    [
        (
            {"target_modules": ["q_proj", "k_proj"]},
            "target_modules: 'k_proj' is not in the model; its parts are layers, ",
        ),
        ({"target_modules": ["proj"]}, "target_modules: 'proj'"),
        ({"modules_to_save": ["head2"]}, "modules_to_save: 'head2'"),
        ({"freeze_parameters": ["norm"]}, "freeze_parameters: 'norm' is not in the model"),
        ({"trainable_parameters": ["lm_heads"]}, "trainable_parameters: 'lm_heads'"),
        ({"target_regex": "("}, "target_regex: expected a regular expression, found '('"),
        ({"target_regex": "q_proj"}, "target_regex: nothing in the model matches 'q_proj'"),
        ({"freeze_parameters_regex": "^bias"}, "freeze_parameters_regex: nothing in the model matches"),
    ],
)
def test_parts_that_the_model_lacks_are_one_line(model, training, told):
    with pytest.raises(InputError) as caught:
        check_named_parts(training, model)
    assert str(caught.value).startswith(f"training.{told}") and "\n" not in str(caught.value)
