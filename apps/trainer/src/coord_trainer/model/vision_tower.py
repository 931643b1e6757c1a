"""Computes the vision tower faster on a CPU: attention within all images of a batch at once, patches as a product.

With sdpa, transformers calls the attention of the vision tower for each image separately. On a CPU the first run's
step, with 32 small images in three layers, spends a fifth of its time on these calls. Images of one size form a batch.

The convolution of the patch embedding processes each patch once, without overlap. PyTorch's general convolution takes
several times as long on a CPU, most of it in the backward pass: a quarter of the first run's step. On a GPU nothing
changes.

Towers that take images or tiles of one size, as those of InternVL3 and Gemma 3, need neither: they attend within all
images of a batch at once already, and PyTorch's 2-d convolution takes no longer than the product.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

_TOGETHER = "sdpa_images_together"


def attend_to_images_together(model: PreTrainedModel, tower_name: str = "model.visual") -> int:
    """Make the vision tower attend within all images of a batch at once if they have the same number of patches.

    Images of different sizes are still processed one by one. Checkpoints are not affected.

    Args:
        model: whose vision tower is changed
        tower_name: name of the vision tower's module; its `blocks` have an attention `attn`

    Returns:
        Number of changed attention layers; 0 for a tower without such blocks, or whose attention is not sdpa.
    """
    tower = model.get_submodule(tower_name)
    layers = [block.attn for block in getattr(tower, "blocks", ()) if hasattr(block, "attn")]
    if not layers or tower.config._attn_implementation != "sdpa":
        return 0
    AttentionInterface.register(_TOGETHER, _together)
    model.set_attn_implementation({"vision_config": _TOGETHER})
    count_images = _ImageCount()
    for layer in layers:
        layer.register_forward_pre_hook(count_images, with_kwargs=True)
    return len(layers)


class _ImageCount:
    """Passes all images as one sequence, and their number to `_together`, if they have the same number of patches.

    Whether they have is read from the device once for all layers, which share the bounds of the images.
    """

    def __init__(self) -> None:
        self._bounds: torch.Tensor | None = None
        self._alike = False

    def __call__(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        bounds = kwargs.get("cu_seqlens")
        if layer.config._attn_implementation != _TOGETHER:  # another attention was selected later
            return None
        if bounds is None or len(bounds) < 3:
            return None
        if bounds is not self._bounds:
            self._bounds, self._alike = bounds, not bool((torch.diff(bounds, n=2) != 0).any())
        return (args, kwargs | {"cu_seqlens": bounds[[0, -1]], "images": len(bounds) - 1}) if self._alike else None


def _together(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    images: int = 1,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention within each image: [1, heads, images * L, D] -> [1, images * L, heads, D]."""

    def by_image(row_1HTD: torch.Tensor) -> torch.Tensor:
        _, heads, length, width = row_1HTD.shape
        return row_1HTD.view(heads, images, length // images, width).transpose(0, 1)

    rows = (by_image(row_1HTD) for row_1HTD in (query, key, value))
    attended_ILHD, _ = sdpa_attention_forward(module, *rows, attention_mask, **settings)
    return attended_ILHD.flatten(0, 1)[None], None


def multiply_patches(model: nn.Module) -> int:
    """Compute patch convolutions as matrix products on a CPU; weights and their names are unchanged.

    Args:
        model: any model; its 3-d convolutions with a stride equal to their kernel are changed

    Returns:
        Number of changed convolutions.
    """
    convolutions = [module for module in model.modules() if takes_patches(module)]
    for module in convolutions:
        module.forward = partial(_multiply, module)
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
    """Return [N, D, 1, 1, 1] for N patches; larger inputs and inputs on a GPU use the convolution."""
    if patches_NCTHW.shape[2:] != module.kernel_size or patches_NCTHW.device.type != "cpu":
        return nn.Conv3d.forward(module, patches_NCTHW)
    rows_ND = nn.functional.linear(patches_NCTHW.flatten(1), module.weight.flatten(1), module.bias)
    return rows_ND[:, :, None, None, None]
