"""Options that command lines share, and options that are made of the fields of a record. Needs typer."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

NewPlace = Annotated[Path, typer.Option("--out", help="The path of the result, which must not exist yet.")]
"""Option for the path of a result that must not exist yet."""
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Stop at any bad record of the annotations; otherwise bad records are left out and listed."
    ),
]
"""Option to stop at any bad record."""


def option_of(field: Any, default: Any = ..., metavar: str | None = None, flag: str = "") -> Any:
    """Return type and option of a field of a pydantic record: its type, least value and description.

    Args:
        field: of `model_fields`
        default: of the option, in place of that of the field
        metavar: what stands for the value in the help
        flag: the option of a boolean, which then has no opposite

    Returns:
        annotation and default of the parameter of a command
    """
    kind, least = field.annotation, next((part.ge for part in field.metadata if hasattr(part, "ge")), None)
    default = field.get_default() if default is ... else default
    text = field.description.replace("`", "")
    given: dict[str, Any] = {"help": f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."}
    given["show_default"] = default not in (None, False)
    if kind is int and least is not None:
        given["min"] = least
    if metavar is not None:
        given["metavar"] = metavar
    if default is None and type(None) not in get_args(kind):
        kind = kind | None
    return Annotated[kind, typer.Option(*([flag] if kind is bool and flag else []), **given)], default


def with_fields(record: Any, **named: str | None) -> Callable[[Any], Any]:
    r"""Return a decorator that gives a command options of a record's fields in place of its `**options`.

    Args:
        record: a pydantic model, whose fields state type, default and meaning of each option once
        named: the fields, each with what stands for its value in the help, or None

    Example:
        >>> from pydantic import BaseModel, Field
        >>> class Rules(BaseModel):
        ...     min_side: int = Field(0, ge=0, description="least side")
        >>> app = typer.Typer()
        >>> @app.command()
        ... @with_fields(Rules, min_side=None)
        ... def show(source: str, **options: Any) -> None:
        ...     print(source, options)
        >>> from typer.testing import CliRunner
        >>> CliRunner().invoke(app, ["a", "--min-side", "4"]).stdout
        "a {'min_side': 4}\n"
    """
    stated = []
    for name, metavar in named.items():
        kind, default = option_of(record.model_fields[name], metavar=metavar, flag=f"--{name.replace('_', '-')}")
        stated.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))

    def decorate(command: Any) -> Any:
        own = list(signature(command, eval_str=True).parameters.values())[:-1]
        first = [one.replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for one in own if one.default is Parameter.empty]
        others = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own if one.default is not Parameter.empty]
        taken = [*first, *others, *stated]
        command.__signature__ = Signature(taken)
        command.__annotations__ = {one.name: one.annotation for one in taken}
        return command

    return decorate
