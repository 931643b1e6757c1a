"""Makes a record of settings from YAML files, each with at most one `extends`, and from `section.key=value` words.

They are merged by OmegaConf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.files import read_text
from coord_codec.other_words import setting_hint, use
from coord_detect.console import say, say_once
from coord_detect.settings.record import Settings
from coord_detect.settings.words import did_you_mean, yaml_word

_MERGE_ERRORS = (OmegaConfBaseException, TypeError)
"""OmegaConf raises a TypeError where a list would replace a section."""
Record = TypeVar("Record", bound=Settings)
_SHOWN = 3


def load_settings(
    kind: type[Record], file: Path | None, overrides: Sequence[str], base: Path | None = None, trains: bool = False
) -> tuple[Record, list[str]]:
    """Return the record of a config file and overrides, and the settings that the file leaves open.

    Args:
        kind: the class of the record
        file: YAML; paths in `extends` are relative to the file, or else to the working folder. For `Settings` it may
            be the configuration of a run, whose other settings are passed over and told
        overrides: words like `run.dir=out`, values in YAML
        base: another YAML that `file` overrides, as if its topmost parent extended it
        trains: whether it is that of a training, which needs an objective

    Raises:
        InputError: a setting is wrong; the message names file and field.
    """
    merged = OmegaConf.create({})
    for path in (base, file):
        if path is not None:
            values = _read(kind, path, ())
            others = list(_take_others(kind, values)) if kind is Settings else []
            if others:
                say(
                    f"{path}: {counted(len(others), 'setting')} that answers do not depend on passed over: "
                    f"{', '.join(others[:_SHOWN])}{', ...' if len(others) > _SHOWN else ''}"
                )
            merged = _override(kind, merged, values, str(path))
    for word in overrides:
        merged = _override(kind, merged, _settings_of(word), word)
    try:
        settings = cast("dict[str, Any]", OmegaConf.to_container(merged, resolve=True))
    except OmegaConfBaseException as error:
        raise InputError(f"{file or 'command line'}: {_first_line(error)}") from None
    left_open = [name for name, value in flat_settings(settings).items() if value == _LEFT_OPEN]
    for name in left_open:
        *parts, key = name.split(".")
        section = settings
        for part in parts:
            section = section[part]
        section[key] = None
    sources = [] if file is None else [str(file)]
    if overrides or file is None:
        sources.append("command line")
    return check_settings(kind, settings, " and ".join(sources), trains), left_open


def _take_others(model: Any, values: Any, prefix: str = "") -> Iterator[str]:
    """Take what a record does not state out of the values of a file, and yield the dotted names.

    Raises:
        InputError: a name is nearly one of the record's
    """
    for key in list(values) if isinstance(values, dict) else ():
        info = model.model_fields.get(key)
        if info is not None and hasattr(info.annotation, "model_fields"):
            yield from _take_others(info.annotation, values[key], f"{prefix}{key}.")
        elif prefix + str(key) == "training" and isinstance(values[key], dict):
            yield from (f"training.{name}" for name in values[key] if name != "system")
            values[key] = {name: value for name, value in values[key].items() if name == "system"}
        elif info is None:
            if near := get_close_matches(str(key), model.model_fields, n=1, cutoff=0.85):
                raise InputError(f"{prefix}{key}: unknown key; did you mean {near[0]}?")
            del values[key]
            yield f"{prefix}{key}"


def _settings_of(word: str) -> dict[str, Any]:
    """Return the settings of a word `section.key=value`."""
    if "=" not in word or word.startswith(("-", "=")):
        raise InputError(f"{word}: expected section.key=value, for example run.dir=out")
    name, _, text = word.partition("=")
    if not text:
        raise InputError(f"{word}: expected a value, found nothing; {word}null unsets it, {word}'\"\"' is empty text")
    try:
        if "#" in text and "#" not in str(yaml.safe_load(text)):
            raise ValueError(f"what follows # is a comment in YAML; put the value in quotes: {name}='\"...\"'")
        return cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.from_dotlist([word])))
    except (*_MERGE_ERRORS, yaml.YAMLError, ValueError) as error:
        raise InputError(f"{word}: {_first_line(error)}") from None


_LEFT_OPEN = "???"
"""The value of a setting that a file leaves to its user."""


def _override(kind: type[Settings], earlier: DictConfig, later: dict[str, Any], source: str) -> DictConfig:
    """Return settings overridden by those of a later file or word, which an error names."""
    try:
        settings = OmegaConf.create(later)
        decodings = [OmegaConf.select(part, "evaluation.decoding") for part in (earlier, settings)]
        if None not in decodings and type(decodings[0]) is not type(decodings[1]):
            earlier.evaluation.pop("decoding")  # a list of decodings, and the settings of a single one
        for pair in kind.ALTERNATIVES:
            given = [name for name in pair if OmegaConf.select(settings, name) is not None]
            for name in set(pair).difference(given) if given else ():
                if (value := OmegaConf.select(earlier, name)) is not None:
                    section, _, key = name.rpartition(".")
                    OmegaConf.select(earlier, section).pop(key)
                    say_once(f"note: {source}: {given[0]} replaces {name}={value}")
        return cast("DictConfig", OmegaConf.merge(earlier, settings))
    except _MERGE_ERRORS as error:
        raise InputError(f"{source}: {_first_line(error)}") from None


def check_settings(kind: type[Record], values: Any, source: str, trains: bool = False) -> Record:
    """Validate a mapping; the error message has one line per fault, each with the field's dotted name."""
    try:
        if isinstance(values, dict):
            # A missing section would be validated without the context, and its fault would hide unknown keys.
            values = {"custom": {}} | values
        return kind.model_validate(values, context={"trains": trains})
    except ValidationError as error:
        lines = list({_field(item): _message(item, kind) for item in reversed(error.errors())}.values())[::-1]
        raise InputError(f"{source}: " + "\n".join(lines)) from None


