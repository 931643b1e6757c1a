"""What a run says: short lines on stdout, and ms-swift's own talk in a file."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from .ranks import is_first, rank

_TALKATIVE = ("", "swift", "modelscope", "transformers", "accelerate", "datasets", "deepspeed", "DeepSpeed")

_outside: list[TextIO] = []


def say(line: str) -> None:
    """Print a line above whatever progress bar is running; only the first rank speaks."""
    if is_first():
        # While swift_log redirects stdout, our own lines still go to the real one.
        out = _outside[-1] if _outside else sys.stdout
        tqdm.write(line, file=out)
        out.flush()


@contextlib.contextmanager
def swift_log(path: Path) -> Iterator[Callable[[], None]]:
    """Send what swift, transformers and friends print or log to `path`; progress bars stay on stderr.

    Ranks after the first have a file each, `swift.1.log` and so on.

    Yields a function to call once their modules are imported: they make their log handlers while importing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path if is_first() else path.with_name(f"{path.stem}.{rank()}{path.suffix}")
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [logger.handlers[:] for logger in loggers]
    out = sys.stdout
    with path.open("a", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        # Not a plain StreamHandler: swift silences those on the root logger while it is imported.
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))

        def take_over() -> None:
            for logger in loggers:
                logger.handlers[:] = [handler]
            logging.getLogger("swift").setLevel(logging.INFO)
            logging.captureWarnings(True)

        _outside.append(out)
        try:
            with warnings.catch_warnings():
                take_over()
                yield take_over
        finally:
            _outside.pop()
            logging.captureWarnings(False)
            for logger, handlers in zip(loggers, before, strict=True):
                logger.handlers[:] = handlers
            handler.close()
