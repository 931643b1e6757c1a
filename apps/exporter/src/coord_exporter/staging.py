"""All or nothing: everything is written to a hidden folder beside OUT, made durable, and renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ExportError, InputError
from .flushing import sync_file
from .replacing import abandoned, beside, put_back, replace_folder

_MARGIN = 16 << 20  # small files and the file system's own bookkeeping


def check_out(out: Path, inputs: tuple[Path, ...], force: bool) -> list[str]:
    """Refuse an OUT that would overwrite something or mix with the inputs.

    Returns:
        Warnings: that an OUT was brought back which a killed run had moved aside.

    Raises:
        InputError: saying which.
    """
    place = out.resolve()
    for folder in inputs:
        given = folder.resolve()
        if place == given or given in place.parents or place in given.parents:
            raise InputError(f"OUT {out}: lies inside, around or on the input {folder}; choose another place")
    if not place.parent.is_dir():
        raise InputError(f"OUT {out}: the folder {place.parent} does not exist; create it first")
    back = " (brought back: a run that was to replace it was killed)" if put_back(place) else ""
    if not os.path.lexists(out):
        return []
    if not force:
        raise InputError(f"OUT {out}: exists already{back}; choose another name, or --force to replace it")
    if not out.is_dir() or (any(out.iterdir()) and not (out / "config.json").exists()):
        raise InputError(
            f"OUT {out}: --force replaces a checkpoint folder, and this is something else; move it away"
        )
    return [f"OUT {out}: was there already{back}"] if back else []


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
    """A hidden folder beside OUT, which becomes OUT if the block ends well and vanishes if it does not.

    A killed process leaves its hidden folder behind, and OUT as it was or whole and new; the next export to the same
    OUT removes what lies about.

    Raises:
        ExportError: if OUT appeared meanwhile.
    """
    place = out.resolve()
    prefix = f".{place.name}.partial-"
    _remove_abandoned(place, prefix)
    stage = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    lock = os.open(stage, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stage.chmod(0o777 & ~_umask())
        yield stage
        for path in (*stage.rglob("*"), stage):
            sync_file(path)
        _put_in_place(stage, place, force)
        sync_file(place.parent)
    finally:
        shutil.rmtree(stage, ignore_errors=True)  # unfinished, or the folder that was replaced
        os.close(lock)


def _put_in_place(stage: Path, place: Path, force: bool) -> None:
    if not os.path.lexists(place):
        stage.rename(place)
    elif force:
        replace_folder(stage, place)
    else:
        raise ExportError(f"OUT {place}: appeared while the export ran; nothing was written")


def _remove_abandoned(place: Path, prefix: str) -> None:
    for stage in beside(place, prefix):
        with abandoned(stage) as free:
            if free:
                shutil.rmtree(stage, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
