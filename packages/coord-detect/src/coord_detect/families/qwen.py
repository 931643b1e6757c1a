"""The rows of Qwen's vision-language families."""

from dataclasses import replace
from types import MappingProxyType

from coord_detect.families.family import Family

_EMPTY_THOUGHT = "<think>\n\n</think>\n\n"
_SYSTEM = "You are a helpful assistant."
_GATED_DELTA = MappingProxyType(
    {
        "packing": "its gated-delta layers would carry their state from one sample of a row into the next; set "
        "data.packing=false",
        "speed": "the state of its gated-delta layers cannot go back to before a rejected draft",
    }
)
_QWEN3 = Family("Qwen3-VL", "qwen3_vl", swift_model="qwen3_vl", swift_template="qwen3_vl", sizes="2B, 4B, 8B, 32B")
_QWEN3_5 = Family(
    "Qwen3.5",
    "qwen3_5",
    swift_model="qwen3_5",
    swift_template="qwen3_5",
    sizes="0.8B, 2B, 4B, 9B, 27B",
    empty_thought=_EMPTY_THOUGHT,
    cannot=_GATED_DELTA,
)
_QWEN2_5 = Family(
    "Qwen2.5-VL",
    "qwen2_5_vl",
    swift_model="qwen2_5_vl",
    swift_template="qwen2_5_vl",
    sizes="3B, 7B, 32B, 72B",
    patch_size=14,
    system=_SYSTEM,
)


_QWEN2 = replace(
    _QWEN2_5,
    name="Qwen2-VL",
    model_type="qwen2_vl",
    swift_model="qwen2_vl",
    swift_template="qwen2_vl",
    sizes="2B, 7B, 72B",
)


def _experts(dense: Family, sizes: str) -> Family:
    """Return the record of the mixture-of-experts models of a family."""
    kind = f"{dense.model_type}_moe"
    name = f"{dense.name}-MoE"
    return replace(dense, name=name, model_type=kind, swift_model=kind, shared_template=dense.template, sizes=sizes)


ROWS = (
    _QWEN3,
    _experts(_QWEN3, "30B-A3B, 235B-A22B"),
    _QWEN3_5,
    _experts(_QWEN3_5, "35B-A3B and larger"),
    _QWEN2_5,
    _QWEN2,
)
