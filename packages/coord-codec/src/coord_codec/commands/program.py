"""What the programs have in common: `--version`, and one line with an exit code for a user's mistake. Needs typer."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from coord_codec.commands.exit_codes import exit_codes


class Commands(TyperGroup):
    """The commands of a program; a user's mistake is one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        with exit_codes(quiet=self.is_quiet()):
            return super().invoke(ctx)

    def is_quiet(self) -> bool:
        """Return whether an interrupt ends the program without a word."""
        return False


def version_option(package: str) -> Any:
    """Return the option `--version`, which prints the version of an installed package and ends the program."""

    def show(wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            print(f"{package} {version(package)}")
            raise typer.Exit

    return typer.Option("--version", callback=show, is_eager=True, help="Print the version.")
