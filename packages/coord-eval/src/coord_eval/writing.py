"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write under a temporary name in the same folder, then rename.

    Raises:
        OSError: When the disk or the folder does not take it; an older file stays as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    partial = Path(name)
    try:
        # Half a surrogate pair, which models can emit, has no UTF-8 form.
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private to their owner; a report is as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o666 & ~umask)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
