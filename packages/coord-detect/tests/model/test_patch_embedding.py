"""Patch embeddings as matrix products against PyTorch's convolution."""

import copy

import pytest
import torch
from torch import nn

from coord_detect.model.patch_embedding import multiply_patches

PATCH = (2, 4, 4)


def grown(module, patches):
    """Return the output and the gradients of patches, weight and bias."""
    module, patches = copy.deepcopy(module), patches.clone().requires_grad_()
    out = module(patches)
    out.square().sum().backward()
    return [out, patches.grad, *(parameter.grad for parameter in module.parameters())]


@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_the_convolutions(bias):
    torch.manual_seed(0)
    module = nn.Conv3d(3, 8, PATCH, PATCH, bias=bias).double()
    patches = torch.randn(5, 3, *PATCH, dtype=torch.float64)
    expected = grown(module, patches)
    whole = nn.Sequential(module)
    assert multiply_patches(whole) == 1
    for one, other in zip(grown(whole, patches), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert list(whole.state_dict()) == ["0.weight", "0.bias"][: 1 + bias]
    still = patches[:, :, :1].float().repeat(1, 1, 2, 1, 1)  # equal frames, of which each has its own gradient
    multiplied = nn.Sequential(copy.deepcopy(module).float())
    expected = grown(multiplied[0], still)
    multiply_patches(multiplied)
    for one, other in zip(grown(multiplied, still), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_equal_frames_are_multiplied_once_and_both_halves_of_the_kernel_learn(monkeypatch):
    torch.manual_seed(0)
    module = nn.Conv3d(3, 8, PATCH, PATCH)
    multiply_patches(module)
    frame = torch.randn(5, 3, 1, *PATCH[1:])
    still, moving = frame.repeat(1, 1, 2, 1, 1), torch.cat([frame, frame + 1], dim=2)
    widths, linear = [], nn.functional.linear
    monkeypatch.setattr(nn.functional, "linear", lambda x, *rest: widths.append(x.shape[1]) or linear(x, *rest))
    for patches in (still, moving):
        outputs = [module(patches), nn.Conv3d.forward(module, patches)]
        torch.testing.assert_close(*outputs)
        gradients = [torch.autograd.grad(out.square().sum(), module.weight)[0] for out in outputs]
        torch.testing.assert_close(*gradients)
    assert widths == [3 * 4 * 4, 2 * 3 * 4 * 4]


def test_it_multiplies(monkeypatch):
    module = nn.Conv3d(3, 8, PATCH, PATCH)
    multiply_patches(module)
    monkeypatch.setattr(nn.Conv3d, "forward", None)
    assert module(torch.randn(5, 3, *PATCH)).shape == (5, 8, 1, 1, 1)


def test_inputs_of_several_patches_are_convolved():
    module = nn.Conv3d(3, 8, PATCH, PATCH)
    image = torch.randn(1, 3, 2, 8, 12)
    expected = module(image)
    multiply_patches(module)
    assert torch.equal(module(image), expected)


@pytest.mark.parametrize("other", [{"stride": 1}, {"padding": 1}, {"groups": 3}])
def test_other_convolutions_are_left_alone(other):
    module = nn.Conv3d(3, 9, PATCH, **{"stride": PATCH} | other)
    assert multiply_patches(module) == 0 and "forward" not in vars(module)


def test_a_copy_multiplies_by_its_own_weights():
    module = nn.Conv3d(3, 8, PATCH, PATCH)
    multiply_patches(module)
    other = copy.deepcopy(module)
    nn.init.zeros_(other.weight)
    nn.init.zeros_(other.bias)
    assert not other(torch.randn(2, 3, *PATCH)).any()
