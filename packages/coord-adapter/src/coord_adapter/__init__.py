"""Train only the coordinate rows of a frozen vocabulary, inside PEFT."""

from coord_adapter.active import ActiveOffsets, active_offsets, offset_parameters
from coord_adapter.bake import bake_offsets
from coord_adapter.config import CoordOffsetConfig, IdRange
from coord_adapter.hooks import bypass_head_hook
from coord_adapter.install import install_coord_offset_adapter, reattach_coord_offset_hooks
from coord_adapter.param_groups import build_param_groups, param_group_names, register_param_groups
from coord_adapter.peft_setup import check_peft_config, with_offset_modules
from coord_adapter.saved import SavedOffsets, load_adapter, read_offsets
from coord_adapter.tables import MODULE_NAME, CoordOffsetAdapter
from coord_adapter.trainable_tokens import save_as_trainable_tokens

__all__ = [
    "MODULE_NAME",
    "ActiveOffsets",
    "CoordOffsetAdapter",
    "CoordOffsetConfig",
    "IdRange",
    "SavedOffsets",
    "active_offsets",
    "bake_offsets",
    "build_param_groups",
    "bypass_head_hook",
    "check_peft_config",
    "install_coord_offset_adapter",
    "load_adapter",
    "offset_parameters",
    "param_group_names",
    "read_offsets",
    "reattach_coord_offset_hooks",
    "register_param_groups",
    "save_as_trainable_tokens",
    "with_offset_modules",
]
