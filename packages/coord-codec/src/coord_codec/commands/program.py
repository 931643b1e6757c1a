"""What the programs have in common: `--version`, and one line with an exit code for a user's mistake. Needs typer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from coord_codec.commands.exit_codes import exit_codes
from coord_codec.other_words import command_hint, option_hint, use


@contextmanager
def _named_as_ours() -> Iterator[None]:
    """Name the option that does it where an option of another program is not one of the command's."""
    try:
        yield
    except Exception as error:
        name, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
        if type(error).__name__ == "NoSuchOption" and context is not None:
            parameters: list[Any] = context.command.params
            options = {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
            takes_settings = any("section.key" in (each.metavar or "") for each in parameters)
            if hint := option_hint(str(name), options, takes_settings):
                vars(error).update(message=f"No such option: {name}{use(hint)}", possibilities=[])
        raise


class Commands(TyperGroup):
    """The commands of a program; a user's mistake is one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        with exit_codes(quiet=self.is_quiet()), _named_as_ours():
            return super().invoke(ctx)

    def make_context(self, *args: Any, **given: Any) -> Any:
        """Read the options before a command."""
        with _named_as_ours():
            return super().make_context(*args, **given)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words name."""
        if args and self.get_command(ctx, args[0]) is None and (hint := command_hint(args[0], self.commands)):
            ctx.fail(f"No such command {args[0]!r}{use(hint)}")
        return super().resolve_command(ctx, args)

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
