"""All uses of private interfaces of PEFT and transformers, and the PEFT configuration of the offsets.

PEFT restores `modules_to_save` only if the module exists, and silently drops the tensors otherwise. Only for
`trainable_token_indices` does it raise a `ValueError` if a name does not exist, so adapters with offsets list
`OffsetGuard` there. On a base with installed tables the name resolves to a wrapper of the class that PEFT expects; PEFT
then registers the adapter with it instead of creating trainable tokens. This creates no parameter, which DDP would wait
for, and no tensor in the checkpoint.

No other file of the package uses a private name of the two libraries:

| name                                    | why                                 | without it                        |
|-----------------------------------------|-------------------------------------|-----------------------------------|
| `peft.tuners.tuners_utils`              |                                     |                                   |
| - `BaseTunerLayer.get_base_layer`       | finds the layer below LoRA          | hooks would be on the wrapper     |
| - `lora_magnitude_vector` of its layers | recognises DoRA                     | DoRA would be merged wrongly      |
| `peft.utils.ModulesToSaveWrapper`       | PEFT's copies of the tables         | adapters could not be saved and   |
| - `modules_to_save`, `original_module`  | the copy of each adapter            | switched with their offsets       |
| - `active_adapters`, `disable_adapters` | which copy is in use                | disabling would keep the offsets  |
| `peft.utils.other`                      |                                     |                                   |
| - `AuxiliaryTrainingWrapper`            | recognises rows that PEFT trains    | rows would be trained twice       |
| - `TrainableTokensWrapper`, what        | PEFT looks for this class behind    | plain PEFT would drop the offsets |
|   `OffsetGuard` overrides of it         | `trainable_token_indices`           | on an unprepared base             |
| `peft_config` of a model                | the configurations of its adapters  | a forgotten `modules_to_save`     |
|                                         |                                     | would pass unnoticed              |
| `token_adapter.trainable_tokens_delta`  | key of the rows in a vanilla file   | no `save_as_trainable_tokens`     |
| `peft.helpers`                          |                                     |                                   |
| - `disable_input_dtype_casting`         | leaves out casts of LoRA's inputs   | autocast would undo each of them  |
| `peft.utils.hotswap`                    |                                     |                                   |
| - `hotswap_adapter_from_state_dict`     | replaced by `_swap_lora_alone`      | a bare `KeyError`, or old offsets |
|                                         |                                     | beside the new LoRA in silence    |
| `transformers.integrations.peft`        |                                     |                                   |
| - `PeftAdapterMixin.load_adapter`       | replaced by `_load_lora_alone`      | transformers before 5.18 would    |
|                                         |                                     | leave offsets out with a report   |
| `embed_scale` of an embedding           | factor of its rows in Gemma         | offsets would be added unscaled   |
| `transformers.integrations.deepspeed`   |                                     |                                   |
| - `deepspeed_config`                    | tells whether DeepSpeed keeps a     | `dtype="auto"` would always mean  |
|                                         | float32 master                      | float32                           |
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast

import torch
import transformers
from peft import PeftConfig, PeftModel
from peft.helpers import disable_input_dtype_casting
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper, hotswap
from peft.utils.other import AuxiliaryTrainingWrapper, TrainableTokensWrapper
from torch import nn
from transformers.integrations.peft import PeftAdapterMixin

from coord_adapter.format import GUARD_NAME, MODULE_NAME, offset_part
from coord_codec import InputError

GUARD_ENTRY = {GUARD_NAME: [0]}
"""The guard's entry in `trainable_token_indices`."""

VOCABULARY_LAYERS = ("model.language_model.embed_tokens", "lm_head")
"""Names of the vocabulary layers in an adapter's configuration."""

TOKEN_ROWS_KEY = "base_model.model.{}.token_adapter.trainable_tokens_delta"
"""Name of a layer's trained rows in a vanilla PEFT adapter."""


