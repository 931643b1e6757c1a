"""The hooks that find the tables through the owner model on each call, and the check that they are in place.

Hooks are objects that know their owner and follow it through `deepcopy`; a closure would keep adding the
original's tables. The tables are looked up at call time, so PEFT may wrap, switch and disable them and no
reattach step exists.
"""

import contextlib
from collections.abc import Iterator
from copy import copy
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn

from coord_adapter.guard import add_guard
from coord_adapter.tables import MODULE_NAME

FUSED_HEAD_PACKAGES = ("liger_kernel", "cut_cross_entropy")
"""Packages whose patched `forward` reads `lm_head.weight` and never calls the head."""


class OwnerHook:
    """A callable that belongs to one owner model and moves to the copy when the owner is deep-copied."""

    def __init__(self, owner: nn.Module) -> None:
        self.owner = owner

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnerHook":
        twin = copy(self)
        # When only a part of the model is copied (PEFT copies single modules), the owner is not.
        twin.owner = memo.get(id(self.owner), self.owner)
        return twin


class EmbeddingHook(OwnerHook):
    """Adds the offsets to the embeddings of the coordinate ids."""

    def __call__(
        self, module: nn.Module, args: tuple, kwargs: dict[str, Any], embeds_BTH: Tensor
    ) -> Tensor | None:
        """Forward hook; None leaves the output as it is."""
        adapter = active_adapter(self.owner)
        return None if adapter is None else adapter(_first_input(args, kwargs), embeds_BTH, "embed")


class HeadHook(OwnerHook):
    """Adds the offsets to the logits of the coordinate ids."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__(owner)
        self.bypassed = False

    def __call__(
        self, module: nn.Module, args: tuple, kwargs: dict[str, Any], logits_BTV: Tensor
    ) -> Tensor | None:
        """Forward hook; None leaves the output as it is."""
        adapter = None if self.bypassed else active_adapter(self.owner)
        return None if adapter is None else adapter(_first_input(args, kwargs), logits_BTV, "head")


class PlacementCheck(OwnerHook):
    """Forward pre-hook on the model's body: PEFT calls the owner's `forward` directly, past its own hooks."""

    def __call__(self, module: nn.Module, args: tuple) -> None:
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
        return type(self.owner).save_pretrained(self.owner, save_directory, **kwargs)


def find_owner(model: nn.Module) -> nn.Module | None:
    """The module inside `model` (PEFT, DDP, DeepSpeed, compiled, or itself) that carries the offsets."""
    return next((module for module in model.modules() if MODULE_NAME in module._modules), None)


def active_adapter(owner: nn.Module) -> nn.Module | None:
    """The module to call for the active tables, or None while PEFT has them disabled or inactive."""
    module = owner._modules.get(MODULE_NAME)
    if isinstance(module, ModulesToSaveWrapper):
        names = module.active_adapters
        if module.disable_adapters or not names or names[0] not in module.modules_to_save:
            return None
    return module


def plain_layer(layer: nn.Module) -> nn.Module:
    """The embedding or linear layer below PEFT's wrappers, the one that carries the hook."""
    while True:
        if isinstance(layer, ModulesToSaveWrapper):
            names = layer.active_adapters
            layer = (
                layer.modules_to_save[names[0]]
                if names and names[0] in layer.modules_to_save
                else layer.original_module
            )
        elif isinstance(layer, AuxiliaryTrainingWrapper):
            raise ValueError(
                f"trainable_token_indices replaces {type(layer.original_module).__name__} rows that the "
                "coordinate offsets train; use one of the two."
            )
        elif isinstance(layer, BaseTunerLayer):
            layer = layer.get_base_layer()
        else:
            return layer


def find_hook(layer: nn.Module, kind: type[OwnerHook], owner: nn.Module) -> OwnerHook | None:
    """The owner's hook on this layer, if it is there."""
    hooks = (*layer._forward_hooks.values(), *layer._forward_pre_hooks.values())
    return next((hook for hook in hooks if isinstance(hook, kind) and hook.owner is owner), None)


def attach_hooks(owner: nn.Module) -> int:
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


@contextlib.contextmanager
def bypass_head_hook(model: nn.Module) -> Iterator[None]:
    """Within this context the head returns the base model's logits; the caller applies the offsets itself.

    For an objective that replaces `lm_head.forward` and takes the tables from `active_offsets`. Without
    offsets on the model it does nothing.
    """
    owner = find_owner(model)
    hook = None if owner is None else find_hook(plain_layer(owner.get_output_embeddings()), HeadHook, owner)
    if hook is None:
        yield
        return
    before, hook.bypassed = hook.bypassed, True
    try:
        yield
    finally:
        hook.bypassed = before


def _first_input(args: tuple, kwargs: dict[str, Any]) -> Tensor:
    return args[0] if args else next(iter(kwargs.values()))
