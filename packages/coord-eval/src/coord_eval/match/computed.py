"""Fields of a frozen dataclass that are computed on first use, unless they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

Value = TypeVar("Value")


class _NotComputed:
    """The default of a field that is computed on first use."""

    def __repr__(self) -> str:
        return "computed on first use"


_NOT_COMPUTED = _NotComputed()


class _Computed:
    """Descriptor of one field; the value lies in the dictionary of the instance."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return _NOT_COMPUTED  # `dataclass` takes this for the default
        value = instance.__dict__.get(self._name, _NOT_COMPUTED)
        if value is _NOT_COMPUTED:
            value = instance.__dict__[self._name] = self._function(instance)
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value


def computed(function: Callable[[Any], Value]) -> Value:
    """Return the default of a dataclass field that `function` computes from the instance on first use.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Square:
        ...     side: float
        ...     area: float = computed(lambda square: square.side**2)
        >>> Square(3.0).area, Square(3.0, area=8.0).area
        (9.0, 8.0)
    """
    return cast(Value, _Computed(function))