@contextmanager
def without_input_casts(model: Any, autocast: bool) -> Iterator[None]:
    """Let LoRA layers take activations as they are, forward and backward, within this context.

    The factors are in float32, so PEFT casts the input of each layer to float32, and autocast casts it back for the
    product: the values are the same without, and a step takes less time and memory. DoRA computes norms in the dtype of
    the input, so its casts stay.

    Args:
        model: of PEFT or not
        autocast: whether forward passes are under autocast

    Example:
        >>> import torch
        >>> from peft import LoraConfig, get_peft_model
        >>> model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(4, 4)), LoraConfig(target_modules=["0"]))
        >>> with without_input_casts(model, autocast=True):
        ...     model.base_model.model[0].cast_input_dtype_enabled
        False
    """
    configs = getattr(model, "peft_config", None)
    kinds = (
        {(c.peft_type, getattr(c, "use_dora", False)) for c in configs.values()} if isinstance(configs, dict) else ()
    )
    with disable_input_dtype_casting(model, active=autocast and kinds == {("LORA", False)}):
        yield


def with_offset_modules(arguments: Mapping[str, Any] | PeftConfig) -> Any:
    """Return a copy of a PEFT configuration, or of its keyword arguments, that trains and saves the offsets.

    Adds `coord_offset_adapter` to `modules_to_save`, and the guard that makes plain PEFT refuse a base without tables.

    Raises:
        ValueError: see `check_peft_config` and `add_guard`

    Example:
        >>> with_offset_modules({"r": 8})  # doctest: +NORMALIZE_WHITESPACE
        {'r': 8, 'modules_to_save': ['coord_offset_adapter'],
         'trainable_token_indices': {'needs_load_adapter_of_coord_adapter__coord_offset_guard': [0]}}
    """
    check_peft_config(arguments)
    if isinstance(arguments, PeftConfig):
        config = copy.deepcopy(arguments)
        config.modules_to_save = _with_name(config.modules_to_save)
        add_guard(config)
        return config
    return {
        **arguments,
        "modules_to_save": _with_name(arguments.get("modules_to_save")),
        "trainable_token_indices": {**(arguments.get("trainable_token_indices") or {}), **GUARD_ENTRY},
    }


def check_peft_config(arguments: Mapping[str, Any] | PeftConfig, *, use_liger_kernel: bool = False) -> None:
    """Refuse settings that do not work together with coordinate offsets.

    Args:
        arguments: keyword arguments of a PEFT configuration, or the configuration
        use_liger_kernel: the trainer's option for Liger's fused loss

    Raises:
        ValueError: if embedding or head are in `modules_to_save` or `trainable_token_indices`, or have DoRA, or Liger
            is used
    """
    get = arguments.get if isinstance(arguments, Mapping) else lambda name: getattr(arguments, name, None)
    if use_liger_kernel:
        raise ValueError(
            "use_liger_kernel computes the loss from lm_head.weight and would ignore the coordinate "
            "offsets: set it to false, or coord_offset.enabled to false."
        )
    saved_layer = _matching_layer(get("modules_to_save"))
    if saved_layer:
        raise ValueError(
            f"modules_to_save trains all of {saved_layer}, coordinate offsets train its rows: remove it there, or "
            "set coord_offset.enabled to false."
        )
    indices = get("trainable_token_indices") or {}
    if not isinstance(indices, Mapping) or _matching_layer(indices):
        raise ValueError(
            f"trainable_token_indices ({_matching_layer(indices) or 'a list, which means embed_tokens'}) and "
            "coordinate offsets both train vocabulary rows: use one of the two."
        )
    dora_layer = _matching_layer(get("target_modules"), get("exclude_modules")) if get("use_dora") else None
    if dora_layer:
        raise ValueError(
            f"target_modules applies DoRA to {dora_layer}, which PEFT merges wrongly: leave {dora_layer} out of "
            "target_modules, or set use_dora to false."
        )


def is_wrapped(module: nn.Module) -> bool:
    """Return whether a module is a PEFT model, or PEFT's wrapper with a copy of a module for each adapter."""
    return isinstance(module, (PeftModel, ModulesToSaveWrapper))


def has_adapters(model: nn.Module) -> bool:
    """Return whether PEFT wraps a model or has added adapters to it."""
    return isinstance(model, PeftModel) or bool(getattr(model, "peft_config", None))


def active_copy(module: Any) -> tuple[str, Any] | None:
    """Return the name of the active adapter and its copy of a module that PEFT wraps.

    The result is None while adapters are disabled, or if the active adapter has no copy.
    """
    names = module.active_adapters
    if module.disable_adapters or not names or names[0] not in module.modules_to_save:
        return None
    return names[0], module.modules_to_save[names[0]]


