"""Checks the `training:` section against the arguments of ms-swift's SFT that are forwarded, `swift_arguments.tsv`.

A row holds the `names` of arguments that are alike: their `type` as in ms-swift (`?` if null is allowed), `values`
(`a, b` for choices, `1..` and `0..1` for ranges that include their ends, `>0` and `..<1` for ranges that do not, `or`
for an exception), `needs`, the setting without which they have no effect, and what they require to `act` besides a
CPU. All others are in `refused_arguments.tsv`. Tests compare names, types and choices with the installed ms-swift.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coord_codec.files import read_json
from coord_detect.settings.rules import Rule
from coord_detect.settings.words import did_you_mean, yaml_word
from coord_trainer.config.refused_arguments import refusal
from coord_trainer.config.tables import read_table

DEEPSPEED_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")
"""Names of ms-swift's DeepSpeed configurations."""

SCHEDULER_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "cosine": ("num_cycles",),
    "cosine_with_restarts": ("num_cycles",),
    "polynomial": ("lr_end", "power"),
    "inverse_sqrt": ("timescale",),
    "cosine_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"),
    "warmup_stable_decay": (
        "num_decay_steps",
        "num_stable_steps",
        "warmup_type",
        "decay_type",
        "min_lr_ratio",
        "num_cycles",
    ),
}
"""The keywords that `lr_scheduler_kwargs` may hold for each scheduler; schedulers that are not listed take none."""

_SCHEDULER_NEEDS = {
    "cosine_with_min_lr": ("min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("min_lr", "min_lr_rate"),
    "warmup_stable_decay": ("num_decay_steps",),
}
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
}
_DEFAULTS = {"tuner_type": "full", "lr_scheduler_type": "cosine"}
_MUON_NEEDS: dict[str, tuple[str | None, ...]] = {
    "tuner_type": ("full",),
    "optim": ("adamw_torch", "adamw_torch_fused"),
    "deepspeed": (None,),
}
_SIZE = re.compile(r"\d+(\.\d+)?([KMGT]i?B)")


@dataclass(frozen=True)
class SwiftArgument:
    """An argument that is passed to ms-swift and takes effect: a row of the table, see above."""

    name: str
    type: str
    values: str
    needs: str
    acts: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values, if they are listed."""
        is_range = ".." in self.values or self.values.startswith(">")
        return tuple(self.values.split(", ")) if self.values and not is_range else ()

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        kinds = [_WORDS[kind] for kind in self.type.rstrip("?").split("|") if kind != "object"]
        if self.choices:
            return f"one of {self.values}" + (" (or several)" if "list" in self.type else "")
        return " or ".join(kinds) + (f" ({self.values})" if self.values else "")

    def read(self, value: Any) -> Any:
        """Convert `value` to the argument's type; a `ValueError` if it has another, or is not allowed."""
        kinds = self.type.rstrip("?").split("|")
        if kinds == ["list"] and isinstance(value, str):
            value = [value]
        if value is False and "no" in self.choices:
            value = "no"  # YAML reads `no` as false
        if isinstance(value, bool) and {str(value).lower()} <= set(self.choices):
            value = str(value).lower()
        if kinds[0] in ("int", "float"):
            value = _number(value, whole="float" not in kinds)
        if not any(_is(value, kind) for kind in kinds) or not self._allows(value):
            hint = yaml_word(value, is_text="str" in kinds and not self.choices)
            raise ValueError(f"training.{self.name}: expected {self.expected}, found {value!r}{hint}")
        return value

    def _allows(self, value: Any) -> bool:
        if self.choices:
            return all(str(item) in self.choices for item in (value if isinstance(value, list) else [value]))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not self.values:
            return True
        span, _, exception = self.values.partition(" or ")
        if exception and value == float(exception):
            return True
        if span.startswith(">"):
            return value > float(span[1:])
        lowest, _, highest = span.partition("..")
        low_enough = not highest or (value < float(highest[1:]) if highest[0] == "<" else value <= float(highest))
        return value >= float(lowest) and low_enough


@cache
def argument_table() -> Mapping[str, SwiftArgument]:
    """Return every forwarded argument of ms-swift's SFT by name."""
    rows = read_table("swift_arguments.tsv")
    return {name: SwiftArgument(name, *rest) for names, *rest in rows for name in names.split()}


