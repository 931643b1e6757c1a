"""Everything of PEFT and transformers that is not their documented interface, and what PEFT is told of the offsets.

PEFT restores `modules_to_save` only where the module exists and drops the tensors without a word where it does not.
`trainable_token_indices` is the one entry of an adapter's configuration that PEFT treats as binding: a name it cannot
find is a `ValueError`. So adapters with offsets name `OffsetGuard` there. On a prepared base the name resolves to a
wrapper that already is of the class PEFT looks for; PEFT then asks it to register the adapter instead of creating
trainable tokens. Nothing is created: no parameter that DDP would wait for, no tensor in the checkpoint.

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
| `transformers.integrations.deepspeed`   |                                     |                                   |
| - `deepspeed_config`                    | tells whether DeepSpeed keeps a     | `dtype="auto"` would always mean  |
|                                         | float32 master                      | float32                           |
"""

import copy
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from peft import PeftConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from peft.utils.other import AuxiliaryTrainingWrapper, TrainableTokensWrapper
from torch import nn

from coord_adapter.format import GUARD_NAME, MODULE_NAME, is_guard

GUARD_ENTRY = {GUARD_NAME: [0]}
"""The guard's entry in `trainable_token_indices`."""

VOCABULARY_LAYERS = ("model.language_model.embed_tokens", "lm_head")
"""Names by which the configuration of an adapter could reach the vocabulary."""

TOKEN_ROWS_KEY = "base_model.model.{}.token_adapter.trainable_tokens_delta"
"""Name of a layer's trained rows in a vanilla PEFT adapter."""


def with_offset_modules(arguments: Mapping[str, Any] | PeftConfig) -> Any:
    """Return a copy of a PEFT configuration, or of the arguments for one, that trains and saves the offsets.

    Adds `coord_offset_adapter` to `modules_to_save` and the guard that makes plain PEFT refuse an unprepared
    base.

    Raises:
        ValueError: see `check_peft_config`.

    Example:
        >>> with_offset_modules({"r": 8})  # doctest: +NORMALIZE_WHITESPACE
        {'r': 8, 'modules_to_save': ['coord_offset_adapter'],
         'trainable_token_indices': {'needs_load_adapter_of_coord_adapter__coord_offset_guard': [0]}}
    """
    check_peft_config(arguments)
    if isinstance(arguments, PeftConfig):
        config = copy.deepcopy(arguments)
        config.modules_to_save = _with_name(config.modules_to_save)
        if not add_guard(config):
            _warn_unguarded(type(config).__name__)
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
        use_liger_kernel: the trainer's switch for Liger's fused loss

    Raises:
        ValueError: for embedding or head in `modules_to_save` or `trainable_token_indices`, DoRA on them, or
            Liger.
    """
    get = arguments.get if isinstance(arguments, Mapping) else lambda name: getattr(arguments, name, None)
    if use_liger_kernel:
        raise ValueError(
            "use_liger_kernel computes the loss from lm_head.weight and would ignore the coordinate "
            "offsets: set it to false, or coord_offset.enabled to false."
        )
    whole = _hit(get("modules_to_save"))
    if whole:
        raise ValueError(
            f"modules_to_save trains {whole} whole, coordinate offsets train its rows: remove it there, or "
            "set coord_offset.enabled to false."
        )
    indices = get("trainable_token_indices") or {}
    if not isinstance(indices, Mapping) or _hit(indices):
        raise ValueError(
            f"trainable_token_indices ({_hit(indices) or 'a list, which means embed_tokens'}) and "
            "coordinate offsets both train vocabulary rows: use one of the two."
        )
    dora = _hit(get("target_modules"), get("exclude_modules")) if get("use_dora") else None
    if dora:
        raise ValueError(
            f"target_modules applies DoRA to {dora}, which PEFT merges wrongly: leave {dora} out of "
            "target_modules, or set use_dora to false."
        )


def is_wrapped(module: nn.Module) -> bool:
    """Tell whether PEFT wraps a whole model, or holds copies of a module for its adapters."""
    return isinstance(module, (PeftModel, ModulesToSaveWrapper))


def has_adapters(model: nn.Module) -> bool:
    """Tell whether a model is wrapped by PEFT, or has had adapters put into it."""
    return isinstance(model, PeftModel) or bool(getattr(model, "peft_config", None))


def active_copy(module: Any) -> tuple[str, Any] | None:
    """Return the name of the active adapter and its copy of a module that PEFT wraps.

    None while adapters are disabled, or the active one has no copy.
    """
    names = module.active_adapters
    if module.disable_adapters or not names or names[0] not in module.modules_to_save:
        return None
    return names[0], module.modules_to_save[names[0]]


def plain_layer(layer: nn.Module) -> nn.Module:
    """Return the embedding or linear layer below PEFT's wrappers, the one that carries the hook.

    Raises:
        ValueError: if `trainable_token_indices` trains the layer's rows.
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


def has_lora(layer: nn.Module) -> bool:
    """Tell whether a layer carries LoRA (or another tuner), so that its weight alone is not the layer."""
    return isinstance(layer, BaseTunerLayer)


