"""Writes a folder, or a few files together, whole or not at all."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coord_codec import RunError
from coord_codec.commands.partial_folder import clear_leftovers, partial_folder

_LOG = logging.getLogger(__name__)


@contextmanager
def output_folder(out: Path, single: bool) -> Iterator[Path]:
    """Yield a hidden folder to write into, which becomes `out` at the end; with `single` its files are moved there."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for folder in clear_leftovers(out):
            _LOG.info(f"{folder}: removed; an earlier call was killed while it wrote there")
        with partial_folder(out) as partial:
            yield partial
            if not single:
                partial.replace(out)
                return
            if existing := [file.name for file in partial.iterdir() if out.with_name(file.name).exists()]:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(out.with_name(min(existing))))
            # The records last: without their summary they would be read as if their images lay beside them.
            for file in sorted(partial.iterdir(), key=lambda file: file.name == out.name):
                file.replace(out.with_name(file.name))
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise RunError(
                f"{out}: another call has written there in the meantime, and nothing was replaced; see what it wrote, "
                "or choose another --out"
            ) from None
        raise RunError(f"{out}: cannot be written ({error.strerror})") from None
