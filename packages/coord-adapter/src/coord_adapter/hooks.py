"""Hooks that add the offsets in a model's forward pass, and checks that the offsets take effect.

Hooks are objects with a reference to their owner, which `deepcopy` updates; a closure would still add the original
model's tables. Tables are looked up at call time, so PEFT may wrap, switch and disable them without reattaching hooks.
Before each forward pass a check raises an error if offsets would be skipped, wrong or not trained; in each backward
pass another one, if the loss does not come from the head (`head_proof`).
"""

import contextlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from coord_adapter.format import MODULE_NAME
from coord_adapter.head_proof import HeadProof, MovedHead, way_out
from coord_adapter.peft import active_copy, check_adapters, embedding_scale, has_dora, has_lora, is_wrapped, plain_layer

FUSED_HEAD_PACKAGES = ("liger_kernel", "cut_cross_entropy")
"""Packages whose patched `forward` reads `lm_head.weight` and never calls the head; others show in the first step."""


@dataclass(frozen=True)
class ActiveOffsets:
    """The head and its offsets.

    The logits are `hidden @ head_weight.T`, plus `hidden @ offsets.T` on the columns `ids`.

    Attributes:
        ids: int64 token ids [K]; row k of the offsets belongs to `ids[k]`
        offsets: offsets [K, H] of the head (in tied mode the shared table), in the tables' dtype, differentiable
        head_weight: weight [V, H] of the frozen base head
    """

    ids: Tensor
    offsets: Tensor
    head_weight: Tensor


def active_offsets(model: nn.Module) -> ActiveOffsets | None:
    """Return the offsets that the model's head currently adds; None if there are none or they are disabled.

    Use it together with `bypass_head_hook`, inside the function that replaces `lm_head.forward` during a call: there
    ZeRO-3 has gathered the head's weight. The table is a differentiable copy, which remains valid after ZeRO-3 has
    partitioned the parameter again.

    Args:
        model: the model in any wrapping (PEFT, DDP, DeepSpeed, compiled)

    Raises:
        ValueError: if the head itself carries LoRA, so that its weight alone does not determine its output
    """
    owner = find_owner(model)
    adapter = None if owner is None else active_adapter(owner)
    if adapter is None:
        return None
    head = output_head(owner)
    if has_lora(head):
        raise ValueError(
            f"the output head is wrapped by {type(head).__name__}: a fused objective sees only its base "
            "weight. Leave lm_head out of target_modules."
        )
    return ActiveOffsets(adapter.token_ids, adapter(None, None, "head_table"), head.weight)


@contextlib.contextmanager
def bypass_head_hook(model: nn.Module) -> Iterator[None]:
    """Make the head return the base model's logits within this context; the caller applies the offsets.

    This is for objectives that replace `lm_head.forward` and get the tables from `active_offsets`, and for losses that
    are meant to leave the head out. It has no effect on a model without offsets.
    """
    owner = find_owner(model)
    hook = None if owner is None else find_hook(plain_layer(output_head(owner)), HeadHook, owner)
    if hook is None:
        yield
        return
    before, hook.bypassed = hook.bypassed, True
    try:
        yield
    finally:
        hook.bypassed = before


class OwnerHook:
    """A callable with a reference to its owner model, which is replaced by the copy when the owner is deep-copied."""

    def __init__(self, owner: nn.Module) -> None:
        self.owner = owner

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnerHook":
        copied = copy(self)
        # If only a part of the model is copied (PEFT copies single modules), the owner stays the same.
        copied.owner = memo.get(id(self.owner), self.owner)
        return copied


_Hook = TypeVar("_Hook", bound=OwnerHook)


class EmbeddingHook(OwnerHook):
    """Forward hook of the embedding that adds the offsets to the embeddings of the coordinate ids."""

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], embeds_BTH: Tensor
    ) -> Tensor | None:
        """Return the embeddings with offsets [..., H], or None to leave the output unchanged."""
        adapter = active_adapter(self.owner)
        if adapter is None:
            return None
        return cast(Tensor, adapter(_first_input(args, kwargs), embeds_BTH, "embed", embedding_scale(module)))


class HeadHook(OwnerHook):
    """Forward hook of the head that adds the offsets to the logits of the coordinate ids, unless bypassed."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__(owner)
        self.bypassed = False

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], logits_BTV: Tensor
    ) -> Tensor | None:
        """Return the logits with offsets [..., V], or None to leave the output unchanged."""
        adapter = None if self.bypassed else active_adapter(self.owner)
        moved_BTV = None if adapter is None else adapter(_first_input(args, kwargs), logits_BTV, "head")
        if not torch.compiler.is_compiling():
            _proof(self.owner).head_called(moved_BTV)
        return moved_BTV


class PlacementCheck(OwnerHook):
    """Forward pre-hook on the model's body, since PEFT calls the owner's `forward` directly, without its hooks."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Call `check_placement`, except while torch compiles."""
        if not torch.compiler.is_compiling():
            check_placement(self.owner)
            _proof(self.owner).begin()


class BodyHook(OwnerHook):
    """Forward hook of the model's body: from now on the head is to be called."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Watch the body's hidden states, unless the offsets are disabled or the caller adds them."""
        if torch.compiler.is_compiling() or module is self.owner or active_adapter(self.owner) is None:
            return
        head = output_head(self.owner)
        hook = find_hook(plain_layer(head), HeadHook, self.owner)
        hidden_BTH = output[0] if isinstance(output, tuple) else getattr(output, "last_hidden_state", None)
        if isinstance(hidden_BTH, Tensor) and hook is not None and not hook.bypassed:
            _proof(self.owner).body_returned(hidden_BTH)


