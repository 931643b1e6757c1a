"""Writing a whole checkpoint: weights, index, configuration, companions and record, all or nothing."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .checkpoint import INDEX_FILE, Checkpoint
from .companions import Companions, copy_companions, write_json
from .errors import ExportError
from .flushing import Flusher
from .layout import OutFile, index_of, lay_out
from .progress import Progress
from .recipe import Recipe
from .record import RECORD, history_of, record_of, sha256_of, versions
from .staging import check_space, staged
from .workers import Workers
from .writer import write_file


@dataclass(frozen=True)
class Export:
    """A planned checkpoint.

    Attributes:
        base: what it is made from.
        recipes: its tensors by name.
        config: its configuration.
        companions: the files that come along.
        rewritten: JSON files that come along changed, by name.
        entry: what its record says beside sources and versions; None leaves the base's record as it is.
    """

    base: Checkpoint
    recipes: dict[str, Recipe]
    config: dict
    companions: Companions
    entry: dict | None
    rewritten: dict[str, dict] = field(default_factory=dict)


def write_export(
    export: Export,
    out: Path,
    *,
    force: bool = False,
    max_shard_size: int | None = None,
    quiet: bool = False,
    verify: Callable[[Path], dict | None] | None = None,
) -> dict | None:
    """Write a planned checkpoint to OUT.

    Args:
        export: the plan.
        out: the folder to make.
        force: whether an existing checkpoint folder is replaced.
        max_shard_size: bytes of tensors per file; None keeps the base's files.
        quiet: whether to show no progress.
        verify: called with the finished folder before it becomes OUT; what it returns is recorded.

    Returns:
        What `verify` returned.

    Raises:
        InputError: if the disk has no room.
        ExportError: if writing or verifying fails; OUT is as it was.
    """
    files = lay_out(export.base, export.recipes, max_shard_size)
    total = sum(file.size for file in files)
    check_space(out, total + export.companions.nbytes)
    progress = (lambda count: None) if quiet else Progress(total, "writing")
    try:
        with staged(out, force) as stage:
            sources = _write_weights(export.base, files, stage, progress)
            _write_small(export, files, stage)
            verified = verify(stage) if verify is not None else None
            history = history_of(export.base.folder)
            if export.entry is not None:
                entry = export.entry | {
                    "base": {"name": export.base.folder.name} | sources,
                    "versions": versions(),
                }
                history = [*history, entry | ({"verification": verified} if verified else {})]
            if history:
                write_json(stage / RECORD, record_of(history))
    except OSError as error:
        full = (
            "the disk is full"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else error.strerror or str(error)
        )
        raise ExportError(f"OUT {out}: {full}; nothing was written") from None
    return verified


def _write_weights(
    base: Checkpoint, files: tuple[OutFile, ...], stage: Path, progress: Callable[[int], None]
) -> dict:
    """Write the weight files; other threads take the base's digests and make each file durable meanwhile."""
    inputs = [base.folder / "config.json", *(file.path for file in base.files)]
    lock = threading.Lock()
    with ThreadPoolExecutor(1) as digester, Flusher() as flusher, Workers() as workers:
        digests = {path.name: digester.submit(sha256_of, path) for path in inputs}
        try:
            for file in files:
                path = stage / file.name

                def advance(count: int, path: Path = path) -> None:
                    with lock:
                        progress(count)
                        flusher.wrote(path, count)

                write_file(path, file, advance, workers)
                flusher.finish(path)
            flusher.wait()
        except BaseException:
            digester.shutdown(cancel_futures=True)
            raise
        if isinstance(progress, Progress):
            progress.finish()
        return {name: digest.result() for name, digest in digests.items()}


def _write_small(export: Export, files: tuple[OutFile, ...], stage: Path) -> None:
    copy_companions(export.companions, stage)
    for name, content in export.rewritten.items():
        write_json(stage / name, content)
    write_json(stage / "config.json", export.config)
    index = index_of(files, export.base)
    if index is not None:
        write_json(stage / INDEX_FILE, index)
