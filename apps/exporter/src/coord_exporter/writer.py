"""Writing a weight file: header first, then each tensor, copied by the kernel or made chunk by chunk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ExportError
from .layout import OutFile
from .recipe import Recipe, first_not_finite, opened, read_rows, row_chunks, torch_dtype
from .workers import Workers
from .workspace import Workspace, bytes_of

if TYPE_CHECKING:
    import torch

#: Called with the number of bytes just written, from any thread.
Advance = Callable[[int], None]

_COPY_BYTES = 64 << 20  # per system call, so that progress moves


def write_file(path: Path, file: OutFile, advance: Advance, workers: Workers) -> None:
    """Write a new weight file, of which never more than a chunk for each worker is in memory.

    Raises:
        ExportError: if a merged value is not finite.
        OSError: if the disk refuses.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _reserve(fd, file.size)
        _pwrite(fd, file.header, 0)
        starts = accumulate((recipe.nbytes for recipe in file.recipes), initial=len(file.header))
        workers.run(partial(_write_tensor, fd, advance), zip(starts, file.recipes, strict=False))
    finally:
        os.close(fd)


def _write_tensor(fd: int, advance: Advance, placed: tuple[int, Recipe], workspace: Workspace) -> None:
    start, recipe = placed
    with ExitStack() as stack:
        source_fd = stack.enter_context(opened(recipe.source))
        if recipe.copied:
            _copy(source_fd, recipe.source.start, fd, start, size=recipe.nbytes, advance=advance)
            return
        functions = [step.open(workspace) for step in recipe.steps]
        dtype, row_bytes = torch_dtype(recipe.dtype), recipe.nbytes // max(1, recipe.rows)
        copyable = recipe.dtype == recipe.source.dtype
        for lo, hi in row_chunks(recipe):
            at, size = start + lo * row_bytes, (hi - lo) * row_bytes
            inside = hi <= recipe.source.rows
            if copyable and inside and not any(step.touches(lo, hi) for step in recipe.steps):
                _copy(source_fd, recipe.source.start + lo * row_bytes, fd, at, size=size, advance=advance)
                continue
            rows = _source_rows(recipe, source_fd, lo, hi, workspace)
            for change in functions:
                rows = change(rows, lo, hi)
            if rows.dtype != dtype:
                rows = workspace.take("rounded", rows.shape, dtype).copy_(rows)
            _check_finite(recipe, rows, lo)
            _pwrite(fd, bytes_of(rows), at)
            advance(size)


def _source_rows(recipe: Recipe, source_fd: int, lo: int, hi: int, workspace: Workspace) -> torch.Tensor:
    import torch

    held = min(max(recipe.source.rows, lo), hi)
    rows = read_rows(recipe.source, source_fd, lo, held, workspace)
    return rows if held == hi else torch.cat([rows, torch.zeros(hi - held, *recipe.shape[1:])])


def _check_finite(recipe: Recipe, rows: torch.Tensor, lo: int) -> None:
    if (bad := first_not_finite(rows)) is not None:
        raise ExportError(
            f"{recipe.name}: row {lo + bad} is not finite in {recipe.dtype} after merging (a value too large for "
            "the type, or a DoRA row of norm zero); nothing was written"
        )


def _reserve(fd: int, size: int) -> None:
    """Claim the disk space at once, where the file system can."""
    if not hasattr(os, "posix_fallocate"):  # macOS
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def _copy(source_fd: int, source_at: int, fd: int, at: int, *, size: int, advance: Advance) -> None:
    while size:
        count = _copy_some(source_fd, source_at, fd, at, size=min(size, _COPY_BYTES))
        if count == 0:
            raise ExportError(
                "a weight file of the base became shorter while it was copied; nothing was written"
            )
        source_at, at, size = source_at + count, at + count, size - count
        advance(count)


def _copy_some(source_fd: int, source_at: int, fd: int, at: int, *, size: int) -> int:
    try:
        if hasattr(os, "copy_file_range"):  # Linux
            return os.copy_file_range(source_fd, fd, size, source_at, at)
    except OSError as error:
        # Across file systems and on some network ones the kernel declines.
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
