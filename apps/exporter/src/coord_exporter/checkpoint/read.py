"""Reads the headers of a checkpoint's weight files, which locate the bytes of each tensor, without loading tensors.

The safetensors format: 8 bytes little-endian header length, a JSON header of name -> dtype, shape, data_offsets, then
the data without gaps (https://huggingface.co/docs/safetensors). The library checks each file. Rows are read without its
`get_slice`, whose mapped pages count as resident memory.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from coord_codec.files import InputError, read_json

FLOATS = ("BF16", "F16", "F32")
"""Dtypes whose values can be merged."""

ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "BOOL": 1}
ITEM_BYTES |= {"I8": 1, "I16": 2, "I32": 4, "I64": 8, "U8": 1, "U16": 2, "U32": 4, "U64": 8}
"""Bytes of one value by dtype name of the format."""

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"

RECORD_FILE = "export.json"
"""Record that every export writes: its sources with digests, so that no adapter is merged twice."""
CARD_FILE = "coordexp.json"
"""Card that the trainer writes beside its weights: prompt, markers, pixel limits and fingerprint of the training."""


@dataclass(frozen=True)
class TensorKind:
    """Name, dtype and shape of a row-major tensor, which has `rows` rows of `row_bytes` bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def rows(self) -> int:
        """Length of the first dimension; 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """Size of one row."""
        return math.prod(self.shape[1:]) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class TensorInfo(TensorKind):
    """A stored tensor: `nbytes` bytes at `start` of the file `path`."""

    path: Path
    start: int

    def read(self, lo: int, hi: int) -> bytearray:
        """Read the bytes of rows lo..hi-1; an `InputError` if the file became shorter."""
        data = bytearray((hi - lo) * self.row_bytes)
        view, at = memoryview(data), self.start + lo * self.row_bytes
        with self.path.open("rb", buffering=0) as file:
            while view:
                count = os.preadv(file.fileno(), [view], at)
                if count == 0:
                    raise InputError(f"{self.path}: the file ended while tensor {self.name} was being read")
                view, at = view[count:], at + count
        return data

    def blocks(self, nbytes: int = 1 << 23) -> Iterator[tuple[int, int]]:
        """Yield ranges lo, hi of rows of about `nbytes` bytes each."""
        step = max(1, nbytes // max(1, self.row_bytes))
        yield from ((lo, min(lo + step, self.rows)) for lo in range(0, self.rows, step))


@dataclass(frozen=True)
class SafetensorsFile:
    """One safetensors file: its tensors in the order of their data, and the header's bytes."""

    path: Path
    tensors: tuple[TensorInfo, ...]
    metadata: dict[str, str]
    header: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Size of the file."""
        return len(self.header) + sum(t.nbytes for t in self.tensors)


@dataclass(frozen=True)
class StoredCheckpoint:
    """A Hugging Face checkpoint folder: its configuration and its weight files, in index order.

    Attributes:
        folder: the checkpoint folder
        config: the content of config.json
        files: the weight files
        index_metadata: the metadata of the index, None for a single-file checkpoint
        modules: names under which `tensors` lists tensors instead of their own; see `modules.named_as_modules`
    """

    folder: Path
    config: dict[str, Any]
    files: tuple[SafetensorsFile, ...]
    index_metadata: dict[str, Any] | None
    modules: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return folder_name(self.folder)

    @cached_property
    def tensors(self) -> dict[str, TensorInfo]:
        """All tensors by name."""
        return {self.modules.get(tensor.name, tensor.name): tensor for file in self.files for tensor in file.tensors}

    @property
    def nbytes(self) -> int:
        """Size of all weight files."""
        return sum(file.size for file in self.files)


def folder_name(folder: Path) -> str:
    """Return the name of a folder, also of one given as `.` or `..`."""
    return os.path.basename(os.path.abspath(folder))  # noqa: PTH100, PTH119 - `Path.resolve` would follow links


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; an `InputError` if the file cannot be read or does not contain one."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def read_safetensors(path: Path) -> SafetensorsFile:
    """Read the header of a safetensors file, which the library has checked.

    Raises:
        InputError: if the file is missing, truncated, longer than its header states, or not safetensors
    """
    try:
        with safe_open(path, "np"):
            pass  # header, offsets and the length of the file are right
        with path.open("rb") as file:
            prefix = file.read(8)
            header = prefix + file.read(struct.unpack("<Q", prefix)[0])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(f"{path}: expected a whole safetensors file: {error}; fetch it again") from None
    entries = json.loads(header[8:])
    metadata = entries.pop("__metadata__", None) or {}
    for name, entry in entries.items():
        if entry["dtype"] not in ITEM_BYTES:
            raise InputError(f"{path}: tensor {name}: expected {', '.join(ITEM_BYTES)}, found {entry['dtype']}")
    stored = sorted(entries.items(), key=lambda item: item[1]["data_offsets"])
    tensors = (
        TensorInfo(name, entry["dtype"], tuple(entry["shape"]), path, len(header) + entry["data_offsets"][0])
        for name, entry in stored
    )
    return SafetensorsFile(path, tuple(tensors), metadata, header)


def open_checkpoint(folder: Path) -> StoredCheckpoint:
    """Read configuration, index and headers of a checkpoint folder, and check that they agree.

    Raises:
        InputError: for a missing or damaged file, a tensor of the index that no file contains, weights that are not
            safetensors, or a quantised model
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a checkpoint folder, found {'a file' if folder.exists() else 'nothing'}")
    config = read_object(folder / "config.json")
    if not isinstance(config.get("text_config", {}), dict):
        raise InputError(f"{folder / 'config.json'}: text_config: expected an object; fetch the file again")
    if config.get("quantization_config"):
        raise InputError(f"{folder / 'config.json'}: quantization_config: a quantised base cannot be changed exactly")
    index_path = folder / INDEX_FILE
    if index_path.exists():
        index = read_object(index_path)
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map or {*map(type, weight_map.values())} != {str}:
            raise InputError(f"{index_path}: expected a weight_map of tensor names to files")
        if (folder / SINGLE_FILE).exists() and SINGLE_FILE not in weight_map.values():
            raise InputError(
                f"{folder}: holds {SINGLE_FILE}, which transformers loads, and {INDEX_FILE} of other files "
                f"({min(weight_map.values())}, ...); move those of the older save away"
            )
        files = _open_files(folder, dict.fromkeys(weight_map.values()))
        file_of_tensor = {tensor.name: file.path.name for file in files for tensor in file.tensors}
        if wrong := sorted(name for name, file in weight_map.items() if file_of_tensor.get(name) != file):
            raise InputError(f"{index_path}: {weight_map[wrong[0]]} does not contain the tensor {wrong[0]}")
        if not isinstance(metadata := index.get("metadata") or {}, dict):
            raise InputError(f"{index_path}: metadata: expected an object, found {metadata!r:.80}")
        return StoredCheckpoint(folder, config, files, metadata)
    if not (folder / SINGLE_FILE).exists():
        suffixes = {".bin", ".pt", ".pth", ".safetensors"}
        others = sorted(path.name for path in folder.iterdir() if path.suffix in suffixes)
        found = f"only {', '.join(others[:3])}" if others else "no weights"
        raise InputError(f"{folder}: expected {SINGLE_FILE} or {INDEX_FILE}, found {found} (safetensors only)")
    return StoredCheckpoint(folder, config, _open_files(folder, [SINGLE_FILE]), None)


def _open_files(folder: Path, names: Collection[str]) -> tuple[SafetensorsFile, ...]:
    for name in names:
        if Path(name).name != name or not (folder / name).exists():
            raise InputError(f"{folder / name}: the index names this file and it is missing; fetch it again")
    files = tuple(read_safetensors(folder / name) for name in names)
    seen: dict[str, Path] = {}
    for file in files:
        for tensor in file.tensors:
            if tensor.name in seen:
                raise InputError(f"{file.path}: tensor {tensor.name} is also in {seen[tensor.name].name}")
            seen[tensor.name] = file.path
    return files
