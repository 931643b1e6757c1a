"""The entry point of the command line: environment, exit codes, and the first run if no command is named.

Help and errors in the command line or a configuration are printed before torch is imported: each command imports the
slow libraries only after the configuration has been checked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from coord_codec.commands.exit_codes import stop
from coord_codec.commands.program import Commands, version_option
from coord_detect.console import is_first
from coord_detect.environment import set_environment

_EXAMPLES = """

Examples:

  uv run apps/trainer

  uv run apps/trainer data.shapes.train=500 run.dir=small

  uv run apps/trainer train -c configs/dlora/coord_offset.yaml data.annotations=a.json

  uv run apps/trainer compare configs/phase1/*.yaml --seeds 3

  uv run apps/trainer config data.augment
"""


def main() -> None:
    """Run a command; errors are printed as one message on stderr and set the exit code."""
    set_environment()
    installed = Path(sys.argv[0]).name == "coord-trainer"
    app(prog_name=None if installed else "uv run apps/trainer")


class _Commands(Commands):
    """The commands; settings without a command are passed to the first run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in args:
            if dashed := re.match(r"--([a-z_]+(\.\w+)+)", word):
                stop(f"error: {word}: settings are written without dashes: {dashed[1]}=VALUE", 2)
        first = args[0] if args else ""
        if not args or first.split("=")[0] == "--adapter" or ("=" in first and first[:1] != "-"):
            args = ["first-run", *args]
        return super().parse_args(ctx, args)

    def is_quiet(self) -> bool:
        return not is_first()


app = typer.Typer(
    cls=_Commands,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train vision-language models to detect objects with coordinate tokens, score it and write a report.\n\n"
    "Without a command it carries out the built-in first run in a few minutes, with settings if given." + _EXAMPLES,
)


@app.callback()
def _common(version: Annotated[bool, version_option("coord-trainer")] = False) -> None:
    """Options before a command."""
