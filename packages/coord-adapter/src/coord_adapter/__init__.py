"""Train only the coordinate rows of a frozen vocabulary, inside PEFT."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coord_adapter.format import MODULE_NAME, SavedOffsets, read_offsets
from coord_adapter.initial_rows import new_token_rows, smooth_rows, smooth_rows_2d
from coord_codec import InputError
from coord_codec.weights import weights_digest

if TYPE_CHECKING:
    from coord_adapter.config import CoordOffsetConfig, IdRange
    from coord_adapter.files import load_adapter, save_as_trainable_tokens
    from coord_adapter.hooks import ActiveOffsets, active_offsets, bypass_head_hook
    from coord_adapter.install import bake_offsets, install_coord_offset_adapter, reattach_coord_offset_hooks
    from coord_adapter.optimizer import build_param_groups, offset_parameters, param_group_names, register_param_groups
    from coord_adapter.peft import check_peft_config, with_offset_modules, without_input_casts
    from coord_adapter.tables import CoordOffsetAdapter

__all__ = [
    "MODULE_NAME",
    "ActiveOffsets",
    "CoordOffsetAdapter",
    "CoordOffsetConfig",
    "IdRange",
    "InputError",
    "SavedOffsets",
    "active_offsets",
    "bake_offsets",
    "build_param_groups",
    "bypass_head_hook",
    "check_peft_config",
    "install_coord_offset_adapter",
    "load_adapter",
    "new_token_rows",
    "offset_parameters",
    "param_group_names",
    "read_offsets",
    "reattach_coord_offset_hooks",
    "register_param_groups",
    "save_as_trainable_tokens",
    "smooth_rows",
    "smooth_rows_2d",
    "weights_digest",
    "with_offset_modules",
    "without_input_casts",
]

# peft and transformers take many seconds to import, torch and pydantic less: names are imported on first use.
_MODULES = {
    "config": ("CoordOffsetConfig", "IdRange"),
    "files": ("load_adapter", "save_as_trainable_tokens"),
    "hooks": ("ActiveOffsets", "active_offsets", "bypass_head_hook"),
    "install": ("bake_offsets", "install_coord_offset_adapter", "reattach_coord_offset_hooks"),
    "optimizer": ("build_param_groups", "offset_parameters", "param_group_names", "register_param_groups"),
    "peft": ("check_peft_config", "with_offset_modules", "without_input_casts"),
    "tables": ("CoordOffsetAdapter",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
