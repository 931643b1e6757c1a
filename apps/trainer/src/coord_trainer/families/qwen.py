"""The rows of Qwen's vision-language families."""

from types import MappingProxyType

from coord_trainer.families.family import Family

_EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
_SYSTEM = "You are a helpful assistant."
_CANNOT_PACK = MappingProxyType(
    {
        "packing": "its gated-delta layers would carry their state from one sample of a row into the next; set "
        "data.packing=false"
    }
)
ROWS = (
    Family("Qwen3-VL", "qwen3_vl", swift_model="qwen3_vl", swift_template="qwen3_vl"),
    Family(
        "Qwen3-VL-MoE",
        "qwen3_vl_moe",
        swift_model="qwen3_vl_moe",
        swift_template="qwen3_vl",
        shared_template="qwen3_vl_coord",
    ),
    Family(
        "Qwen3.5",
        "qwen3_5",
        swift_model="qwen3_5",
        swift_template="qwen3_5",
        empty_thought=_EMPTY_THOUGHT,
        cannot=_CANNOT_PACK,
    ),
    Family(
        "Qwen3.5-MoE",
        "qwen3_5_moe",
        swift_model="qwen3_5_moe",
        swift_template="qwen3_5",
        shared_template="qwen3_5_coord",
        empty_thought=_EMPTY_THOUGHT,
        cannot=_CANNOT_PACK,
    ),
    Family(
        "Qwen2.5-VL", "qwen2_5_vl", swift_model="qwen2_5_vl", swift_template="qwen2_5_vl", patch_size=14, system=_SYSTEM
    ),
    Family("Qwen2-VL", "qwen2_vl", swift_model="qwen2_vl", swift_template="qwen2_vl", patch_size=14, system=_SYSTEM),
)
