"""Reads a PEFT adapter folder: settings, low-rank factors by module, offset tables, and tensors that replace others."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt

from coord_adapter import weights_digest
from coord_adapter.format import GUARD_NAME, WEIGHTS_FILE, StoredOffsets, find_offsets, offset_part
from coord_codec.files import InputError
from coord_codec.records import validated
from coord_exporter.checkpoint.folder import sha256_of
from coord_exporter.checkpoint.read import (
    CARD_FILE,
    FLOATS,
    SafetensorsFile,
    TensorInfo,
    folder_name,
    read_object,
    read_safetensors,
)
from coord_exporter.checkpoint.recipe import first_not_finite, read_rows

_PREFIX = "base_model.model."

# Settings that merging uses, and those that matter only for training or loading.
_USED = "r lora_alpha rank_pattern alpha_pattern use_rslora use_dora bias lora_bias modules_to_save "
_USED += "trainable_token_indices init_lora_weights peft_type target_parameters"
_INERT = "auto_mapping base_model_name_or_path revision task_type inference_mode peft_version target_modules "
_INERT += "exclude_modules lora_dropout layers_to_transform layers_pattern runtime_config ensure_weight_tying "
_INERT += "eva_config loftq_config corda_config megatron_core lora_ga_config qalora_group_size ephemeral_gpu_offload"
_KNOWN = frozenset((_USED + " " + _INERT).split())

# Initialisations that do not change the base's weights; others (PiSSA, OLoRA, ...) subtract from them.
_PLAIN_INITS = (True, False, None, "gaussian", "eva", "orthogonal")

# Endings of PEFT's tensor names, and the corresponding fields of `Factors`.
_PARTS = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_B.bias": "bias",
    ".lora_embedding_A": "embedding_a",
    ".lora_embedding_B": "embedding_b",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
    ".token_adapter.trainable_tokens_delta": "token_rows",
}

# Files beside the adapter's that hold no weights of the model: the optimizer's state and the like.
_NO_WEIGHTS = re.compile(
    r"adapter_model\.bin|training_args\.bin|(optimizer|scheduler|scaler|rng_state|random_states)[\w-]*\.\w+"
)
_WEIGHT_FILES = {".safetensors", ".bin", ".pt", ".pth", ".ckpt"}

# Parts that PEFT's wrappers add to the name of a tensor of the base.
_WRAPPERS = re.compile(r"\.(base_layer|token_adapter|modules_to_save\.[^.]+)(?=\.)")


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a pattern, found {pattern!r:.80}: {error}") from None
    return pattern


def _token_lists(value: Any) -> Any:
    """Return lists of ids by name without that of the guard; a list alone is the embedding's."""
    named = {"embed_tokens": value} if isinstance(value, list) else value
    return {name: ids for name, ids in named.items() if name != GUARD_NAME} if isinstance(named, dict) else named


_Rank = Annotated[StrictInt, Field(ge=1)]
_Value = TypeVar("_Value", int, float)
_Number = Annotated[StrictFloat, Field(allow_inf_nan=False)]
_Pattern = Annotated[str, AfterValidator(_compiled)]
_TokenLists = Annotated[dict[str, tuple[StrictInt, ...]], BeforeValidator(_token_lists)]


@dataclass(frozen=True)
class LoraSettings:
    """The fields of adapter_config.json that determine the merge, under PEFT's names."""

    path: Path
    r: _Rank
    lora_alpha: _Number
    rank_pattern: dict[_Pattern, _Rank] = field(default_factory=dict)
    alpha_pattern: dict[_Pattern, _Number] = field(default_factory=dict)
    use_rslora: StrictBool = False
    use_dora: StrictBool = False
    bias: Literal["none", "all", "lora_only"] = "none"
    lora_bias: StrictBool = False
    modules_to_save: tuple[str, ...] = ()
    trainable_token_indices: _TokenLists = field(default_factory=dict)
    target_parameters: tuple[str, ...] = ()
    target_modules: str | tuple[str, ...] = ()
    exclude_modules: str | tuple[str, ...] = ()

    def targets(self, module: str) -> bool:
        """Whether PEFT adapts a linear layer of this name."""
        return _is_named(module, self.target_modules) and not _is_named(module, self.exclude_modules)

    def rank(self, module: str) -> int:
        """Return the rank of a module's factors."""
        return _by_pattern(self.rank_pattern, module, self.r)

    def scale(self, module: str) -> float:
        """Return the scale of the product of a module's factors."""
        alpha, rank = _by_pattern(self.alpha_pattern, module, self.lora_alpha), self.rank(module)
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    def is_saved(self, module: str) -> bool:
        """Whether a module is among `modules_to_save`, which PEFT matches by the end of the name."""
        return any(module.endswith(name) for name in self.modules_to_save)


