"""Creates OUT atomically: all files are written to a hidden folder beside it, flushed to the disk, and renamed.

An existing OUT is replaced atomically (renameat2), or crash-safely with two renames where that is unavailable. A killed
process leaves its hidden folder behind; the next export to the same OUT restores or removes it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coord_codec.counts import counted
from coord_codec.files import InputError, RunError
from coord_exporter.checkpoint.read import RECORD_FILE, read_object

_MARGIN = 16 << 20  # space for small files and metadata of the file system
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2(2)
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


class ExportError(RunError):
    """An export that failed while writing or verifying: exit code 1; OUT is not written."""


def check_out(out: Path, inputs: tuple[Path, ...], force: bool) -> list[str]:
    """Refuse an OUT that exists already or overlaps with the inputs.

    Returns:
        A warning if an OUT was restored that a killed run had moved aside.

    Raises:
        InputError: naming the reason
    """
    target = out.resolve()
    for folder in inputs:
        source = folder.resolve()
        if target == source or source in target.parents or target in source.parents:
            raise InputError(f"OUT {out}: is, contains or lies inside the input {folder}; choose another folder")
    if not target.parent.is_dir():
        raise InputError(f"OUT {out}: the folder {target.parent} does not exist; create it first")
    restored = " (restored: the run that was to replace it was killed)" if _restore(target) else ""
    if not os.path.lexists(out):
        return []
    if not force:
        raise InputError(f"OUT {out}: exists already{restored}; choose another name, or --force to replace it")
    if not out.is_dir() or any(out.iterdir()):
        _check_replaceable(out)
    return [f"OUT {out}: exists already{restored}"] if restored else []


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
    """Refuse an output that does not fit on the disk.

    Raises:
        InputError: with the needed and the free space
    """
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
    try:
        with _stage(out.resolve(), force) as stage:
            yield stage
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if is_full else error.strerror or str(error)
        raise ExportError(f"OUT {out}: {reason}; nothing was written") from None


@contextmanager
def _stage(target: Path, force: bool) -> Iterator[Path]:
    prefix = f".{target.name}.partial-"
    for folder in _siblings(target, prefix):
        with _abandoned(folder) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(folder, ignore_errors=True)
    stage = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    with _locked(stage):
        try:
            stage.chmod(0o777 & ~_umask())
            yield stage
            for path in (*stage.rglob("*"), stage):
                _flush(path)
            if not os.path.lexists(target):
                stage.rename(target)
            elif force:
                _replace_folder(stage, target)
            else:
                raise ExportError(f"OUT {target}: was created while the export ran; nothing was written")
            _flush(target.parent)
        finally:
            shutil.rmtree(stage, ignore_errors=True)  # an unfinished export, or the replaced folder


def _replace_folder(new: Path, target: Path) -> None:
    """Replace the folder at `target` by `new`; the old folder may be at `new` afterwards, for the caller to remove.

    Raises:
        OSError: if the system refuses; `target` is unchanged
    """
    if exchange(new, target):
        return
    # The old folder is moved aside, and back on failure; `_restore` finds it after a kill in between.
    parent = Path(tempfile.mkdtemp(prefix=_aside_prefix(target), dir=target.parent))
    aside = parent / target.name
    with _locked(parent):
        try:
            target.rename(aside)
            try:
                new.rename(target)
            except OSError:
                aside.rename(target)
                raise
        finally:
            if os.path.lexists(target):
                shutil.rmtree(parent, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically; return False if the system or the file system does not support it.

    Raises:
        OSError: if the call is supported and fails
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    failed = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if failed and (code := ctypes.get_errno()) not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), str(other))
    return not failed


def _restore(target: Path) -> bool:
    """Move back a folder that a process had moved aside before it was killed; return whether there was one."""
    restored = False
    for folder in _siblings(target, _aside_prefix(target)):
        with _abandoned(folder) as is_abandoned:
            if not is_abandoned:
                continue
            aside = folder / target.name
            if aside.is_dir() and not os.path.lexists(target):
                aside.rename(target)
                restored = True
            shutil.rmtree(folder, ignore_errors=True)
    return restored


def _siblings(target: Path, prefix: str) -> list[Path]:
    return [path for path in target.parent.iterdir() if path.name.startswith(prefix)]


def _aside_prefix(target: Path) -> str:
    return f".{target.name}.replaced-"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder; it ends with the process, so that `_abandoned` can test it."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def _abandoned(folder: Path) -> Iterator[bool]:
    """Yield whether the process that used a folder has ended; the folder is locked inside the block."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(fd)


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
