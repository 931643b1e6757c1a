"""PEFT's adapter_config.json: the settings that decide how factors are merged, and what is refused."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from .checkpoint import read_json
from .errors import InputError

# What merging needs, and what only mattered while training or loading.
_READ = {
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "use_rslora",
    "use_dora",
    "fan_in_fan_out",
    "bias",
}
_READ |= {"lora_bias", "modules_to_save", "trainable_token_indices", "init_lora_weights", "peft_type"}
_INERT = {
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "task_type",
    "inference_mode",
    "peft_version",
}
_INERT |= {"target_modules", "exclude_modules", "lora_dropout", "layers_to_transform", "layers_pattern"}
_INERT |= {
    "runtime_config",
    "ensure_weight_tying",
    "eva_config",
    "loftq_config",
    "corda_config",
    "megatron_core",
}
_INERT |= {"lora_ga_config", "qalora_group_size", "ephemeral_gpu_offload"}

# Initialisations that leave the base's weights as they are; others (PiSSA, OLoRA, ...) subtract from them.
_PLAIN_INITS = (True, False, None, "gaussian", "eva", "orthogonal")

GUARD_MODULE = "coord_offset_guard"  # an entry by which plain PEFT refuses an unprepared base; no tokens


@dataclass(frozen=True)
class AdapterConfig:
    """The merging side of a LoRA configuration."""

    path: Path
    r: int
    lora_alpha: float
    rank_pattern: dict[str, int] = field(default_factory=dict)
    alpha_pattern: dict[str, float] = field(default_factory=dict)
    use_rslora: bool = False
    use_dora: bool = False
    fan_in_fan_out: bool = False
    lora_bias: bool = False
    modules_to_save: tuple[str, ...] = ()
    token_indices: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def rank(self, module: str) -> int:
        """The rank of a module's factors."""
        return _by_pattern(self.rank_pattern, module, self.r)

    def scale(self, module: str) -> float:
        """What the product of a module's factors is multiplied by."""
        alpha, rank = _by_pattern(self.alpha_pattern, module, self.lora_alpha), self.rank(module)
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    def is_saved(self, module: str) -> bool:
        """Whether a module is among `modules_to_save`, which PEFT matches by the end of the name."""
        return any(module.endswith(name) for name in self.modules_to_save)


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Read an adapter's configuration.

    Raises:
        InputError: naming the field, for anything that cannot be merged exactly.
    """
    path = folder / "adapter_config.json"
    content = read_json(path)
    if content.get("peft_type") != "LORA":
        raise InputError(f"{path}: peft_type: expected LORA, found {content.get('peft_type')!r}")
    if (init := content.get("init_lora_weights", True)) not in _PLAIN_INITS:
        raise InputError(
            f"{path}: init_lora_weights: {init!r} changes the base's weights when training starts, so the "
            "factors do not belong to this base; convert it (PEFT: path_initial_model_for_weight_conversion)"
        )
    for name, value in content.items():
        if name not in _READ | _INERT and value:
            raise InputError(f"{path}: {name}: {value!r} cannot be merged exactly into the weights")
    try:
        return _parse(path, content)
    except (KeyError, TypeError, ValueError, AttributeError, re.error) as error:
        raise InputError(f"{path}: not a complete LoRA configuration: {error!r}") from None


def _parse(path: Path, content: dict) -> AdapterConfig:
    tokens = content.get("trainable_token_indices") or {}
    if isinstance(tokens, list):
        tokens = {"embed_tokens": tokens}
    ranks = {re.compile(k).pattern: int(v) for k, v in (content.get("rank_pattern") or {}).items()}
    if min([int(content["r"]), *ranks.values()]) < 1:
        raise ValueError(f"rank of r {content['r']}, rank_pattern {ranks}: expected at least 1")
    if isinstance(saved := content.get("modules_to_save") or (), str):
        raise ValueError(f"modules_to_save {saved!r}: expected a list")
    return AdapterConfig(
        path=path,
        r=int(content["r"]),
        lora_alpha=float(content["lora_alpha"]),
        rank_pattern=ranks,
        alpha_pattern={
            re.compile(k).pattern: float(v) for k, v in (content.get("alpha_pattern") or {}).items()
        },
        use_rslora=bool(content.get("use_rslora")),
        use_dora=bool(content.get("use_dora")),
        fan_in_fan_out=bool(content.get("fan_in_fan_out")),
        lora_bias=bool(content.get("lora_bias")),
        modules_to_save=tuple(saved),
        token_indices={name: tuple(map(int, ids)) for name, ids in tokens.items() if name != GUARD_MODULE},
    )


def _by_pattern(patterns: dict, module: str, default):
    """PEFT's rule: the first pattern that matches the end of the module's name, at a dot."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default