def check_training(given: Mapping[str, Any], *, offsets: bool = False) -> dict[str, Any]:
    """Return `training:` with every value in its argument's type; null leaves a setting at its default.

    `offsets` (`custom.coord_offset.enabled`) make LoRA the default.

    Raises:
        ValueError: an argument is unknown, owned, refused, of the wrong type, not an allowed value or without effect;
            one line for each.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in given.items():
        argument, reason = argument_table().get(name), refusal(name)
        if value is None and (argument or reason):
            continue
        if argument is None:
            unknown = f"is not an argument of ms-swift's SFT{did_you_mean(name, argument_table(), ELSEWHERE)}"
            problems.append(f"training.{name} {reason or unknown}")
            continue
        try:
            values[name] = argument.read(value)
        except ValueError as error:
            others = [
                other.name for other in argument_table().values() if isinstance(value, str) and value in other.choices
            ]
            problems.append(f"{error}{f'; that is a value of training.{others[0]}' if len(others) == 1 else ''}")
    problems = problems or _contradictions(values, _DEFAULTS | ({"tuner_type": "lora"} if offsets else {}))
    if problems:
        raise ValueError("\n".join(problems))
    return values


ELSEWHERE = {
    "train_batch_size": "per_device_train_batch_size",
    "grad_accum": "gradient_accumulation_steps",
    "scheduler": "lr_scheduler_type",
    "warmup": "warmup_steps",
    "wd": "weight_decay",
    "betas": "adam_beta1",
    "clip": "max_grad_norm",
    "grad_clip": "max_grad_norm",
    "alpha": "lora_alpha",
    "workers": "dataloader_num_workers",
    "num_workers": "dataloader_num_workers",
    "max_len": "max_length",
    "cutoff_len": "max_length",
}
"""Arguments by the names that they have in other libraries."""


def _contradictions(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Return a message for each setting without effect, and for each combination that would stop the run later."""
    problems = []
    settings = {**defaults, **values}
    for name, value in values.items():
        needed, _, wanted = argument_table()[name].needs.partition("=")
        current = settings.get(needed)
        if value not in (False, 0, "", [], {}) and needed and (current != wanted if wanted else not current):
            setting = f"training.{needed}: {wanted}" if wanted else f"training.{needed}"
            problems.append(
                f"training.{name} has no effect without {setting}, which is "
                f"{'not given' if current is None else current}; set both or neither"
            )
    optimizer = values.get("optimizer")
    if optimizer is not None and not optimizer.startswith("multimodal"):
        problems += [
            f"training.{name} has no effect with training.optimizer: {optimizer}; set it to multimodal, or leave one "
            "of the two out"
            for name in ("vit_lr", "aligner_lr")
            if name in values
        ]
    if optimizer == "muon":
        problems += [
            f"training.optimizer is muon but training.{name} is {settings[name]}: Muon updates complete matrices of "
            f"the model, and AdamW the rest; set training.{name}: {allowed[0] or 'null'}, or another training.optimizer"
            for name, allowed in _MUON_NEEDS.items()
            if settings.get(name, allowed[0]) not in allowed
        ]
    if values.get("warmup_ratio") and values.get("warmup_steps"):
        problems.append(
            f"training.warmup_ratio is {values['warmup_ratio']} and training.warmup_steps is "
            f"{values['warmup_steps']}: only one of them can take effect; leave one of the two out"
        )
    if "early_stop_interval" in values and values.get("eval_strategy") == "no":
        problems.append(
            "training.early_stop_interval is set but training.eval_strategy is no: early stopping needs an evaluation "
            "loss; change one of the two"
        )
    if "target_regex" in values and "target_modules" in values:
        problems.append(
            "training.target_modules has no effect with training.target_regex, which ms-swift uses instead; leave one "
            "of the two out"
        )
    if "quant_method" in values and "quant_bits" not in values:
        problems.append("training.quant_method has no effect without training.quant_bits: 4; set both or neither")
    if "quant_bits" in values and shards_weights(values.get("deepspeed")):
        problems.append(
            f"training.quant_bits is {values['quant_bits']} and training.deepspeed is {values['deepspeed']}: ZeRO "
            "stage 3 would shard weights in 4 bits, which was not tried; use stage 2"
        )
    size = values.get("max_shard_size")
    if size is not None and not _SIZE.fullmatch(size):
        problems.append(f"training.max_shard_size: expected a size such as 5GB or 500MB, found {size!r}")
    problems += _scheduler(settings)
    sharding = values.get("deepspeed")
    named = isinstance(sharding, str) and (sharding in DEEPSPEED_PRESETS or Path(sharding).is_file())
    if not (sharding is None or isinstance(sharding, dict) or named):
        problems.append(
            f"training.deepspeed: expected one of {', '.join(DEEPSPEED_PRESETS)}, a JSON file or a mapping, found "
            f"{sharding!r}"
        )
    return problems + _missing_packages(values)


