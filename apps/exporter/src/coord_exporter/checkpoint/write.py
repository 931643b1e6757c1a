"""Writes weight files: distributes tensors over files, and builds their headers, index and data.

Each file is written header first, then tensor by tensor: copied by the kernel, or computed in chunks, so that at most
one chunk is in memory.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coord_exporter.checkpoint.read import ITEM_BYTES, SINGLE_FILE, StoredCheckpoint
from coord_exporter.checkpoint.recipe import Recipe, bytes_of, first_not_finite, read_rows, torch_dtype
from coord_exporter.checkpoint.staging import ExportError

if TYPE_CHECKING:
    import torch

Advance = Callable[[int], None]
"""Called with the number of bytes just written."""

_COPY_BYTES = 64 << 20  # per system call, so that progress is updated


@dataclass(frozen=True)
class OutFile:
    """A weight file to write: its tensors in the order of their data, after the header."""

    name: str
    recipes: tuple[Recipe, ...]
    header: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Size of the file."""
        return len(self.header) + sum(recipe.nbytes for recipe in self.recipes)


def lay_out(
    base: StoredCheckpoint, recipes: dict[str, Recipe], max_shard_size: int | None = None
) -> tuple[OutFile, ...]:
    """Distribute tensors over files as in the base, or anew in files of `max_shard_size` bytes.

    A file whose tensors keep dtype and shape keeps its header; new tensors are added to the last file, and a
    tensor above the limit gets its own file.
    """
    if max_shard_size is not None:
        shards = _split(recipes.values(), max_shard_size)
        names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
        names = names if len(shards) > 1 else [SINGLE_FILE]
        headers = [header_of(shard, base.files[0].metadata) for shard in shards]
        return tuple(map(OutFile, names, map(tuple, shards), headers))
    files = []
    for file in base.files:
        kept = [recipes[tensor.name] for tensor in file.tensors]
        if file is base.files[-1]:
            kept += [recipe for name, recipe in recipes.items() if name not in base.tensors]
        before, after = ([(t.name, t.dtype, t.shape) for t in tensors] for tensors in (file.tensors, kept))
        header = file.header if before == after else header_of(kept, file.metadata)
        files.append(OutFile(file.path.name, tuple(kept), header))
    return tuple(files)


def index_of(files: tuple[OutFile, ...], base: StoredCheckpoint) -> dict[str, Any] | None:
    """Return the content of the index file, None if a single file needs none."""
    if len(files) == 1 and (base.index_metadata is None or files[0].name == SINGLE_FILE):
        return None
    recipes = [recipe for file in files for recipe in file.recipes]
    metadata = dict(base.index_metadata or {})
    metadata["total_size"] = sum(recipe.nbytes for recipe in recipes)
    if "total_parameters" in metadata:
        metadata["total_parameters"] = sum(recipe.nbytes // ITEM_BYTES[recipe.dtype] for recipe in recipes)
    weight_map = {recipe.name: file.name for file in files for recipe in file.recipes}
    return {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))}


def _split(recipes: Iterable[Recipe], limit: int) -> list[list[Recipe]]:
    shards: list[list[Recipe]] = [[]]
    shard_bytes = 0
    for recipe in recipes:
        if shards[-1] and shard_bytes + recipe.nbytes > limit:
            shards.append([])
            shard_bytes = 0
        shards[-1].append(recipe)
        shard_bytes += recipe.nbytes
    # Sorted by descending item size, as in the safetensors library, so that every tensor is aligned to its dtype.
    return [sorted(shard, key=lambda recipe: -ITEM_BYTES[recipe.dtype]) for shard in shards]


def header_of(recipes: Iterable[Recipe], metadata: dict[str, str]) -> bytes:
    """Return the header of a file with these tensors in this order."""
    entries: dict[str, dict[str, Any]] = {"__metadata__": metadata or {"format": "pt"}}
    end = 0
    for recipe in recipes:
        start, end = end, end + recipe.nbytes
        entries[recipe.name] = {"dtype": recipe.dtype, "shape": list(recipe.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, since starting others for every chunk takes longer than the chunk."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def write_file(path: Path, file: OutFile, advance: Advance) -> None:
    """Write a new weight file.

    Raises:
        ExportError: if a merged value is not finite
        OSError: if the file cannot be written
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _pwrite(fd, file.header, 0)
        at = len(file.header)
        for recipe in file.recipes:
            _write_tensor(fd, at, recipe, advance)
            at += recipe.nbytes
    finally:
        os.close(fd)


def _write_tensor(fd: int, at: int, recipe: Recipe, advance: Advance) -> None:
    if recipe.data is not None:
        _pwrite(fd, recipe.data, at)
        advance(recipe.nbytes)
        return
    source, row_bytes = recipe.source, recipe.row_bytes
    with source.path.open("rb", buffering=0) as file:
        if recipe.copied:
            _copy(file.fileno(), source.start, fd, at, recipe.nbytes, advance)
            return
        functions = [step.open() for step in recipe.steps]
        for lo, hi in recipe.chunks():
            size = (hi - lo) * row_bytes
            untouched = hi <= source.rows and not any(step.touches(lo, hi) for step in recipe.steps)
            if untouched and recipe.dtype == source.dtype:
                _copy(file.fileno(), source.start + lo * row_bytes, fd, at + lo * row_bytes, size, advance)
                continue
            rows = _source_rows(recipe, lo, hi)
            for change in functions:
                rows = change(rows, lo, hi)
            rows = rows.to(torch_dtype(recipe.dtype))
            if (bad := first_not_finite(rows)) is not None:
                raise ExportError(
                    f"{recipe.name}: row {lo + bad} is not finite in {recipe.dtype} after merging (a value too large "
                    "for the dtype, or a DoRA row of norm zero); nothing was written"
                )
            _pwrite(fd, bytes_of(rows), at + lo * row_bytes)
            advance(size)


def _source_rows(recipe: Recipe, lo: int, hi: int) -> torch.Tensor:
    import torch

    stored_end = min(max(recipe.source.rows, lo), hi)
    rows = read_rows(recipe.source, lo, stored_end)
    return rows if stored_end == hi else torch.cat([rows, torch.zeros(hi - stored_end, *recipe.shape[1:])])


def _copy(source_fd: int, source_at: int, fd: int, at: int, size: int, advance: Advance) -> None:
    while size:
        count = _copy_some(source_fd, source_at, fd, at, min(size, _COPY_BYTES))
        if count == 0:
            raise ExportError("a weight file of the base became shorter while it was copied; nothing was written")
        source_at, at, size = source_at + count, at + count, size - count
        advance(count)


def _copy_some(source_fd: int, source_at: int, fd: int, at: int, size: int) -> int:
    try:
        if hasattr(os, "copy_file_range"):  # Linux
            return os.copy_file_range(source_fd, fd, size, source_at, at)
    except OSError as error:
        # The kernel does not support it between file systems and on some network file systems.
        if error.errno not in (errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    block = os.pread(source_fd, min(size, 8 << 20), source_at)
    _pwrite(fd, block, at)
    return len(block)


def _pwrite(fd: int, data: bytes | memoryview, at: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, at)
        view, at = view[count:], at + count