def plain_layer(layer: nn.Module) -> nn.Module:
    """Return the embedding or linear layer inside PEFT's wrappers, to which the hook is attached.

    Raises:
        ValueError: if `trainable_token_indices` trains the layer's rows
    """
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


def embedding_scale(layer: nn.Module) -> torch.Tensor | None:
    """Return the factor [] by which an embedding multiplies its rows, as Gemma's do; None without one."""
    scale, weight = getattr(layer, "embed_scale", None), cast(torch.Tensor, layer.weight)
    return None if scale is None else torch.as_tensor(scale).to(weight)


def has_lora(layer: nn.Module) -> bool:
    """Return whether a layer has LoRA (or another tuner), so that its weight alone does not determine its output."""
    return isinstance(layer, BaseTunerLayer)


def has_dora(layer: nn.Module) -> bool:
    """Return whether a layer has DoRA."""
    return bool(getattr(layer, "lora_magnitude_vector", None))


def deepspeed_keeps_master() -> bool:
    """Return whether DeepSpeed is configured for half precision, so that its optimizer keeps float32 master copies."""
    from transformers.integrations.deepspeed import deepspeed_config

    config = deepspeed_config()
    return bool(config) and any(config.get(key, {}).get("enabled") is True for key in ("bf16", "fp16"))


def check_adapters(owner: nn.Module) -> None:
    """Add the guard to the configurations of adapters with offsets.

    Raises:
        ValueError: if an adapter cannot have the guard, or a model in training has no adapter with offsets, so that
            they would be frozen and not saved
    """
    configs = getattr(owner, "peft_config", None)
    if not configs:
        return
    module = owner._modules.get(MODULE_NAME)
    if isinstance(module, ModulesToSaveWrapper):
        with_offsets = {name for name in module.modules_to_save if name in configs}
        for name in with_offsets:
            add_guard(configs[name])
        guard: Any = owner._modules[GUARD_NAME]
        guard.follow(module.active_adapters, with_offsets)
    elif module is not None and owner.training and torch.is_grad_enabled():
        raise ValueError(
            f"the PEFT adapter(s) {sorted(configs)} do not list {MODULE_NAME} in modules_to_save: the "
            "coordinate offsets would be frozen and not saved. Build the configuration with "
            "with_offset_modules(...)."
        )


def add_guard(config: PeftConfig) -> None:
    """Add the guard to an adapter's configuration in place, so that it is saved with the adapter.

    Raises:
        ValueError: if the PEFT method has no `trainable_token_indices`: all but LoRA and AdaLoRA
    """
    if not hasattr(config, "trainable_token_indices"):
        raise ValueError(
            f"{type(config).__name__} has no trainable_token_indices, so plain PEFT could not refuse a base without "
            "coordinate offsets: train them with LoRA."
        )
    config.trainable_token_indices = {**(config.trainable_token_indices or {}), **GUARD_ENTRY}