_TEXT = {"string_type": "expected text", "path_type": "expected a path"}
_EXPECTED = _TEXT | {"tuple_type": "expected a list"}
"""Words for the types of pydantic's errors that it explains in terms of Python."""


_MAIN = {"data": "data.annotations", "model": "model.path", "run": "run.dir"}
"""The setting that a value means which is given in place of a section."""


def _field(item: Any) -> str:
    """Return the dotted name of a field, without the names that pydantic adds for members of a union."""
    return ".".join(str(part) for part in item["loc"] if not re.search(r"[\[(]", str(part)))


def _message(item: Any, kind: type[Settings]) -> str:
    field = _field(item)
    message: str = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return f"{field}: unknown key{_near(kind, item['loc'])}"
    if message.startswith(("custom.", "data.", "training.", "evaluation.", "model.", "run.", "plugins:")):
        return message  # the validator has named the fields itself
    value, fault = item.get("input"), item["type"]
    message = _EXPECTED.get(fault, message[:1].lower() + message[1:])
    hint = yaml_word(value, is_text=fault in _TEXT)
    hint = f"; write [{value}]" if fault == "tuple_type" and isinstance(value, str) else hint
    main = _MAIN.get(field, "") if fault in ("model_type", "model_attributes_type") else ""
    if main in {*setting_names(kind)}:
        return f"{field}: expected a section of settings, found {value!r}; write {main}={value}"
    return f"{field}: {message}, found {value!r}{hint}"


def _near(kind: type[Settings], location: Sequence[Any]) -> str:
    """Return a hint about an unknown key: where it belongs, the most similar key, or all keys of the section."""
    model: Any = kind
    for part in location[:-1]:
        if isinstance(part, int):  # an entry of a list of sections
            model = get_args(model)[0]
            continue
        info = getattr(model, "model_fields", {}).get(part)
        model = info.annotation if info is not None else None
    name, keys = str(location[-1]), list(getattr(model, "model_fields", ()))
    elsewhere = [path for path in (*setting_names(kind), *kind.further_names()) if path.rpartition(".")[2] == name]
    if len(elsewhere) == 1:
        return f"; it belongs at {elsewhere[0]}"
    if len(location) == 1 and (ours := setting_hint(name)) in {*setting_names(kind), *kind.further_names()}:
        return use(ours)
    if hint := did_you_mean(name, keys):
        return hint
    return f"; known here: {', '.join(keys)}" if keys else ""


def setting_names(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every section and setting of a record."""
    for name, info in model.model_fields.items():
        yield prefix + name
        if hasattr(info.annotation, "model_fields"):
            yield from setting_names(info.annotation, f"{prefix}{name}.")


def read_yaml(file: Path) -> Any:
    """Return the contents of a YAML file; an `InputError` if it is not valid or states a key twice."""
    try:
        return OmegaConf.to_container(OmegaConf.create(read_text(file)))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _read(kind: type[Settings], file: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if not file.is_file():
        found = "expected a config file, found a folder" if file.is_dir() else "no such config file"
        beside = sorted(file.parent.glob("*.yaml")) if not file.is_dir() else []
        raise InputError(f"{file}: {found}{did_you_mean(str(file), map(str, beside))}")
    if file.resolve() in seen:
        raise InputError(f"{file}: extends itself, through {' -> '.join(map(str, seen))}")
    values = read_yaml(file) or {}
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected a mapping of sections, found a {type(values).__name__}")
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise InputError(f"{file}: extends: expected one file name, found {base!r}")
    extended = file.parent / base
    parent = _read(kind, extended if extended.is_file() else Path(base), (*seen, file.resolve()))
    merged = _override(kind, OmegaConf.create(parent), values, str(file))
    return cast("dict[str, Any]", OmegaConf.to_container(merged))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def flat_settings(values: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested mappings: dotted name -> value."""
    if not isinstance(values, dict):
        return {name: values}
    parts = (flat_settings(value, f"{name}.{key}" if name else str(key)) for key, value in values.items())
    return {inner: value for part in parts for inner, value in part.items()}


def changed_settings(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ between two nested mappings, by dotted name; None for a missing value."""
    first, second = flat_settings(one), flat_settings(other)
    pairs = {name: (first.get(name), second.get(name)) for name in (first | second)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
