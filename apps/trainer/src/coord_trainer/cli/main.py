"""The command line's frame: environment, exit codes, and the first run where no command is named.

Help, mistakes in the command line and mistakes in a configuration are answered before torch is imported: each command
imports what does its work only once the configuration has been checked.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from coord_codec import InputError
from coord_trainer.console import RunError, is_first
from coord_trainer.elsewhere import pointer

_ENVIRONMENT = {
    # swift and Hugging Face look these up while they are imported; no look-up unless a configuration asks for it.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "LOG_LEVEL": "WARNING",  # of swift's logger while it is imported
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "KINETO_LOG_LEVEL": "99",  # the profiler warns when there is no GPU
}
_SPIN = "3000"
"""Turns that a thread of PyTorch waits awake for the others (300,000 by default). Where another program has one of two
cores, the first run's steps take .5 s instead of 3 to 8 s, and where nothing else runs as long as ever."""


_EXAMPLES = """

Examples:

  uv run apps/trainer

  uv run apps/trainer data.shapes.train=500 run.dir=small

  uv run apps/trainer train -c configs/dlora/coord_offset.yaml

  uv run apps/trainer compare configs/phase1/*.yaml --seeds 3

  uv run apps/trainer config data.max
"""


def main() -> None:
    """Run a command; mistakes become one message on stderr and an exit code."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPIN)
    if os.environ.get("RANK", "0") != "0":
        os.environ["TQDM_DISABLE"] = "1"  # one bar is enough
    installed = Path(sys.argv[0]).name == "coord-trainer"
    app(prog_name=None if installed else "uv run apps/trainer")


class _Commands(TyperGroup):
    """The commands; words of a configuration without a command belong to the first run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in args:
            if dashed := re.match(r"--([a-z_]+(\.\w+)+)", word):
                _stop(f"error: {word}: settings have no dashes in front: {dashed[1]}=VALUE", 2)
        first = args[0] if args else ""
        if not args or first.split("=")[0] == "--adapter" or ("=" in first and first[:1] != "-"):
            args = ["first-run", *args]
        elif place := pointer(first):
            _stop(f"error: {first}: no such command{place}", 2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _exit_codes():
            return super().invoke(ctx)


@contextmanager
def _exit_codes() -> Iterator[None]:
    """2 for bad input, 1 for a run that failed, 130 for an interrupt; no traceback for any of them."""
    try:
        yield
    except InputError as error:
        _stop(f"error: {error}", 2)
    except RunError as error:
        _stop(f"error: {error}", 1)
    except PermissionError as error:
        _stop(f"error: {error.filename or error}: {error.strerror or 'no permission'}; choose another place", 1)
    except OSError as error:
        if error.errno == errno.EROFS:
            _stop(f"error: {error.filename}: lies on a read-only file system; choose another place", 1)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename or "the disk"
        _stop(f"error: {place}: no space left; free some or choose another place", 1)
    except KeyboardInterrupt as error:  # of a run: `Interrupted`, which says how to go on
        if is_first():
            print(str(error) or "interrupted", file=sys.stderr, flush=True)
        sys.exit(getattr(error, "code", 130))


def _stop(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train Qwen3-VL to detect objects with coordinate tokens, score it and write a report.\n\n"
    "Without a command it carries out the built-in first run, in a few minutes; settings may follow." + _EXAMPLES,
)
