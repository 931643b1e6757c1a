"""All or nothing: everything is written to a hidden folder beside OUT, flushed to the disk, and renamed.

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

from coord_codec.files import InputError
from coord_exporter.checkpoint.read import RECORD_FILE, read_object

_MARGIN = 16 << 20  # small files and the file system's own bookkeeping
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2(2)
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


class ExportError(Exception):
    """An export that started and could not be finished or verified: exit code 1, no OUT left behind."""


def check_out(out: Path, inputs: tuple[Path, ...], force: bool) -> list[str]:
    """Refuse an OUT that would overwrite something or mix with the inputs.

    Returns:
        Warnings: that an OUT was restored which a killed run had moved aside.

    Raises:
        InputError: naming the reason.
    """
    place = out.resolve()
    for folder in inputs:
        given = folder.resolve()
        if place == given or given in place.parents or place in given.parents:
            raise InputError(f"OUT {out}: lies inside, around or on the input {folder}; choose another place")
    if not place.parent.is_dir():
        raise InputError(f"OUT {out}: the folder {place.parent} does not exist; create it first")
    back = " (brought back: a run that was to replace it was killed)" if _restore(place) else ""
    if not os.path.lexists(out):
        return []
    if not force:
        raise InputError(f"OUT {out}: exists already{back}; choose another name, or --force to replace it")
    if not out.is_dir() or any(out.iterdir()):
        _refuse_other_things(out)
    return [f"OUT {out}: was there already{back}"] if back else []


def _refuse_other_things(out: Path) -> None:
    """Raise an InputError for what no export wrote: a folder without its record, or with further files."""
    record = read_object(out / RECORD_FILE) if (out / RECORD_FILE).is_file() else {}
    if not record.get("history"):
        raise InputError(
            f"OUT {out}: --force replaces what an export wrote (a folder with {RECORD_FILE}), and this is something "
            "else; move it away"
        )
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir()} - {RECORD_FILE}
    known = record.get("files", found)  # records of earlier versions list none
    if further := sorted(found - set(known)):
        raise InputError(
            f"OUT {out}: --force replaces what an export wrote, and {len(further)} files are not of it, first "
            f"{further[0]}; move them away"
        )


def check_space(out: Path, needed: int) -> None:
    """Refuse to start where the output would not fit.

    Raises:
        InputError: with both figures.
    """
    free = shutil.disk_usage(out.resolve().parent).free
    if free < needed + _MARGIN:
        raise InputError(
            f"OUT {out}: needs {(needed + _MARGIN) / 1e9:.2f} GB and the disk has {free / 1e9:.2f} GB free; "
            "make room or choose another disk"
        )


@contextmanager
def staged(out: Path, force: bool) -> Iterator[Path]:
    """Yield a hidden folder beside OUT, which becomes OUT if the block ends well and vanishes if it does not.

    Raises:
        ExportError: if OUT appeared meanwhile.
    """
    place = out.resolve()
    prefix = f".{place.name}.partial-"
    for folder in _beside(place, prefix):
        with _abandoned(folder) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)
    stage = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    with _locked(stage):
        try:
            stage.chmod(0o777 & ~_umask())
            yield stage
            for path in (*stage.rglob("*"), stage):
                _flush(path)
            if not os.path.lexists(place):
                stage.rename(place)
            elif force:
                _replace_folder(stage, place)
            else:
                raise ExportError(f"OUT {place}: appeared while the export ran; nothing was written")
            _flush(place.parent)
        finally:
            shutil.rmtree(stage, ignore_errors=True)  # unfinished, or the folder that was replaced


def _replace_folder(new: Path, place: Path) -> None:
    """Put the folder `new` at `place`; what was there may lie at `new` afterwards, for the caller to remove.

    Raises:
        OSError: if the system refuses; `place` is as it was.
    """
    if exchange(new, place):
        return
    # The old folder is moved aside, and back on failure; `_restore` finds it after a kill in between.
    parent = Path(tempfile.mkdtemp(prefix=_aside_prefix(place), dir=place.parent))
    aside = parent / place.name
    with _locked(parent):
        try:
            place.rename(aside)
            try:
                new.rename(place)
            except OSError:
                aside.rename(place)
                raise
        finally:
            if os.path.lexists(place):
                shutil.rmtree(parent, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system has no such call.

    Raises:
        OSError: if the call exists and fails.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    failed = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if failed and (code := ctypes.get_errno()) not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), str(other))
    return not failed


def _restore(place: Path) -> bool:
    """Move back a folder that was moved aside by a process killed before it put its own there."""
    found = False
    for folder in _beside(place, _aside_prefix(place)):
        with _abandoned(folder) as free:
            if not free:
                continue
            aside = folder / place.name
            if aside.is_dir() and not os.path.lexists(place):
                aside.rename(place)
                found = True
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _beside(place: Path, prefix: str) -> list[Path]:
    return [path for path in place.parent.iterdir() if path.name.startswith(prefix)]


def _aside_prefix(place: Path) -> str:
    return f".{place.name}.replaced-"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which ends with the process: `_abandoned` tells by it."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def _abandoned(folder: Path) -> Iterator[bool]:
    """Whether the process that worked in a folder is gone; the folder stays locked meanwhile."""
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