def _scheduler(settings: Mapping[str, Any]) -> list[str]:
    name, keywords = settings["lr_scheduler_type"], settings.get("lr_scheduler_kwargs") or {}
    if isinstance(keywords, str):
        try:
            keywords = json.loads(keywords)
        except ValueError:
            keywords = None
    if not isinstance(keywords, dict):
        return [f"training.lr_scheduler_kwargs: expected a mapping, found {settings['lr_scheduler_kwargs']!r}"]
    allowed, needed = SCHEDULER_KEYWORDS.get(name, ()), _SCHEDULER_NEEDS.get(name, ())
    problems = [
        f"training.lr_scheduler_kwargs: {key} is not taken by training.lr_scheduler_type: {name}; it takes "
        f"{', '.join(allowed) or 'nothing'}"
        for key in keywords
        if key not in allowed
    ]
    if needed and not set(needed) & set(keywords):
        problems.append(
            f"training.lr_scheduler_type: {name} needs {' or '.join(needed)}; set it under training.lr_scheduler_kwargs"
        )
    return problems


def shards_weights(deepspeed: Any) -> bool:
    """Return whether `training.deepspeed`, a preset's name, a mapping or a JSON file, selects ZeRO stage 3."""
    if isinstance(deepspeed, str) and Path(deepspeed).is_file():
        deepspeed = read_json(deepspeed)
    if isinstance(deepspeed, dict):
        return (deepspeed.get("zero_optimization") or {}).get("stage") == 3
    return str(deepspeed).startswith("zero3")


def _missing_packages(values: Mapping[str, Any]) -> list[str]:
    required: list[tuple[str, Any, str]] = []
    packages = {"use_liger_kernel": "liger_kernel", "deepspeed": "deepspeed", "quant_method": "bitsandbytes"}
    for name, package in packages.items():
        if values.get(name):
            required.append((name, values[name], package))
    if re.search(r"8bit|32bit|bnb|paged", str(values.get("optim", ""))):
        required.append(("optim", values["optim"], "bitsandbytes"))
    required += [("report_to", item, item) for item in values.get("report_to", ()) if item != "none"]
    return [
        f"training.{name}: {value!r} needs the package {package}, which is not installed here"
        for name, value, package in required
        if find_spec(package) is None
    ]


def _number(value: Any, *, whole: bool) -> Any:
    """Convert a number that YAML reads as text (1e-4), or a whole one it reads as float (1e3); else return `value`."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", value, re.IGNORECASE):
        value = float(value)
    if whole and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is(value: Any, kind: str) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if kind == "list":
        return isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value)
    return isinstance(value, {"str": str, "dict": dict}.get(kind, ()))


def _vocabulary_with_dora(config: Any) -> bool:
    targets = config.training.get("target_modules") or []
    names = {str(name).rsplit(".", 1)[-1] for name in ([targets] if isinstance(targets, str) else targets)}
    return bool(config.training.get("use_dora")) and bool(names & {"lm_head", "embed_tokens"})


def trains_in_full(config: Any) -> bool:
    """Return whether all weights are trained, and no adapter."""
    return (config.training.get("tuner_type") or ("lora" if config.custom.coord_offset.enabled else "full")) == "full"


_PARTS = ("freeze_llm", "freeze_vit", "freeze_aligner")


def _nothing_is_trained(config: Any) -> bool:
    given = config.training
    named = [given.get(name) for name in ("trainable_parameters", "trainable_parameters_regex")]
    if not trains_in_full(config):
        named = [given.get("target_regex"), "all-linear" not in (given.get("target_modules") or ["all-linear"])]
    return all(given.get(name) for name in _PARTS) and not any(named)


TRAINING_RULES = (
    Rule(
        _vocabulary_with_dora,
        ("training.use_dora", "training.target_modules"),
        "DoRA on the vocabulary cannot be merged correctly; leave lm_head and embed_tokens out of target_modules "
        "(all-linear does), or train its rows with custom.coord_offset",
    ),
    Rule(
        lambda c: (c.training.get("max_steps") or 0) > 0 and "num_train_epochs" in c.training,
        ("training.max_steps", "training.num_train_epochs"),
        "only one of them can end training, and ms-swift would ignore the second; leave one of the two out",
    ),
    Rule(
        lambda c: c.model.dtype == "float16" and trains_in_full(c) and not c.training.get("deepspeed"),
        ("model.dtype", "training.tuner_type"),
        "weights in float16 cannot be updated, since small gradients vanish and scaled ones overflow; use bfloat16 or "
        "float32, LoRA (whose weights are in float32), or training.deepspeed, which keeps a float32 copy",
    ),
    Rule(
        _nothing_is_trained,
        tuple(f"training.{name}" for name in _PARTS),
        "nothing is left to train; leave one of them out",
    ),
)
"""Contradictions of the section `training` with others, and of the two settings that end training."""
