"""Options that several commands share; those about settings and requests are made of the records that state them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

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


def with_options_of(*records: type, settings: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    r"""Return a decorator that gives a command options in place of its `**options`.

    Args:
        records: dataclasses whose annotated fields state the options
        settings: keys of `SETTINGS`; the fields of `Settings` state type and meaning

    Example:
        >>> from typer.testing import CliRunner
        >>> app = typer.Typer()
        >>> @app.command()
        ... @with_options_of(settings=("speed",))
        ... def show(words: list[str], **options: Any) -> None:
        ...     print(words, words_of(options))
        >>> CliRunner().invoke(app, ["a", "--speed", "exact"]).stdout
        "['a'] ['evaluation.speed=exact']\n"
    """
    stated = []
    for record in records:
        hints = get_type_hints(record, include_extras=True)
        stated += [
            Parameter(one.name, Parameter.KEYWORD_ONLY, default=_default(one.default), annotation=hints[one.name])
            for one in fields(record)
            if get_origin(hints[one.name]) is Annotated
        ]
    stated += [_setting(name) for name in settings]

    def decorate(command: Any) -> Any:
        *own, _ = signature(command, eval_str=True).parameters.values()
        positional = [one for one in own if one.kind is not Parameter.KEYWORD_ONLY]
        taken = [*positional, *stated, *(one for one in own if one.kind is Parameter.KEYWORD_ONLY)]
        command.__signature__ = Signature(taken)
        command.__annotations__ = {one.name: one.annotation for one in taken}
        return command

    return decorate


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


def _default(value: Any) -> Any:
    from dataclasses import MISSING

    return Parameter.empty if value is MISSING else value


def _setting(name: str) -> Parameter:
    """Return the option of a setting; without it the setting is left as it is."""
    from coord_detect.settings.record import Settings

    kind: Any = Settings
    for part in SETTINGS[name].split("."):
        kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
        field = kind.model_fields[part]
        kind = field.annotation
    text = field.description.replace("`", "")
    shown = typer.Option(help=f"{text[:1].upper()}{text[1:]}.", show_default=False)
    kind = list[str] if get_origin(kind) is tuple else kind
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, shown])
