"""How commands end: a user's mistake is one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from coord_codec.files import InputError

INTERRUPTED = 130


class CommandGroup(TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a user's mistake becomes one line on stderr and an exit code."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except InputError as error:
            _leave(error, 2)
        except BrokenPipeError:
            # The reader of our output is gone (`| head`), which is no error. What Python still flushes at its exit
            # goes to the null device.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _leave(f"{place}{error.strerror or error}", 1)


def _leave(message: object, code: int) -> None:
    print(f"coord-eval: {message}", file=sys.stderr)
    raise typer.Exit(code)
