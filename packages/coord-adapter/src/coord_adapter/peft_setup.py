"""Tell PEFT about the offsets, and refuse the combinations that would go wrong without a word."""

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

from peft import PeftConfig

from coord_adapter.guard import GUARD_ENTRY, add_guard
from coord_adapter.tables import MODULE_NAME

VOCABULARY_LAYERS = ("model.language_model.embed_tokens", "lm_head")


def with_offset_modules(arguments: Mapping[str, Any] | PeftConfig) -> Any:
    """A copy of a PEFT configuration, or of the arguments for one, that trains and saves the offsets.

    Adds `coord_offset_adapter` to `modules_to_save` and the guard that makes plain PEFT refuse an unprepared
    base.

    Raises:
        ValueError: See `check_peft_config`.
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
        arguments: Keyword arguments of a PEFT configuration, or the configuration.
        use_liger_kernel: The trainer's switch for Liger's fused loss.

    Raises:
        ValueError: Embedding or head in `modules_to_save` or `trainable_token_indices`, DoRA on them, or
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


def _with_name(modules: Iterable[str] | None) -> list[str]:
    return [*(name for name in modules or () if name != MODULE_NAME), MODULE_NAME]


def _hit(patterns: str | Iterable[str] | None, excluded: str | Iterable[str] | None = None) -> str | None:
    """The first vocabulary layer that matches by PEFT's rules: a pattern as a whole, or names by suffix."""
    layers = (
        layer for layer in VOCABULARY_LAYERS if _matches(patterns, layer) and not _matches(excluded, layer)
    )
    return next(layers, None)


def _matches(patterns: str | Iterable[str] | None, layer: str) -> bool:
    if patterns is None or patterns == "all-linear":  # PEFT leaves the head out of "all-linear" by itself
        return False
    if isinstance(patterns, str):
        return re.fullmatch(patterns, layer) is not None
    return any(layer == name or layer.endswith(f".{name}") for name in map(str, patterns))
