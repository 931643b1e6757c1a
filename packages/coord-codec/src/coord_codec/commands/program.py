"""What the programs have in common: `--version`, and one line with an exit code for a user's mistake. Needs typer."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import typer
from typer.core import TyperGroup

from coord_codec.commands.exit_codes import exit_codes


class Commands(TyperGroup):
    """The commands of a program; a user's mistake is one line on stderr and an exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        for command in (self, *self.commands.values()):
            for parameter in command.get_params(ctx):  # with --help
                parameter.process_value = partial(_processed, parameter, parameter.process_value)  # type: ignore[method-assign]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        with exit_codes(quiet=self.is_quiet()):
            return super().invoke(ctx)

    def is_quiet(self) -> bool:
        """Return whether an interrupt ends the program without a word."""
        return False


def _processed(parameter: Any, usual: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Return the value of a parameter: a text, path, choice or default as it is, and another as typer makes it.

    From 0.29 on typer asks pydantic for each value, whose import takes as long as NumPy's.
    """
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None:
        return usual(context, value)
    kind, info = descriptor.annotation, descriptor.parameter_info
    if value is None and not parameter.required:
        value = () if parameter.multiple or parameter.nargs == -1 else None
    elif info.parser is not None:
        return usual(context, value)
    elif kind is Path and isinstance(value, str) and _is_any_path(info, value):
        value = Path(value)
    elif not (type(value) is kind or value in get_args(kind)):
        return usual(context, value)
    return parameter.callback(context, parameter, value) if parameter.callback else value


def _is_any_path(info: Any, value: str) -> bool:
    """Return whether nothing is asked of a path, or all of it is met."""
    is_asked = info.exists or info.writable or info.resolve_path or info.allow_dash or info.path_type
    is_readable = os.access(value, os.R_OK) or not os.path.lexists(value)
    return not is_asked and info.file_okay and info.dir_okay and is_readable


def version_option(package: str) -> Any:
    """Return the option `--version`, which prints the version of an installed package and ends the program."""

    def show(wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            print(f"{package} {version(package)}")
            raise typer.Exit

    return typer.Option("--version", callback=show, is_eager=True, help="Print the version.")
