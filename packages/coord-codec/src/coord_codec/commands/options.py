"""Options that command lines share, and options that are made of the fields of a record. Needs typer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from coord_codec.files import InputError
from coord_codec.settings import STRICT, Setting, flag_of, stated_settings

NewPlace = Annotated[Path, typer.Option("--out", help="The path of the result, which must not exist yet.")]
"""Option for the path of a result that must not exist yet."""
Strict = Annotated[bool, typer.Option("--strict", help=STRICT.text)]
"""Option to stop at any bad record."""


@dataclass(frozen=True)
class Options:
    """The options of a command that are made of the fields of a record.

    Attributes:
        record: its class, a pydantic model or a dataclass with fields by `coord_codec.settings.setting`
        parameters: an option for each field, whose type, default, limits and meaning are those of the field
    """

    record: Any
    parameters: tuple[Parameter, ...]

    def made(self, values: dict[str, Any]) -> Any:
        """Return the record of the values, which are taken out of the dictionary; its errors name the option."""
        given = {one.name: values.pop(one.name) for one in self.parameters}
        try:
            return self.record(**{name: value for name, value in given.items() if value is not None})
        except InputError as error:
            name, colon, message = str(error).partition(": ")
            raise InputError(f"{self._flag(name)}: {message}" if colon and name in given else str(error)) from None
        except ValueError as error:
            if not hasattr(error, "errors"):  # those of pydantic
                raise
            fault = error.errors()[0]
            flag = self._flag("_".join(map(str, fault["loc"])))
            message = fault["msg"].removeprefix("Value error, ").removeprefix(f"{flag}: ")
            raise InputError(f"{flag}: {message}") from None

    def _flag(self, name: str) -> str:
        return flag_of(name, stated_settings(self.record)[name] if is_dataclass(self.record) else Setting(""))


def options_of(record: Any, *names: str, **metavars: str | None) -> Options:
    """Return the options of a record.

    Args:
        record: its class
        names: the fields that are options; all that are stated if none is named
        metavars: further fields, each with what stands for its value in the help
    """
    chosen = dict.fromkeys(names) | metavars or dict.fromkeys(stated_settings(record))
    return Options(record, tuple(option(name, *_stated(record, name, metavars.get(name))) for name in chosen))


def option(name: str, kind: Any, stated: Setting) -> Parameter:
    """Return the parameter of a command for a setting of a type."""
    default = Parameter.empty if stated.default is ... else stated.default
    text = stated.text.replace("`", "")
    given: dict[str, Any] = {"help": f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."}
    given["show_default"] = not any(default is value for value in (None, False, Parameter.empty)) and default != ""
    limits = {"min": stated.least, "max": stated.most, "metavar": stated.metavar}
    given |= {key: value for key, value in limits.items() if value is not None}
    origin, parts = get_origin(kind), get_args(kind)
    if kind is str and stated.choices and not callable(stated.choices):
        literal: Any = Literal
        kind = literal[tuple(stated.choices)]
    elif callable(stated.choices):
        given["callback"] = _asking(stated.expected_name)
    elif stated.read is not None:
        given["parser"], kind = _reading(name, stated.read), Any
    elif origin in (tuple, Sequence):
        kind = list[parts[0]]  # type: ignore[valid-type]
    if get_origin(kind) is list and default:
        default = None  # the record has its own
    optional = default is None and type(None) not in parts and kind is not Any
    # A flag has an opposite where it is set by default.
    flags = stated.flag.split() or ([flag_of(name, stated)] if kind is bool and default is False else [])
    if optional:
        kind = kind | None
    if default is None:
        given["show_default"] = False
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, typer.Option(*flags, **given)]
    )


def with_options(*further: Sequence[Parameter], **records: Options) -> Callable[[Any], Any]:
    r"""Return a decorator that gives a command the options of records in place of the records themselves.

    Args:
        further: options whose values are passed as they are
        records: the options of a record, by the argument that is the record

    Example:
        >>> from pydantic import BaseModel, Field
        >>> class Rules(BaseModel):
        ...     min_side: int = Field(0, ge=0, description="least side")
        >>> app = typer.Typer()
        >>> @app.command()
        ... @with_options(rules=options_of(Rules, "min_side"))
        ... def show(source: str, *, rules: Rules) -> None:
        ...     print(source, rules)
        >>> from typer.testing import CliRunner
        >>> CliRunner().invoke(app, ["a", "--min-side", "4"]).stdout
        'a min_side=4\n'
    """
    passed = [*chain.from_iterable(further)]
    replaced = {*records, *(one.name for one in passed)}

    def decorate(command: Any) -> Any:
        own = [
            one.replace(kind=Parameter.KEYWORD_ONLY)
            for one in signature(command, eval_str=True).parameters.values()
            if one.name not in replaced and one.kind is not Parameter.VAR_KEYWORD
        ]

        @wraps(command)
        def run(**values: Any) -> Any:
            made = {name: options.made(values) for name, options in records.items()}
            return command(**values, **made)

        stated = [*chain.from_iterable(options.parameters for options in records.values()), *passed]
        described: Any = run
        described.__signature__ = Signature([*own, *stated])
        described.__annotations__ = {one.name: one.annotation for one in (*own, *stated)}
        return described

    return decorate


def _stated(record: Any, name: str, metavar: str | None = None) -> tuple[Any, Setting]:
    """Return the type of a field, and what it states of its setting."""
    if not is_dataclass(record):
        field = record.model_fields[name]
        return field.annotation, of_field(field, metavar=metavar)
    stated = stated_settings(record)[name]
    kind = next(one.type for one in fields(record) if one.name == name)
    return stated.word or eval(str(kind), vars(sys.modules[record.__module__])), stated


def of_field(field: Any, **stated: Any) -> Setting:
    """Return what a field of a pydantic model states of its setting; `stated` are further attributes."""
    least = next((part.ge for part in field.metadata if hasattr(part, "ge")), None)
    return Setting(field.description, **{"default": field.get_default(), "least": least} | stated)


def _asking(expected: Callable[[Any], str]) -> Callable[[Any], Any]:
    def known(value: Any) -> Any:
        if problem := expected(value):
            raise typer.BadParameter(problem)
        return value

    return known


def _reading(name: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(word: str) -> Any:
        try:
            return read(word)
        except InputError as error:
            raise typer.BadParameter(str(error).removeprefix(f"{name}: ")) from None

    return parse