class OffsetGuard(TrainableTokensWrapper):
    """An empty module, without parameters and tensors, that implements the interface which PEFT expects."""

    adapter_layer_names: tuple[str, ...] = ()
    other_param_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        # The parent's `__init__` would wrap an embedding and create parameters.
        nn.Module.__init__(self)
        self._active_adapter: list[str] = []
        self._disable_adapters = False
        self._adapters: set[str] = set()

    def follow(self, active: Iterable[str], with_offsets: set[str]) -> None:
        """Record the active adapters and the adapters with offsets."""
        self._active_adapter = list(active)
        self._adapters |= with_offsets

    @property
    def original_module(self) -> nn.Module:
        """The guard itself, since it wraps no module; so unloading leaves it in place."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Look up a name in this module only; the parent would delegate to a wrapped module."""
        return nn.Module.__getattr__(self, name)

    def update(self, active_adapter: str, **kwargs: Any) -> None:
        """Register an adapter."""
        self._adapters.add(active_adapter)

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        """Record which adapter PEFT activates."""
        self._active_adapter = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)

    def enable_adapters(self, enabled: bool) -> None:
        """Record whether PEFT has adapters enabled."""
        self._disable_adapters = not enabled

    def check_set_adapter(self, adapter_name: str | list[str]) -> str | None:
        """Return the first adapter of the list that is registered here, or None."""
        names = [adapter_name] if isinstance(adapter_name, str) else adapter_name
        return next((name for name in names if name in self._adapters), None)

    def delete_adapter(self, adapter_name: str, new_active_adapters: list[str] | None) -> None:
        """Remove an adapter."""
        self._adapters.discard(adapter_name)
        self._active_adapter = [name for name in new_active_adapters or [] if name in self._adapters]

    def adapter_state_dict(self, adapter_name: str, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return no tensors for the checkpoint; PEFT calls this when it saves."""
        return {}

    def adapter_state_dict_load_map(self, adapter_name: str) -> dict[str, str]:
        """Return no tensors to load."""
        return {}

    def unload_and_optionally_merge_module(
        self, merge: bool, safe_merge: bool, adapter_names: list[str] | None
    ) -> nn.Module:
        """Return the guard, so that it stays in place until `bake_offsets` removes it.

        Raises:
            ValueError: if other adapters than the active ones are merged: PEFT would keep the active ones' offsets
        """
        if merge and adapter_names and self._active_adapter and list(adapter_names) != self._active_adapter:
            raise ValueError(
                f"merge_and_unload(adapter_names={list(adapter_names)}) would keep the coordinate offsets of "
                f"{self._active_adapter}, the active adapter: call set_adapter({adapter_names[0]!r}) first and "
                "merge_and_unload() without names. Nothing was merged."
            )
        return self

    def _get_available_adapters(self) -> set[str]:
        return set(self._adapters)


_HOTSWAP_OF_PEFT = hotswap.hotswap_adapter_from_state_dict


@wraps(_HOTSWAP_OF_PEFT)
def _swap_lora_alone(model: Any, state_dict: Mapping[str, Any], adapter_name: str, *rest: Any, **named: Any) -> None:
    tables = [module for name, module in model.named_modules() if name.rpartition(".")[2] == MODULE_NAME]
    here = any(adapter_name in getattr(wrapper, "modules_to_save", ()) for wrapper in tables)
    if here or any(offset_part(name) is not None for name in state_dict):
        raise InputError(
            f"hotswap_adapter swaps LoRA alone, and the {'model' if here else 'new adapter'} has coordinate offsets: "
            f"use model.load_adapter(PATH, NAME), set_adapter(NAME) and delete_adapter({adapter_name!r}) instead"
        )
    _HOTSWAP_OF_PEFT(model, state_dict, adapter_name, *rest, **named)


_LOAD_OF_TRANSFORMERS = PeftAdapterMixin.load_adapter


@wraps(_LOAD_OF_TRANSFORMERS)
def _load_lora_alone(model: Any, *args: Any, **named: Any) -> Any:
    before = {*getattr(model, "peft_config", ())}
    loaded = _LOAD_OF_TRANSFORMERS(model, *args, **named)
    for name in model.peft_config.keys() - before:
        if MODULE_NAME in (model.peft_config[name].modules_to_save or ()):
            raise InputError(
                f"model.load_adapter of transformers {transformers.__version__} loads LoRA alone, and the adapter has "
                "coordinate offsets: use coord_adapter.load_adapter(BASE, FOLDER), or transformers >= 5.18"
            )
    return loaded


def refuse_partial_loads() -> None:
    """Put checks around functions that call nothing of ours; a second call changes nothing."""
    hotswap.hotswap_adapter_from_state_dict = _swap_lora_alone
    major, minor = transformers.__version__.split(".")[:2]
    if (int(major), int(minor)) < (5, 18):  # later ones load `modules_to_save` too
        PeftAdapterMixin.load_adapter = _load_lora_alone


def _with_name(modules: Iterable[str] | None) -> list[str]:
    return [*(name for name in modules or () if name != MODULE_NAME), MODULE_NAME]


def _matching_layer(patterns: str | Iterable[str] | None, excluded: str | Iterable[str] | None = None) -> str | None:
    """Return the first vocabulary layer that matches by PEFT's rules: a full-match pattern, or names by suffix."""
    layers = (layer for layer in VOCABULARY_LAYERS if _matches(patterns, layer) and not _matches(excluded, layer))
    return next(layers, None)


def _matches(patterns: str | Iterable[str] | None, layer: str) -> bool:
    if patterns is None or patterns == "all-linear":  # PEFT excludes the head from "all-linear"
        return False
    if isinstance(patterns, str):
        return re.fullmatch(patterns, layer) is not None
    return any(layer == name or layer.endswith(f".{name}") for name in map(str, patterns))