class HeadLookup(OwnerHook):
    """Replacement of the owner's `get_output_embeddings`, for code that multiplies by the head's weight itself.

    Between the body's forward pass and the head's it returns the head with moved rows, which TRL's losses read there;
    otherwise the head.

    Attributes:
        proof: that losses come from the head
    """

    def __init__(self, owner: nn.Module) -> None:
        super().__init__(owner)
        self.proof = HeadProof()

    def __deepcopy__(self, memo: dict[int, Any]) -> "HeadLookup":
        copied = cast(HeadLookup, super().__deepcopy__(memo))
        copied.proof = HeadProof()
        return copied

    def __call__(self) -> Any:
        """Return the head, or a stand-in with the same interface whose weight [V, H] has moved rows."""
        head = output_head(self.owner)
        adapter = active_adapter(self.owner)
        if not self.proof.awaits_head or adapter is None or has_lora(head):
            return head
        return self.proof.moved_head(lambda: MovedHead(head, adapter.token_ids, adapter(None, None, "head_table")))


class SaveGuard(OwnerHook):
    """Replacement of the owner's `save_pretrained`, which would write offsets under keys that no loader reads."""

    def __call__(self, save_directory: Any, **kwargs: Any) -> Any:
        """Save a state dict without offsets.

        Raises:
            ValueError: if no state dict is given, or it contains offsets
        """
        state_dict = kwargs.get("state_dict")
        if state_dict is None or any(MODULE_NAME in key for key in state_dict):
            raise ValueError(
                f"save_pretrained({str(save_directory)!r}) would write {MODULE_NAME} as keys that no loader "
                "reads and lose the offsets. Call bake_offsets(model) to write them into the vocabulary "
                "first; to save an adapter, call save_pretrained of the PeftModel."
            )
        kind: Any = type(self.owner)
        return kind.save_pretrained(self.owner, save_directory, **kwargs)


def find_owner(model: nn.Module) -> Any:
    """Return the transformers model with the offsets inside `model` (PEFT, DDP, DeepSpeed, compiled), or None."""
    return next((module for module in model.modules() if MODULE_NAME in module._modules), None)


def output_head(owner: nn.Module) -> Any:
    """Return the head as the model's class finds it, never with moved rows."""
    kind: Any = type(owner)
    return kind.get_output_embeddings(owner)


def active_adapter(owner: nn.Module) -> Any:
    """Return the `CoordOffsetAdapter`, or PEFT's wrapper of it; None while PEFT has it disabled or inactive."""
    module = owner._modules.get(MODULE_NAME)
    return None if module is not None and is_wrapped(module) and active_copy(module) is None else module


def find_hook(layer: nn.Module, kind: type[_Hook], owner: nn.Module) -> _Hook | None:
    """Return the owner's hook on this layer, or None."""
    hooks: tuple[Any, ...] = (*layer._forward_hooks.values(), *layer._forward_pre_hooks.values())
    return next((hook for hook in hooks if isinstance(hook, kind) and hook.owner is owner), None)


def attach_hooks(owner: Any) -> int:
    """Register all missing hooks, freeze the base rows and return the number of missing hooks."""
    embedding, head = plain_layer(owner.get_input_embeddings()), plain_layer(output_head(owner))
    body = owner.base_model
    attached = 0
    for layer, kind in ((embedding, EmbeddingHook), (head, HeadHook)):
        layer.weight.requires_grad_(False)
        if find_hook(layer, kind, owner) is None:
            layer.register_forward_hook(kind(owner), with_kwargs=True)
            attached += 1
    if find_hook(body, PlacementCheck, owner) is None:
        body.register_forward_pre_hook(PlacementCheck(owner))
        body.register_forward_hook(BodyHook(owner))
        attached += 1
    owner.save_pretrained = SaveGuard(owner)
    owner.get_output_embeddings = HeadLookup(owner)
    return attached


def detach_hooks(owner: nn.Module) -> None:
    """Remove all hooks of this owner."""
    for module in owner.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks):
            ours = [key for key, hook in hooks.items() if isinstance(hook, OwnerHook) and hook.owner is owner]
            for key in ours:
                del hooks[key]
                module._forward_hooks_with_kwargs.pop(key, None)
    for name in ("save_pretrained", "get_output_embeddings"):
        owner.__dict__.pop(name, None)


def check_placement(owner: nn.Module) -> None:
    """Check that the offsets of this owner are added correctly and trained.

    Raises:
        ValueError: if a hook is missing, the head is not called, DoRA is on embedding or head, or the offsets
            are not among the modules that PEFT trains
    """
    for name, layer, kind in (
        ("input embedding", owner.get_input_embeddings(), EmbeddingHook),
        ("output head", output_head(owner), HeadHook),
    ):
        if has_dora(layer):
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
            f"offsets would be ignored: {way_out(package)}, or train without coordinate offsets."
        )
    check_adapters(owner)


def _proof(owner: nn.Module) -> HeadProof:
    lookup: HeadLookup = owner.__dict__["get_output_embeddings"]
    return lookup.proof


def _first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    first: Tensor = args[0] if args else next(iter(kwargs.values()))
    return first
