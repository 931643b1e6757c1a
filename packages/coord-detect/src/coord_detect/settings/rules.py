"""Contradictions between settings: a list of rules beside each section, of which the first that holds is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True)
class Rule:
    """Settings that contradict each other, `keys`: `when` says whether a configuration has the contradiction.

    `because` has the reason, and what to change.
    """

    when: Callable[..., Any]
    keys: tuple[str, ...]
    because: str

    def message(self, config: Any) -> str:
        """Return the message with the name and value of every setting."""
        return f"{' but '.join(f'{key} {_shown(value_of(config, key))}' for key in self.keys)}: {self.because}"


def first_contradiction(config: Any, *lists: Iterable[Rule]) -> str | None:
    """Return the message of the first rule that a configuration breaks; None if there is none."""
    return next((rule.message(config) for rules in lists for rule in rules if rule.when(config)), None)


def value_of(config: Any, key: str) -> Any:
    """Return the value of a dotted key; None for one that a mapping lacks."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, dict) else getattr(config, part)
    return config


def _shown(value: Any) -> str:
    if value is None:
        return "is not set"
    if isinstance(value, bool):
        return f"is {str(value).lower()}"
    if isinstance(value, tuple | list):
        if not value or not isinstance(value[0], BaseModel):
            return f"is [{', '.join(map(str, value))}]"
        names: list[str] = [item.name for item in value if getattr(item, "name", None) is not None]
        return f"has {', '.join(names)}" if len(names) == len(value) else f"has {len(value)} entries"
    if isinstance(value, dict):
        return "is a mapping"
    return f"is {value}"
