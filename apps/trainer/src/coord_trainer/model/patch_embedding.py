"""The vision tower's patch embedding as the matrix product that it is.

Its convolution sees each patch once, without overlap. PyTorch's general convolution takes several times as long
for that on a CPU, most of it in the backward pass: a quarter of the first run's step. On a GPU nothing changes.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn


def multiply_patches(model: nn.Module) -> int:
    """Let convolutions over whole patches multiply on a CPU; weights, their names and files stay as they are.

    Args:
        model: any model; a 3-d convolution whose stride is its kernel is one over patches

    Returns:
        How many there are.
    """
    found = [module for module in model.modules() if takes_patches(module)]
    for module in found:
        module.forward = partial(_multiply, module)
    return len(found)


def takes_patches(module: nn.Module) -> bool:
    """Return whether a module is a convolution that sees each patch once, and so a linear layer of patches."""
    return (
        isinstance(module, nn.Conv3d)
        and module.stride == module.kernel_size
        and module.groups == 1
        and not any(module.padding)
    )


def _multiply(module: nn.Conv3d, patches_NCTHW: torch.Tensor) -> torch.Tensor:
    """Return [N, D, 1, 1, 1] of N patches; larger inputs and those on a GPU are left to the convolution."""
    if patches_NCTHW.shape[2:] != module.kernel_size or patches_NCTHW.device.type != "cpu":
        return nn.Conv3d.forward(module, patches_NCTHW)
    rows_ND = nn.functional.linear(patches_NCTHW.flatten(1), module.weight.flatten(1), module.bias)
    return rows_ND[:, :, None, None, None]
