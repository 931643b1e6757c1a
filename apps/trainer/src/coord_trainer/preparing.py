"""COCO annotations to instance JSONL, with what was left out listed."""

from __future__ import annotations

import os
from pathlib import Path

from coord_codec import write_instances

from .console import say
from .errors import InputError, RunError
from .picture_set import load_annotated


def prepare_instances(annotations: Path, images: Path, out: Path, strict: bool) -> None:
    """Write the usable records of `annotations` to `out`, picture paths relative to it.

    Raises:
        InputError: bad annotations, `out` exists, or (strict) any bad record.
        RunError: `out` cannot be written.
    """
    if out.exists():
        raise InputError(f"--out: {out} exists already; choose another name or move it away")
    pictures = load_annotated(annotations, images, "given", strict)
    root = os.path.relpath(pictures.root, out.parent)
    renamed = (i.model_copy(update={"image": str(Path(root) / i.image)}) for i in pictures.instances)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_instances(out, renamed)
    except OSError as error:
        raise RunError(f"{out}: cannot be written ({error.strerror})") from None
    say(f"{len(pictures)} records in {out}")
    for reason, count in pictures.notes.items():
        say(f"{count} {reason}")
    for problem in pictures.problems:
        say(f"left out: {problem.where}: {problem.field}: {problem.message}")
