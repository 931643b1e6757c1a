"""Records of settings: one frozen dataclass for each subject, whose fields state all that is said of a setting, once.

The record is an argument of functions. A command makes options of its fields (`coord_codec.commands.options`), a guide
a table (`settings_table`), and the record itself checks its values.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, wraps
from typing import Any, TypeVar

from coord_codec.files import InputError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Setting:
    """What the field of a record states of a setting besides its type.

    Attributes:
        text: what it means, the help of its option
        default: its value where none is given; `...` where one has to be
        flag: the option, or several names of it with spaces between; by default the name of the field
        metavar: what stands for its value in a help text
        least: least number
        most: greatest number
        choices: the names that it takes, or a function that returns those of a table which others add to
        word: type of the option's value, where it is another than that of the field
        read: returns the value of an option's word; it may raise an `InputError`
        acts_on: what it acts on, where that is not everything that takes the record
    """

    text: str
    default: Any = ...
    flag: str = ""
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    choices: Collection[str] | Callable[[], Collection[str]] = ()
    word: Any = None
    read: Callable[[str], Any] | None = None
    acts_on: str = ""

    def field(self) -> Any:
        """Return it as the field of a record."""
        return field(default=MISSING if self.default is ... else self.default, metadata={"setting": self})

    def expected_name(self, value: object) -> str:
        """Return what is expected in place of a name that is no choice; empty for one that is, or for other values."""
        if not self.choices or not isinstance(value, str):
            return ""
        known = self.choices() if callable(self.choices) else self.choices
        return "" if value in known else f"expected one of {', '.join(known)}, found {value!r}"


STRICT = Setting("Stop at any bad record of the annotations; otherwise bad records are left out and listed.", False)
"""Whether annotations have to be without a fault, in every record that has it."""


def setting(default: Any = ..., text: str = "", **stated: Any) -> Any:
    """Return a field of a record of settings; `stated` are further attributes of `Setting`."""
    return Setting(text, default, **stated).field()


def stated_settings(record: Any) -> dict[str, Setting]:
    """Return what the fields of a record, or of its class, state of settings, by name."""
    return _of_class(record if isinstance(record, type) else type(record))


@cache
def _of_class(record: Any) -> dict[str, Setting]:
    return {one.name: one.metadata["setting"] for one in fields(record) if "setting" in one.metadata}


class SettingsRecord:
    """The base class of records: a frozen dataclass, whose fields are made by `setting`.

    Example:
        >>> @dataclass(frozen=True)
        ... class Drawing(SettingsRecord):
        ...     order: str = setting("size", "Order of the boxes.", choices=("size", "given"))
        ...     most: int = setting(10, "Most boxes.", least=1, acts_on="pages")
        >>> Drawing(most=3).changed("pages"), Drawing().changed()
        (['most'], [])
        >>> Drawing(order="name")
        Traceback (most recent call last):
        coord_codec.files.InputError: order: expected one of size, given, found 'name'
        >>> Drawing(most=0)
        Traceback (most recent call last):
        coord_codec.files.InputError: most: expected a number of at least 1, found 0
    """

    def __post_init__(self) -> None:
        for name, stated in stated_settings(self).items():
            value = getattr(self, name)
            if not callable(stated.choices) and (problem := stated.expected_name(value)):
                raise InputError(f"{name}: {problem}")
            limits = {"least": (operator.ge, stated.least), "most": (operator.le, stated.most)}
            stated_limits = [(word, within, n) for word, (within, n) in limits.items() if n is not None]
            if isinstance(value, (int, float)) and not all(within(value, n) for _, within, n in stated_limits):
                bounds = " and ".join(f"at {word} {n:g}" for word, _, n in stated_limits)
                raise InputError(f"{name}: expected a number of {bounds}, found {value!r}")

    def changed(self, acts_on: str | None = None) -> list[str]:
        """Return the names of fields that differ from their defaults; with `acts_on` those that act on this alone."""
        chosen = [(n, one.default) for n, one in stated_settings(self).items() if acts_on in (None, one.acts_on)]
        return [name for name, default in chosen if getattr(self, name) != default]

    def check_acts_in(self, call: str) -> None:
        """Check that no changed field acts in another call alone.

        Raises:
            InputError: naming the field and the call in which it acts
        """
        for name, stated in stated_settings(self).items():
            acts_on = stated.acts_on
            if acts_on.endswith("()") and acts_on != f"{call}()" and getattr(self, name) != stated.default:
                raise InputError(f"{name}: it acts in {acts_on}, and has no effect in {call}(); leave it out")


def takes_fields_of(**records: Any) -> Callable[[Function], Function]:
    """Return a decorator by which a function takes the fields of its records as keywords too, as before version 0.3.

    Args:
        records: by the name of an argument the class of its record

    Example:
        >>> @dataclass(frozen=True)
        ... class Shape(SettingsRecord):
        ...     sides: int = setting(3, "Number of sides.")
        >>> @takes_fields_of(shape=Shape)
        ... def draw(shape=Shape()):
        ...     return shape.sides
        >>> with warnings.catch_warnings(record=True) as told:
        ...     warnings.simplefilter("always")
        ...     draw(sides=4), str(told[0].message)
        (4, 'draw(sides=...) is now draw(shape=Shape(sides=...)); the former goes with version 0.4')
    """
    home = {name: argument for argument, record in records.items() for name in stated_settings(record)}

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*values: Any, **named: Any) -> Any:
            for name in [name for name in named if name in home]:
                argument, value = home[name], named.pop(name)
                record = records[argument]
                called = function.__name__
                warnings.warn(
                    f"{called}({name}=...) is now {called}({argument}={record.__name__}({name}=...)); the former goes "
                    "with version 0.4",
                    DeprecationWarning,
                    stacklevel=2,
                )
                named[argument] = replace(named.get(argument, record()), **{name: value})
            return function(*values, **named)

        return call  # type: ignore[return-value]

    return decorate


def flag_of(name: str, stated: Setting) -> str:
    """Return the option of a setting, by its first name."""
    return stated.flag.split()[0] if stated.flag else f"--{name.replace('_', '-')}"


def settings_table(records: Mapping[str, Any], options: Collection[str] = ()) -> str:
    """Return records of settings, by the names of their arguments, as a table in Markdown.

    Args:
        records: classes of records
        options: the options that a command has
    """
    lines = ["| argument | in Python | option | default | what it means | acts on |", "|---|---|---|---|---|---|"]
    for argument, record in records.items():
        for name, stated in stated_settings(record).items():
            flag, value = flag_of(name, stated), stated.default
            values = value if isinstance(value, tuple) else () if value in (..., None) else (value,)
            default = ", ".join(f"`{one:g}`" if isinstance(one, float) else f"`{one}`" for one in values)
            shown = f"`{flag}`" if flag in options else ""
            cells = [argument, f"`{name}`", shown, default, stated.text, stated.acts_on]
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines)
