"""The `coord-detect` command. Exit codes: 0 done, 1 failed while running, 2 bad usage or bad input, 130 interrupted.

What needs NumPy, torch or a model is imported inside the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from coord_codec.commands.program import Commands, version_option
from coord_detect.cli.answering import COMMANDS
from coord_detect.console import is_first
from coord_detect.environment import set_environment


class _Commands(Commands):
    def is_quiet(self) -> bool:
        return not is_first()


app = typer.Typer(
    cls=_Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find objects in images with a model that answers in coordinate tokens, or with servers of it.",
)


@app.callback()
def _common(version: Annotated[bool, version_option("coord-detect")] = False) -> None:
    """Options before a command."""


for _command in COMMANDS:
    app.command()(_command)


def main() -> None:
    """Run a command; errors are printed as one message on stderr and set the exit code."""
    set_environment()
    app()
