"""Putting hooks in their places, and the checks that nothing goes past them."""

from typing import Any

import torch
from peft.utils import ModulesToSaveWrapper
from torch import nn

from coord_adapter.guard import add_guard
from coord_adapter.hooks import EmbeddingHook, HeadHook, OwnerHook, find_hook, plain_layer
from coord_adapter.tables import MODULE_NAME

FUSED_HEAD_PACKAGES = ("liger_kernel", "cut_cross_entropy")
"""Packages whose patched `forward` reads `lm_head.weight` and never calls the head."""


class PlacementCheck(OwnerHook):
    """Forward pre-hook on the model's body: PEFT calls the owner's `forward` directly, past its own hooks."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Raise where offsets would be skipped or would not train."""
        if not torch.compiler.is_compiling():
            check_placement(self.owner)


class SaveGuard(OwnerHook):
    """Stands before the owner's `save_pretrained`, which would write offsets as keys that no loader reads."""

    def __call__(self, save_directory: Any, **kwargs: Any) -> Any:
        """Save a state dict without offsets, refuse anything else."""
        state_dict = kwargs.get("state_dict")
        if state_dict is None or any(MODULE_NAME in key for key in state_dict):
            raise ValueError(
                f"save_pretrained({str(save_directory)!r}) would write {MODULE_NAME} as keys that no loader "
                "reads and lose the offsets. Call bake_offsets(model) to write them into the vocabulary "
                "first; to save an adapter, call save_pretrained of the PeftModel."
            )
        kind: Any = type(self.owner)
        return kind.save_pretrained(self.owner, save_directory, **kwargs)


def attach_hooks(owner: Any) -> int:
    """Put every missing hook in its place and freeze the base rows; returns how many were missing."""
    embedding, head = plain_layer(owner.get_input_embeddings()), plain_layer(owner.get_output_embeddings())
    body = owner.base_model
    attached = 0
    for layer, kind in ((embedding, EmbeddingHook), (head, HeadHook)):
        layer.weight.requires_grad_(False)
        if find_hook(layer, kind, owner) is None:
            layer.register_forward_hook(kind(owner), with_kwargs=True)
            attached += 1
    if find_hook(body, PlacementCheck, owner) is None:
        body.register_forward_pre_hook(PlacementCheck(owner))
        attached += 1
    owner.save_pretrained = SaveGuard(owner)
    return attached


def detach_hooks(owner: nn.Module) -> None:
    """Take every hook of this owner away again."""
    for module in owner.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            ours = [key for key, hook in hooks.items() if isinstance(hook, OwnerHook) and hook.owner is owner]
            for key in ours:
                del hooks[key]
                module._forward_hooks_with_kwargs.pop(key, None)
    owner.__dict__.pop("save_pretrained", None)


def check_placement(owner: nn.Module) -> None:
    """Raise where the offsets of this owner would be skipped, wrong or untrained.

    Raises:
        ValueError: A hook is missing, the head is bypassed, DoRA sits on embedding or head, or PEFT was not
            told to train the offsets.
    """
    for name, layer, kind in (
        ("input embedding", owner.get_input_embeddings(), EmbeddingHook),
        ("output head", owner.get_output_embeddings(), HeadHook),
    ):
        if getattr(layer, "lora_magnitude_vector", None):
            raise ValueError(
                f"DoRA on the {name} merges wrongly together with coordinate offsets: leave it out of "
                "target_modules, or use plain LoRA there (use_dora=False)."
            )
        plain = plain_layer(layer)
        if plain.weight.requires_grad and owner.training and torch.is_grad_enabled():
            raise ValueError(
                f"the {name} was unfrozen after install_coord_offset_adapter: train its rows through the "
                "offsets, or train the whole table without them."
            )
        if find_hook(plain, kind, owner) is None:
            raise ValueError(
                f"the {name} was replaced after install_coord_offset_adapter (resize_token_embeddings does "
                "so) and would ignore the coordinate offsets. Resize first and install then, or call "
                "reattach_coord_offset_hooks(model)."
            )
    package = (getattr(owner.forward, "__module__", None) or "").partition(".")[0]
    if package in FUSED_HEAD_PACKAGES:
        raise ValueError(
            f"{package} computes the loss from lm_head.weight and never calls the head, so coordinate "
            "offsets would be ignored: set use_liger_kernel to false, or train without coordinate offsets."
        )
    _check_peft(owner)


def _check_peft(owner: nn.Module) -> None:
    configs = getattr(owner, "peft_config", None)
    if not configs:
        return
    module = owner._modules.get(MODULE_NAME)
    if isinstance(module, ModulesToSaveWrapper):
        for name in module.modules_to_save:
            if name in configs:
                add_guard(configs[name])
    elif module is not None and owner.training and torch.is_grad_enabled():
        raise ValueError(
            f"the PEFT adapter(s) {sorted(configs)} do not list {MODULE_NAME} in modules_to_save: the "
            "coordinate offsets would be frozen and not saved. Build the configuration with "
            "with_offset_modules(...)."
        )
