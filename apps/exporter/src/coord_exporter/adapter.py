"""An adapter folder, sorted: low-rank factors by module, offset tables, whole tensors that replace others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .adapter_config import AdapterConfig, read_adapter_config
from .checkpoint import FLOATS, SafetensorsFile, TensorInfo, read_safetensors
from .errors import InputError
from .recipe import first_not_finite, opened, read_rows

_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_OFFSETS = "coord_offset_adapter."
_OFFSET_FORMAT = 1  # the newest layout of the offset tables that is understood here

# Endings of PEFT's names, and the field of `Factors` each fills.
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


@dataclass
class Factors:
    """What the adapter holds for one module; see `lora.LoraStep`."""

    a: TensorInfo | None = None
    b: TensorInfo | None = None
    bias: TensorInfo | None = None
    embedding_a: TensorInfo | None = None
    embedding_b: TensorInfo | None = None
    magnitude: TensorInfo | None = None
    token_rows: TensorInfo | None = None


@dataclass(frozen=True)
class Offsets:
    """The coordinate offset tables [K, H]; `head` is None when one table serves embedding and head."""

    ids: tuple[int, ...]
    embed: TensorInfo
    head: TensorInfo | None
    fingerprint: str | None


@dataclass(frozen=True)
class Adapter:
    """A PEFT adapter folder, sorted by what each tensor does to the base.

    Attributes:
        file: the adapter's weights.
        config: its configuration.
        factors: by module name.
        offsets: the offset tables, if any.
        saved: by base tensor name, copies of `modules_to_save`: they replace the tensor of that module only.
        rewritten: by base tensor name, base tensors the adapter carries along (biases, resized embeddings):
            they replace the stored tensor, also where it is tied.
    """

    folder: Path
    file: SafetensorsFile
    config: AdapterConfig
    factors: dict[str, Factors]
    offsets: Offsets | None
    saved: dict[str, TensorInfo] = field(default_factory=dict)
    rewritten: dict[str, TensorInfo] = field(default_factory=dict)


def open_adapter(folder: Path) -> Adapter:
    """Read an adapter folder; the weights themselves are only looked through for NaN and infinity.

    Raises:
        InputError: for missing or damaged files, values that are not finite, incomplete offset tables.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder}: expected an adapter folder, found {'a file' if folder.exists() else 'nothing'}"
        )
    config = read_adapter_config(folder)
    if not (folder / _WEIGHTS).exists():
        raise InputError(
            f"{folder / _WEIGHTS}: missing; save the adapter as safetensors (pickles are not read)"
        )
    file = read_safetensors(folder / _WEIGHTS)
    adapter = Adapter(folder, file, config, {}, _read_offsets(file))
    for tensor in file.tensors:
        if not tensor.name.startswith(_PREFIX):
            raise InputError(f"{file.path}: {tensor.name}: expected a PEFT name starting with {_PREFIX}")
        name = tensor.name.removeprefix(_PREFIX)
        if not name.startswith(_OFFSETS):
            _sort(adapter, name, tensor)
    _check_finite(file)
    return adapter


def _sort(adapter: Adapter, name: str, tensor: TensorInfo) -> None:
    ending = next((ending for ending in _PARTS if name.endswith(ending)), None)
    if ending is not None:
        setattr(adapter.factors.setdefault(name.removesuffix(ending), Factors()), _PARTS[ending], tensor)
    elif "lora_" in name:
        raise InputError(f"{tensor.path}: {tensor.name}: an unknown kind of factor, cannot be merged exactly")
    elif _inside_saved(adapter.config, name):
        adapter.saved[name] = tensor
    else:
        adapter.rewritten[name.replace(".base_layer.", ".")] = tensor


def _inside_saved(config: AdapterConfig, name: str) -> bool:
    parents = name.split(".")[:-1]
    return any(config.is_saved(".".join(parents[:n])) for n in range(1, len(parents) + 1))


def _read_offsets(file: SafetensorsFile) -> Offsets | None:
    start = _PREFIX + _OFFSETS
    parts = {t.name.removeprefix(start): t for t in file.tensors if t.name.startswith(start)}
    if not parts:
        return None
    known = {"token_ids", "embed_offset", "head_offset", "fingerprint", "format_version"}
    if missing := sorted({"token_ids", "embed_offset", "head_offset"} - parts.keys()):
        raise InputError(f"{file.path}: the offset tables lack {', '.join(missing)}; save the adapter again")
    if unknown := sorted(parts.keys() - known):
        raise InputError(f"{file.path}: {start}{unknown[0]}: unknown part of the offset tables")
    if "format_version" in parts and (version := _integers(parts["format_version"])[0]) > _OFFSET_FORMAT:
        raise InputError(
            f"{file.path}: offset tables of format {version}, expected up to {_OFFSET_FORMAT}: update"
        )
    ids, embed, head = _integers(parts["token_ids"]), parts["embed_offset"], parts["head_offset"]
    for name, table in (("embed_offset", embed), ("head_offset", head)):
        empty = name == "head_offset" and table.rows == 0
        if not empty and (len(table.shape) != 2 or table.rows != len(ids) or table.dtype not in FLOATS):
            raise InputError(
                f"{file.path}: {name}: expected {len(ids)} rows of floats (token_ids), found {table.dtype} "
                f"{list(table.shape)}; under ZeRO-3 gather the weights when saving"
            )
    text = bytes(_integers(parts["fingerprint"])).decode(errors="replace") if "fingerprint" in parts else None
    return Offsets(ids, embed, head if head.rows else None, text or None)


def _integers(tensor: TensorInfo) -> tuple[int, ...]:
    import torch

    kinds = {"I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}
    if tensor.dtype not in kinds:
        raise InputError(f"{tensor.path}: {tensor.name}: expected whole numbers, found {tensor.dtype}")
    if not tensor.nbytes:
        return ()
    with opened(tensor) as fd:
        values = torch.frombuffer(tensor.pread(fd, 0, tensor.rows), dtype=kinds[tensor.dtype])
    return tuple(values.tolist())


def _check_finite(file: SafetensorsFile) -> None:
    for tensor in file.tensors:
        if tensor.dtype not in FLOATS or not tensor.nbytes:
            continue
        step = max(1, (1 << 23) // max(1, tensor.row_bytes))
        with opened(tensor) as fd:
            for lo in range(0, tensor.rows, step):
                rows = read_rows(tensor, fd, lo, min(lo + step, tensor.rows))
                if (bad := first_not_finite(rows)) is not None:
                    raise InputError(
                        f"{file.path}: {tensor.name}: row {lo + bad} holds NaN or infinity; train it again"
                    )
