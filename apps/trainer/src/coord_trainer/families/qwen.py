"""The rows of Qwen's vision-language families."""

from dataclasses import replace
from types import MappingProxyType

from coord_trainer.families.family import Family

_EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
_SYSTEM = "You are a helpful assistant."
_GATED_DELTA = MappingProxyType(
    {
        "packing": "its gated-delta layers would carry their state from one sample of a row into the next; set "
        "data.packing=false",
        "speed": "the state of its gated-delta layers cannot go back to before a rejected draft",
    }
)
_QWEN3 = Family("Qwen3-VL", "qwen3_vl", swift_model="qwen3_vl", swift_template="qwen3_vl")
_QWEN3_5 = Family(
    "Qwen3.5",
    "qwen3_5",
    swift_model="qwen3_5",
    swift_template="qwen3_5",
    empty_thought=_EMPTY_THOUGHT,
    cannot=_GATED_DELTA,
)
_QWEN2_5 = Family(
    "Qwen2.5-VL", "qwen2_5_vl", swift_model="qwen2_5_vl", swift_template="qwen2_5_vl", patch_size=14, system=_SYSTEM
)


def _experts(dense: Family) -> Family:
    """Return the record of the mixture-of-experts models of a family."""
    kind = f"{dense.model_type}_moe"
    return replace(dense, name=f"{dense.name}-MoE", model_type=kind, swift_model=kind, shared_template=dense.template)


ROWS = (
    _QWEN3,
    _experts(_QWEN3),
    _QWEN3_5,
    _experts(_QWEN3_5),
    _QWEN2_5,
    replace(_QWEN2_5, name="Qwen2-VL", model_type="qwen2_vl", swift_model="qwen2_vl", swift_template="qwen2_vl"),
)
