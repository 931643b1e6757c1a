"""Error handling of all commands: a user's mistake gives one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from coord_codec.files import InputError

INTERRUPTED = 130


class CommandGroup(TyperGroup):
    """Group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and turn a user's mistake into one line on stderr and an exit code."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except InputError as error:
            _exit_with(error, 2)
        except BrokenPipeError:
            # The reader of the output has ended (`| head`), which is no error. What Python flushes on exit goes to the
            # null device.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            file_name = f"{error.filename}: " if error.filename else ""
            _exit_with(f"{file_name}{error.strerror or error}", 1)


def _exit_with(message: object, code: int) -> None:
    print(f"coord-eval: {message}", file=sys.stderr)
    raise typer.Exit(code)
