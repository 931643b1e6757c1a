"""Commands about configuration and environment: `config`, `doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from coord_trainer.cli.main import app
from coord_trainer.cli.options import load_libraries


@app.command("config")
def list_config(
    prefix: Annotated[
        str,
        typer.Argument(
            help="A section, a key or its beginning, such as data.augment; or a word to search for, such as lr."
        ),
    ] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page of the reference.")] = False,
) -> None:
    """List configuration keys with their type, default and meaning.

    Example: uv run apps/trainer config custom.coord_offset
    """
    from coord_trainer.config.reference import as_page, as_text, config_keys

    keys = config_keys(prefix)
    typer.echo(as_page(keys) if markdown else as_text(keys))


@app.command()
def doctor() -> None:
    """Check versions, devices, and that ms-swift still has the functions which training overrides."""
    load_libraries()
    from coord_trainer.swift.doctor import examine

    examine()
