"""Leaving out PEFT's casts of inputs changes no bit of a step under autocast, and no adapter whose norms need them."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import nn

from coord_adapter import without_input_casts


def _adapted(**settings):
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8)).bfloat16()
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["0", "2"], init_lora_weights=False, **settings))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.float()
    return model


def _step(model, leaves_out, x):
    with without_input_casts(model, leaves_out):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().sum()
        loss.backward()
    found = [loss.detach(), *(p.grad for p in model.parameters() if p.requires_grad)]
    model.zero_grad(set_to_none=True)
    return found


def test_a_step_under_autocast_has_the_same_bits():
    model, x = _adapted(), torch.randn(5, 16).bfloat16()
    dtypes = []
    model.base_model.model[0].lora_A["default"].register_forward_pre_hook(
        lambda _, given: dtypes.append(given[0].dtype)
    )
    for found, expected in zip(_step(model, True, x), _step(model, False, x), strict=True):
        assert torch.equal(found, expected) and found.any()
    assert dtypes == [torch.bfloat16, torch.float32]


@pytest.mark.parametrize(
    ("settings", "autocast", "casts"), [({}, True, False), ({}, False, True), ({"use_dora": True}, True, True)]
)
def test_casts_stay_without_autocast_and_for_dora(settings, autocast, casts):
    model = _adapted(**settings)
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    with without_input_casts(model, autocast):
        assert {layer.cast_input_dtype_enabled for layer in layers} == {casts}
    assert {layer.cast_input_dtype_enabled for layer in layers} == {True}
    with without_input_casts(nn.Linear(2, 2), True):
        pass


def test_casts_stay_where_any_adapter_needs_them():
    model = _adapted()
    model.add_adapter("second", LoraConfig(r=2, target_modules=["0"], use_dora=True))
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    with without_input_casts(model, True):
        assert {layer.cast_input_dtype_enabled for layer in layers} == {True}