@dataclass
class Factors:
    """The adapter's tensors of one module; see `steps.LoraStep` and `steps.RowsStep`."""

    a: TensorInfo | None = None
    b: TensorInfo | None = None
    bias: TensorInfo | None = None
    embedding_a: TensorInfo | None = None
    embedding_b: TensorInfo | None = None
    magnitude: TensorInfo | None = None
    token_rows: TensorInfo | None = None


@dataclass(frozen=True)
class Adapter:
    """A PEFT adapter folder, with its tensors sorted by their effect on the base.

    Attributes:
        folder: the adapter folder
        file: the weight file
        config: the settings
        factors: low-rank factors and trained rows by module name
        offsets: the coordinate offsets, if any
        saved: copies of `modules_to_save` by base tensor name, which replace the tensor of that module only
        rewritten: base tensors stored in the adapter (biases, resized embeddings) by base tensor name, which replace
            the stored tensor, including a tied one
    """

    folder: Path
    file: SafetensorsFile
    config: LoraSettings
    factors: dict[str, Factors]
    offsets: StoredOffsets[TensorInfo] | None
    saved: dict[str, TensorInfo] = field(default_factory=dict)
    rewritten: dict[str, TensorInfo] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return folder_name(self.folder)

    @property
    def card(self) -> dict[str, Any]:
        """Content of coordexp.json beside the weights, empty without such a file."""
        path = self.folder / CARD_FILE
        return read_object(path) if path.is_file() else {}

    def sources(self) -> dict[str, Any]:
        """Return the adapter's name and digests, for the record of an export."""
        files = {path.name: sha256_of(path) for path in (self.file.path, self.config.path)}
        return {"name": self.name, "weights": weights_digest(self.folder)} | files

    def fingerprint(self) -> str | None:
        """Return the fingerprint in the adapter's card or its offsets; an `InputError` if they differ."""
        card = self.card.get("fingerprint")
        offsets = self.offsets.fingerprint if self.offsets is not None else None
        if None not in (card, offsets) and card != offsets:
            raise InputError(
                f"{self.folder / CARD_FILE}: fingerprint: expected {offsets}, that of the adapter's offsets, found "
                f"{card}; does the card belong to another checkpoint?"
            )
        return offsets if card is None else str(card)


