"""Creates OUT whole or not at all: all files are written to a hidden folder beside it, flushed and renamed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coord_codec.commands.partial_folder import clear_leftovers, partial_folder
from coord_codec.counts import counted
from coord_codec.files import InputError, RunError
from coord_exporter.checkpoint.read import RECORD_FILE, read_object

_MARGIN = 16 << 20  # space for small files and metadata of the file system


class ExportError(RunError):
    """An export that failed while writing or verifying: exit code 1; OUT is not written."""


def check_out(out: Path, inputs: tuple[Path, ...], force: bool) -> None:
    """Raise `InputError` for an OUT that exists already or overlaps with the inputs."""
    target = out.resolve()
    for folder in inputs:
        source = folder.resolve()
        if target == source or source in target.parents or target in source.parents:
            raise InputError(f"OUT {out}: is, contains or lies inside the input {folder}; choose another folder")
    if not target.parent.is_dir():
        raise InputError(f"OUT {out}: the folder {target.parent} does not exist; create it first")
    if not os.path.lexists(out):
        return
    if not force:
        raise InputError(f"OUT {out}: exists already; choose another name, or --force to replace it")
    if not out.is_dir() or any(out.iterdir()):
        _check_replaceable(out)


def _check_replaceable(out: Path) -> None:
    """Raise an InputError for a folder without the record of an export, or with files that are not in it."""
    record = read_object(out / RECORD_FILE) if (out / RECORD_FILE).is_file() else {}
    if not record.get("history"):
        raise InputError(
            f"OUT {out}: --force replaces only what an export wrote (a folder with {RECORD_FILE}), and this is "
            "something else; move it away"
        )
    present = {path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir()} - {RECORD_FILE}
    if further := sorted(present - set(record.get("files", ()))):
        raise InputError(
            f"OUT {out}: --force replaces only what an export wrote, and "
            f"{counted(len(further), 'file is', 'files are')} not part of it, the "
            f"first {further[0]}; move them away"
        )


def check_space(out: Path, needed: int) -> None:
    """Raise `InputError` with needed and free space for an output that does not fit on the disk."""
    free = shutil.disk_usage(out.resolve().parent).free
    if free < needed + _MARGIN:
        raise InputError(
            f"OUT {out}: needs {(needed + _MARGIN) / 1e9:.2f} GB and the disk has {free / 1e9:.2f} GB free; "
            "make room or choose another disk"
        )


@contextmanager
def staged(out: Path, force: bool) -> Iterator[Path]:
    """Yield a hidden folder beside OUT, which becomes OUT if the block succeeds and is removed if it fails.

    Raises:
        ExportError: if OUT was created in the meantime, or the system refuses to write
    """
    target = out.resolve()
    try:
        clear_leftovers(target)
        with partial_folder(target) as stage:
            yield stage
            for path in (*stage.rglob("*"), stage):
                _flush(path)
            if not os.path.lexists(target):
                stage.rename(target)
            elif force:
                _replace_folder(stage, target)
            else:
                raise ExportError(f"OUT {out}: was created while the export ran; nothing was written")
            _flush(target.parent)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if is_full else error.strerror or str(error)
        raise ExportError(f"OUT {out}: {reason}; nothing was written") from None


def _replace_folder(new: Path, target: Path) -> None:
    """Replace the folder at `target` by `new`, or raise an OSError with `target` unchanged.

    Killed between the two renames, it leaves the old folder beside, hidden, where no later export removes it.
    """
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name[:64]}.replaced-", dir=target.parent))
    target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
