"""Checks settings that name parts of the model, since a name without a match would silently have no effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from coord_codec import InputError

_GROUPS = {"all-linear", "all-embedding", "all-norm", "all-router"}
"""Names that ms-swift expands to groups of modules."""


def check_named_parts(training: Mapping[str, Any], model: nn.Module) -> None:
    """Check that the modules and parameters named in `training:` exist in a model, which has no adapter yet.

    Raises:
        InputError: a setting is not a regular expression, or matches nothing in the model.

    Example:
        >>> check_named_parts({"target_modules": ["0"], "freeze_parameters": ["0.b"]}, nn.Sequential(nn.Linear(2, 2)))
    """
    modules = [name for name, _ in model.named_modules() if name]
    parameters = [name for name, _ in model.named_parameters()]
    is_last_part: Callable[[str, str], bool] = lambda name, part: f".{name}".endswith(f".{part}")  # noqa: E731
    for key, names, matches in (
        ("target_modules", modules, is_last_part),
        ("modules_to_save", modules, str.endswith),
        ("freeze_parameters", parameters, str.startswith),
        ("trainable_parameters", parameters, str.startswith),
    ):
        given = training.get(key) or ()
        for part in map(str, [given] if isinstance(given, str) else given):
            if part not in _GROUPS and not any(matches(name, part) for name in names):
                raise InputError(f"training.{key}: {part!r} is not in the model; its parts are {_examples(names)}")
    for key, names, fits in (
        ("target_regex", modules, re.fullmatch),
        ("freeze_parameters_regex", parameters, re.search),
        ("trainable_parameters_regex", parameters, re.search),
    ):
        if (text := training.get(key)) is None:
            continue
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise InputError(f"training.{key}: expected a regular expression, found {text!r} ({error})") from None
        if not any(fits(pattern, name) for name in names):
            raise InputError(f"training.{key}: nothing in the model matches {text!r}; its parts are {_examples(names)}")


def _examples(names: Iterable[str]) -> str:
    """Return the last six distinct names, with layer numbers replaced by `*`."""
    patterns = list(dict.fromkeys(re.sub(r"\b\d+\b", "*", name) for name in names))
    return ", ".join(patterns[-6:])