def open_adapter(folder: Path) -> Adapter:
    """Read an adapter folder, without keeping its weights in memory; values are only checked for NaN and infinity.

    Raises:
        InputError: for missing or damaged files, values that are not finite, or incomplete offset tables
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: expected an adapter folder, found {'a file' if folder.exists() else 'nothing'}")
    config = read_settings(folder / "adapter_config.json")
    path = folder / WEIGHTS_FILE
    if not path.exists():
        raise InputError(f"{path}: missing; save the adapter as safetensors (pickles are not read)")
    for other in sorted(folder.iterdir()):
        if other.suffix in _WEIGHT_FILES and other != path and not _NO_WEIGHTS.fullmatch(other.name):
            raise InputError(
                f"{other}: weights beside the adapter's file, which would be lost: put them into the base and merge "
                "into that, or move the file away if they do not belong to the model"
            )
    file = read_safetensors(path)
    _check_values(file)
    offsets = find_offsets({tensor.name: tensor for tensor in file.tensors}, _integers, path)
    adapter = Adapter(folder, file, config, {}, offsets)
    for tensor in file.tensors:
        if not tensor.name.startswith(_PREFIX):
            raise InputError(f"{path}: {tensor.name}: expected a PEFT name starting with {_PREFIX}")
        if offset_part(tensor.name) is None:
            _sort(adapter, tensor.name.removeprefix(_PREFIX), tensor)
    for table in (offsets.embed, offsets.head) if offsets else ():
        if table is not None and table.dtype not in FLOATS:
            raise InputError(f"{path}: {table.name}: expected {', '.join(FLOATS)}, found {table.dtype}")
    return adapter


def _sort(adapter: Adapter, name: str, tensor: TensorInfo) -> None:
    parents = name.split(".")[:-1]
    if ending := next((ending for ending in _PARTS if name.endswith(ending)), None):
        setattr(adapter.factors.setdefault(name.removesuffix(ending), Factors()), _PARTS[ending], tensor)
    elif "lora_" in name:
        raise InputError(f"{tensor.path}: {tensor.name}: an unknown kind of factor, cannot be merged exactly")
    elif ".original_module." in name:
        return  # the saved module before training, which PEFT does not use
    elif any(adapter.config.is_saved(".".join(parents[:n])) for n in range(1, len(parents) + 1)):
        adapter.saved[_WRAPPERS.sub("", name)] = tensor
    else:
        adapter.rewritten[_WRAPPERS.sub("", name)] = tensor


def _integers(tensor: TensorInfo) -> tuple[int, ...]:
    formats = {"I64": "q", "I32": "i", "U8": "B"}
    if tensor.dtype not in formats:
        raise InputError(f"{tensor.path}: {tensor.name}: expected whole numbers, found {tensor.dtype}")
    return tuple(value for (value,) in struct.iter_unpack(f"<{formats[tensor.dtype]}", tensor.read(0, tensor.rows)))


def _check_values(file: SafetensorsFile) -> None:
    for tensor in file.tensors:
        if tensor.dtype not in FLOATS:
            continue
        if tensor.shape == (0,):
            raise InputError(
                f"{file.path}: {tensor.name}: expected values, found the shape [0]: DeepSpeed's ZeRO-3 saved a "
                "partitioned weight without gathering it; set stage3_gather_16bit_weights_on_model_save and save "
                "again, or convert the checkpoint with its zero_to_fp32.py"
            )
        for lo, hi in tensor.blocks():
            if (bad := first_not_finite(read_rows(tensor, lo, hi))) is not None:
                raise InputError(f"{file.path}: {tensor.name}: row {lo + bad} holds NaN or infinity; train it again")


def read_settings(path: Path) -> LoraSettings:
    """Read PEFT's adapter_config.json; an `InputError` for settings that cannot be merged exactly."""
    content = read_object(path)
    if content.get("peft_type") != "LORA":
        raise InputError(f"{path}: peft_type: expected LORA, found {content.get('peft_type')!r}")
    if (init := content.get("init_lora_weights", True)) not in _PLAIN_INITS:
        raise InputError(
            f"{path}: init_lora_weights: {init!r} changes the base's weights when training starts, so the "
            "factors do not belong to this base; convert it (PEFT: path_initial_model_for_weight_conversion)"
        )
    for name, value in content.items():
        if name not in _KNOWN and value:
            raise InputError(f"{path}: {name}: {value!r} cannot be merged exactly into the weights")
    if content.get("layers_to_transform") is not None:  # which layers these numbers mean is PEFT's to say
        content |= {"target_modules": None, "exclude_modules": None}
    stated = {key.name: content[key.name] for key in fields(LoraSettings) if content.get(key.name) is not None}
    return validated(LoraSettings, stated | {"path": path}, str(path))


def _is_named(module: str, names: str | tuple[str, ...]) -> bool:
    """Return whether a pattern matches the whole name, or a list has the name or its end, as in PEFT."""
    if isinstance(names, str):
        return re.fullmatch(names, module) is not None
    return any(f".{module}".endswith(f".{name}") for name in names)


def _by_pattern(patterns: dict[str, _Value], module: str, default: _Value) -> _Value:
    """Return the value of the first pattern that matches the end of the module's name at a dot, as in PEFT."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default
