"""Which output tensor goes into which file, and the headers of those files."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from .checkpoint import ITEM_BYTES, SINGLE_FILE, Checkpoint
from .errors import InputError
from .recipe import Recipe

_UNITS = {
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


@dataclass(frozen=True)
class OutFile:
    """A weight file to write: its tensors in the order of their data, after the header."""

    name: str
    recipes: tuple[Recipe, ...]
    header: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Size of the whole file."""
        return len(self.header) + sum(recipe.nbytes for recipe in self.recipes)


def lay_out(
    base: Checkpoint, recipes: dict[str, Recipe], max_shard_size: int | None = None
) -> tuple[OutFile, ...]:
    """Distribute tensors over files: as in the base, or anew if a size is given.

    Args:
        base: the checkpoint the tensors come from; a file whose tensors keep type and shape keeps its header.
        recipes: every output tensor by name; those the base lacks join its last file.
        max_shard_size: bytes of tensors a file may hold; a larger tensor gets a file of its own.
    """
    if max_shard_size is not None:
        metadata = base.files[0].metadata
        shards = _split(recipes.values(), max_shard_size)
        names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
        names = names if len(shards) > 1 else [SINGLE_FILE]
        return tuple(
            OutFile(name, tuple(shard), _header(shard, metadata))
            for name, shard in zip(names, shards, strict=True)
        )
    files = []
    for file in base.files:
        kept = [recipes[tensor.name] for tensor in file.tensors]
        if file is base.files[-1]:
            kept += [recipe for name, recipe in recipes.items() if name not in base.tensors]
        same = [(r.name, r.dtype, r.shape) for r in kept] == [
            (t.name, t.dtype, t.shape) for t in file.tensors
        ]
        header = file.header if same else _header(kept, file.metadata)
        files.append(OutFile(file.path.name, tuple(kept), header))
    return tuple(files)


def index_of(files: tuple[OutFile, ...], base: Checkpoint) -> dict | None:
    """The content of the index file, None where a single file needs none."""
    if len(files) == 1 and (base.index_metadata is None or files[0].name == SINGLE_FILE):
        return None
    recipes = [recipe for file in files for recipe in file.recipes]
    metadata = dict(base.index_metadata or {})
    metadata["total_size"] = sum(recipe.nbytes for recipe in recipes)
    if "total_parameters" in metadata:
        metadata["total_parameters"] = sum(recipe.nbytes // ITEM_BYTES[recipe.dtype] for recipe in recipes)
    weight_map = {recipe.name: file.name for file in files for recipe in file.recipes}
    return {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))}


def parse_size(text: str) -> int:
    """Bytes of a size such as 5GB, 500MB or 2GiB.

    Raises:
        InputError: if it is not one.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B)", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise InputError(f"--max-shard-size: expected a size such as 5GB or 500MB, found {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _split(recipes: Iterable[Recipe], limit: int) -> list[list[Recipe]]:
    shards: list[list[Recipe]] = [[]]
    held = 0
    for recipe in recipes:
        if shards[-1] and held + recipe.nbytes > limit:
            shards.append([])
            held = 0
        shards[-1].append(recipe)
        held += recipe.nbytes
    # Wide types first, as the safetensors library writes them: every tensor stays aligned to its type.
    return [sorted(shard, key=lambda recipe: -ITEM_BYTES[recipe.dtype]) for shard in shards]


def _header(recipes: Iterable[Recipe], metadata: dict[str, str]) -> bytes:
    entries: dict[str, dict] = {"__metadata__": metadata or {"format": "pt"}}
    end = 0
    for recipe in recipes:
        start, end = end, end + recipe.nbytes
        entries[recipe.name] = {
            "dtype": recipe.dtype,
            "shape": list(recipe.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
