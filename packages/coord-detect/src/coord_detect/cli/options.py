"""Options that several commands share; those about settings and requests are made of the records that state them."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from coord_codec.commands.options import of_field, option

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[section.key=value]...", help="Settings that override those of --config.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="YAML of settings, such as the config.yaml of a run."),
]
Checkpoint = Annotated[
    Path,
    typer.Argument(
        help="A run folder, or the folder of a checkpoint or of an adapter whose base is on disk.", show_default=False
    ),
]

SETTINGS = {
    "views": "evaluation.views",
    "speed": "evaluation.speed",
    "boxes": "evaluation.decoding.boxes",
    "batch_size": "evaluation.batch_size",
    "device": "evaluation.device",
    "dtype": "model.dtype",
}
"""Options that stand for a setting: the name of the option, and that of the setting."""


def of_settings(*names: str) -> list[Parameter]:
    r"""Return options that stand for settings, by keys of `SETTINGS`; without one the setting is left as it is.

    Example:
        >>> from coord_codec.commands.options import with_options
        >>> from typer.testing import CliRunner
        >>> app = typer.Typer()
        >>> @app.command()
        ... @with_options(of_settings("speed"))
        ... def show(words: list[str], **options: Any) -> None:
        ...     print(words, words_of(options))
        >>> CliRunner().invoke(app, ["a", "--speed", "exact"]).stdout
        "['a'] ['evaluation.speed=exact']\n"
    """
    from coord_detect.settings.record import Settings

    stated = []
    for name in names:
        kind: Any = Settings
        for part in SETTINGS[name].split("."):
            kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
            field = kind.model_fields[part]
            kind = field.annotation
        stated.append(option(name, kind, of_field(field, default=None)))
    return stated


def words_of(options: dict[str, Any]) -> list[str]:
    """Take the options that stand for a setting out of `options`; returns the words `section.key=value`."""
    words = []
    for name in [name for name in options if name in SETTINGS]:
        value = options.pop(name)
        if isinstance(value, list):
            parts = [part for item in value for part in item.split(",") if part]
            value = f"[{','.join(parts)}]" if parts else None
        if value is not None:
            words.append(f"{SETTINGS[name]}={value}")
    return words
