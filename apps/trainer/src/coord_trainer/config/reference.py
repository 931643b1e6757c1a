"""Lists every configuration key with its type, default and meaning, as the models define them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from coord_codec import InputError
from coord_codec.geometry.table import KnownGeometry
from coord_data.reading.rules import format_name
from coord_detect.settings.words import did_you_mean
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.swift_arguments import ELSEWHERE, argument_table

_NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path", NoneType: "null"}


class ConfigKey(NamedTuple):
    """One key of a configuration: its dotted name, type in words, default as YAML, and what it does."""

    name: str
    type: str
    default: str
    meaning: str


def config_keys(prefix: str = "") -> list[ConfigKey]:
    """Return the keys that begin with `prefix`, or else those whose name or meaning has the word.

    Args:
        prefix: a section, a key or the beginning of one, in the order of the models; or a word to search for

    Raises:
        InputError: no key begins with it, and none has it.

    Example:
        >>> [key.name for key in config_keys("lr")][:2]
        ['custom.coord_offset.embed_lr', 'custom.coord_offset.head_lr']
    """
    keys = [*_keys(RunConfig, ""), *_training_keys()]
    chosen = [key for key in keys if key.name.startswith(prefix)]
    if prefix in ("", "training"):  # the training arguments are listed only if one is asked for
        chosen = [key for key in chosen if not key.name.startswith("training.")]
    if not chosen and prefix:
        word, named = prefix.lower(), did_you_mean(prefix, argument_table(), ELSEWHERE)
        found = [key for key in keys if word in key.name.lower() or named.endswith(f" {key.name[9:]}?")]
        chosen = found or [key for key in keys if word in key.meaning.lower()]
    if not chosen:
        hint = did_you_mean(prefix, [key.name for key in keys])
        sections = ", ".join(RunConfig.model_fields)
        raise InputError(f"no configuration key begins with {prefix!r}{hint}; the sections are {sections}")
    return chosen


def as_text(keys: list[ConfigKey]) -> str:
    """Return the keys as text for the terminal, two lines per key."""
    return "\n".join(f"{key.name}: {key.type}; default {key.default}\n    {key.meaning}" for key in keys)


_PAGE = """\
# Every config key

`uv run apps/trainer config` lists these keys, and `uv run apps/trainer config --markdown` prints this page. A config is
YAML; `section.key=value` words override it. Everything under `training:` is a supported argument of ms-swift's SFT:
`uv run apps/trainer config training.lora_rank` explains one; any other argument is refused with a reason.

"""


def as_page(keys: list[ConfigKey]) -> str:
    """Return the page of the reference: its head, and `as_markdown`."""
    return _PAGE + as_markdown(keys)


def as_markdown(keys: list[ConfigKey]) -> str:
    """Return the keys as Markdown tables, one per section."""
    sections: dict[str, list[ConfigKey]] = {}
    for key in keys:
        sections.setdefault(key.name.rpartition(".")[0] or key.name, []).append(key)
    lines = []
    for section, rows in sections.items():
        lines += [f"## {section}", "", "| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(map(_cell, (f'`{n}`', t, f'`{d}`', meaning)))} |" for n, t, d, meaning in rows]
        lines.append("")
    return "\n".join(lines)


def _keys(model: type[BaseModel], prefix: str) -> Iterator[ConfigKey]:
    explained = _attributes(model)
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _keys(info.annotation, f"{prefix}{name}.")
            continue
        meaning = info.description or explained.get(name, "")
        yield ConfigKey(prefix + name, _type(info.annotation, info.metadata), _default(info), meaning)
        entry = next(iter(get_args(info.annotation)), None) if get_origin(info.annotation) is tuple else None
        if isinstance(entry, type) and issubclass(entry, BaseModel):
            yield from _keys(entry, f"{prefix}{name}[].")


def _training_keys() -> Iterator[ConfigKey]:
    for row in argument_table().values():
        without = f"; has no effect without training.{row.needs.replace('=', ': ')}" if row.needs else ""
        yield ConfigKey(f"training.{row.name}", row.expected, "as in ms-swift", f"ms-swift's `--{row.name}`{without}")


def _attributes(model: type[BaseModel]) -> dict[str, str]:
    """Return the meanings under `Attributes:` in a docstring, as the packages' config models have them."""
    text = inspect.getdoc(model) or ""
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.*)(?:\n {8}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def _type(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = arguments[1].metadata if isinstance(arguments[1], FieldInfo) else arguments[1:]
        return _type(arguments[0], inner)
    if origin is Literal:
        return ", ".join(map(str, arguments[:-1])) + f" or {arguments[-1]}"
    if origin in (Union, UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin in (list, tuple):
        return f"list of {_plural(_type(arguments[0]))}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "{" + ", ".join(annotation.model_fields) + "}"
    if names := next((list(item) for item in metadata if isinstance(item, KnownGeometry)), None):
        return ", ".join(names) + " or one of a plugin"
    if any(getattr(item, "func", None) is format_name for item in metadata):
        from coord_data.formats.registry import FORMATS

        return f"auto, {', '.join(FORMATS)} or one of a plugin"
    return _NAMES[annotation] + _bounds(metadata)


def _plural(name: str) -> str:
    return re.sub(r"^(whole )?(number|path|text)\b", r"\1\2s", name).replace("texts", "names")


def _bounds(metadata: list[Any] | tuple[Any, ...]) -> str:
    for attribute, words in (("ge", "of at least"), ("gt", "above")):
        for bound in (getattr(constraint, attribute, None) for constraint in metadata):
            if bound is not None:
                return f" {words} {bound}"
    return ""


def _default(info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if isinstance(value, Path):
        return str(value)
    return json.dumps(value, default=lambda section: section.model_dump(mode="json"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")
