"""Computes patch embeddings as matrix products: the convolution processes each patch once, without overlap.

PyTorch's general convolution takes several times as long on a CPU, most of it in the backward pass: a quarter of the
first run's step. On a GPU it is slow in bfloat16.

Towers with 2-d convolutions, as those of InternVL3 and Gemma 3, do not need it: these take no longer than the product.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import nn


def multiply_patches(model: nn.Module) -> int:
    """Compute 3-d convolutions over patches as products of the same matrices; returns their number."""
    convolutions = [module for module in model.modules() if takes_patches(module)]
    for module in convolutions:
        module.forward = partial(_multiply, cast("nn.Conv3d", module))
    return len(convolutions)


def takes_patches(module: nn.Module) -> bool:
    """Return whether a module is a convolution over patches without overlap, and so a linear layer of patches."""
    return (
        isinstance(module, nn.Conv3d)
        and module.stride == module.kernel_size
        and module.groups == 1
        and not any(module.padding)
    )


def _multiply(module: nn.Conv3d, patches_NCTHW: torch.Tensor) -> torch.Tensor:
    """Return [N, D, 1, 1, 1] for N patches; larger inputs use the convolution."""
    if patches_NCTHW.shape[2:] != module.kernel_size:
        return nn.Conv3d.forward(module, patches_NCTHW)
    kernel_DCTHW = module.weight
    # Two frames on a CPU may be equal, as those of an image are; a GPU would have to wait to know.
    known = patches_NCTHW.device.type == "cpu" and patches_NCTHW.dtype == torch.float32
    two = patches_NCTHW.shape[2] == 2 and not patches_NCTHW.requires_grad
    if known and two and torch.equal(patches_NCTHW[:, :, 0], patches_NCTHW[:, :, 1]):
        patches_NCTHW, kernel_DCTHW = patches_NCTHW[:, :, :1], kernel_DCTHW.sum(2)
    rows_ND = nn.functional.linear(patches_NCTHW.flatten(1), kernel_DCTHW.flatten(1), module.bias)
    return rows_ND[:, :, None, None, None]