def has_dora(layer: nn.Module) -> bool:
    """Tell whether a layer carries DoRA."""
    return bool(getattr(layer, "lora_magnitude_vector", None))


def deepspeed_keeps_master() -> bool:
    """Tell whether a DeepSpeed run in half precision is set up, whose optimizer holds float32 copies."""
    from transformers.integrations.deepspeed import deepspeed_config

    config = deepspeed_config()
    return bool(config) and any(config.get(key, {}).get("enabled") is True for key in ("bf16", "fp16"))


def check_adapters(owner: nn.Module) -> None:
    """Add the guard to the adapters that have offsets; raise if none of a model in training has.

    Raises:
        ValueError: if the offsets would be frozen and not saved.
    """
    configs = getattr(owner, "peft_config", None)
    if not configs:
        return
    module = owner._modules.get(MODULE_NAME)
    if isinstance(module, ModulesToSaveWrapper):
        with_offsets = [name for name in module.modules_to_save if name in configs]
        guarded = {name for name in with_offsets if add_guard(configs[name])}
        guard: Any = owner._modules[GUARD_NAME]
        guard.follow(module.active_adapters, guarded, set(with_offsets) - guarded)
    elif module is not None and owner.training and torch.is_grad_enabled():
        raise ValueError(
            f"the PEFT adapter(s) {sorted(configs)} do not list {MODULE_NAME} in modules_to_save: the "
            "coordinate offsets would be frozen and not saved. Build the configuration with "
            "with_offset_modules(...)."
        )


def add_guard(config: PeftConfig) -> bool:
    """Name the guard in an adapter's configuration (in place), so that it is saved with the adapter.

    Returns:
        Whether it is there: PEFT methods without `trainable_token_indices` (all but LoRA and its kin) have nothing to
        bind to and stay as they are.
    """
    if not hasattr(config, "trainable_token_indices"):
        return False
    indices = config.trainable_token_indices or {}
    if not any(map(is_guard, indices)):
        config.trainable_token_indices = {**indices, **GUARD_ENTRY}
    return True


def _warn_unguarded(what: str) -> None:
    warnings.warn(
        f"{what} has no trainable_token_indices, by which plain PEFT would refuse a base without coordinate offsets: "
        "it loads the adapter without them and says nothing. Load it with coord_adapter.load_adapter, or train LoRA.",
        stacklevel=3,
    )


class OffsetGuard(TrainableTokensWrapper):
    """An empty module that answers PEFT's bookkeeping and holds neither parameter nor tensor."""

    adapter_layer_names: tuple[str, ...] = ()
    other_param_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        # Not the parent's: it would wrap an embedding and create parameters.
        nn.Module.__init__(self)
        self._active_adapter: list[str] = []
        self._disable_adapters = False
        self._adapters: set[str] = set()
        self._unguarded: set[str] = set()

    def follow(self, active: Iterable[str], guarded: set[str], unguarded: set[str]) -> None:
        """Learn which adapters have offsets, which are in use, and which cannot name the guard."""
        self._active_adapter, self._unguarded = list(active), unguarded
        self._adapters |= guarded

    @property
    def original_module(self) -> nn.Module:
        """The guard itself, which unloading leaves in place: there is no module behind it."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Look a name up without delegating to a wrapped module, as the parent does."""
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
        """Forget an adapter."""
        self._adapters.discard(adapter_name)
        self._active_adapter = [name for name in new_active_adapters or [] if name in self._adapters]

    def adapter_state_dict(self, adapter_name: str, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return nothing: the guard has no tensor in the checkpoint. PEFT calls this when it saves."""
        if adapter_name in self._unguarded:
            _warn_unguarded(f"the configuration of adapter {adapter_name!r}")
        return {}

    def adapter_state_dict_load_map(self, adapter_name: str) -> dict[str, str]:
        """Nothing is loaded."""
        return {}

    def unload_and_optionally_merge_module(
        self, merge: bool, safe_merge: bool, adapter_names: list[str] | None
    ) -> nn.Module:
        """Stay in place; `bake_offsets` takes the guard away.

        Raises:
            ValueError: if other adapters are merged than those in use: PEFT would leave the offsets of the latter.
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


def _with_name(modules: Iterable[str] | None) -> list[str]:
    return [*(name for name in modules or () if name != MODULE_NAME), MODULE_NAME]


def _hit(patterns: str | Iterable[str] | None, excluded: str | Iterable[str] | None = None) -> str | None:
    """The first vocabulary layer that matches by PEFT's rules: a pattern as a whole, or names by suffix."""
    layers = (layer for layer in VOCABULARY_LAYERS if _matches(patterns, layer) and not _matches(excluded, layer))
    return next(layers, None)


def _matches(patterns: str | Iterable[str] | None, layer: str) -> bool:
    if patterns is None or patterns == "all-linear":  # PEFT leaves the head out of "all-linear" by itself
        return False
    if isinstance(patterns, str):
        return re.fullmatch(patterns, layer) is not None
    return any(layer == name or layer.endswith(f".{name}") for name in map(str, patterns))
