"""The hooks that find the tables through the owner model on each call.

Hooks are objects that know their owner and follow it through `deepcopy`; a closure would keep adding the
original's tables. The tables are looked up at call time, so PEFT may wrap, switch and disable them and no
reattach step exists.
"""

import contextlib
from collections.abc import Iterator
from copy import copy
from typing import Any, TypeVar

from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn

from coord_adapter.tables import MODULE_NAME


class OwnerHook:
    """A callable that belongs to one owner model and moves to the copy when the owner is deep-copied."""

    def __init__(self, owner: nn.Module) -> None:
        self.owner = owner

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnerHook":
        twin = copy(self)
        # When only a part of the model is copied (PEFT copies single modules), the owner is not.
        twin.owner = memo.get(id(self.owner), self.owner)
        return twin


_Hook = TypeVar("_Hook", bound=OwnerHook)


class EmbeddingHook(OwnerHook):
    """Adds the offsets to the embeddings of the coordinate ids."""

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], embeds_BTH: Tensor
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
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], logits_BTV: Tensor
    ) -> Tensor | None:
        """Forward hook; None leaves the output as it is."""
        adapter = None if self.bypassed else active_adapter(self.owner)
        return None if adapter is None else adapter(_first_input(args, kwargs), logits_BTV, "head")


def find_owner(model: nn.Module) -> Any:
    """The module inside `model` (PEFT, DDP, DeepSpeed, compiled, or itself) that carries the offsets, or None.

    It is a transformers model, whose attributes torch knows no types of.
    """
    return next((module for module in model.modules() if MODULE_NAME in module._modules), None)


def active_adapter(owner: nn.Module) -> Any:
    """The module to call for the active tables, or None while PEFT has them disabled or inactive.

    It is a `CoordOffsetAdapter`, or PEFT's wrapper that answers for one.
    """
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


def find_hook(layer: nn.Module, kind: type[_Hook], owner: nn.Module) -> _Hook | None:
    """The owner's hook on this layer, if it is there."""
    hooks: tuple[Any, ...] = (*layer._forward_hooks.values(), *layer._forward_pre_hooks.values())
    return next((hook for hook in hooks if isinstance(hook, kind) and hook.owner is owner), None)


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


def _first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    first: Tensor = args[0] if args else next(iter(kwargs.values()))
    return first
