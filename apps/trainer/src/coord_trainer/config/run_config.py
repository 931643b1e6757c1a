"""`RunConfig`: the complete, frozen configuration of a run, checked before any slow import.

It is merged by OmegaConf from YAML files, each with at most one `extends`, and from `section.key=value` words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from coord_codec import GEOMETRIES, InputError
from coord_codec.commands.plugins import import_plugins
from coord_codec.files import read_text
from coord_trainer.config.base import Section
from coord_trainer.config.objective import CUSTOM_RULES, CustomConfig
from coord_trainer.config.rules import first_contradiction
from coord_trainer.config.sections import (
    DATA_RULES,
    EVALUATION_RULES,
    RUN_RULES,
    DataSection,
    EvaluationSection,
    ModelSection,
    RunSection,
)
from coord_trainer.config.swift_arguments import TRAINING_RULES, argument_table, check_training, did_you_mean, yaml_word
from coord_trainer.console import say_once

_MERGE_ERRORS = (OmegaConfBaseException, TypeError)
"""OmegaConf raises a TypeError where a list would replace a section."""


class RunConfig(Section):
    """The configuration of one run, one field per section."""

    run: RunSection = Field(default_factory=RunSection, description="folder, seed and conduct of the run")
    model: ModelSection = Field(default_factory=ModelSection, description="the checkpoint that is trained")
    data: DataSection = Field(default_factory=DataSection, description="annotations, images and target text")
    custom: CustomConfig = Field(default_factory=CustomConfig, description="coordinate tokens and loss terms")
    training: dict[str, Any] = Field(
        default_factory=dict, description="any supported argument of ms-swift's SFT, for example learning_rate"
    )
    evaluation: EvaluationSection = Field(
        default_factory=EvaluationSection, description="what is generated and scored after training"
    )
    plugins: tuple[str, ...] = Field(
        (),
        description="Python files or modules that are imported first and register rows of your own: loss terms, "
        "geometries, model families, views",
    )

    @field_validator("training")
    @classmethod
    def _swift_takes(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        custom = info.data.get("custom")
        return check_training(value, offsets=custom is not None and custom.coord_offset.enabled)

    @model_validator(mode="before")
    @classmethod
    def _plugins_come_first(cls, values: Any) -> Any:
        """Import the plugins, since they register rows that other settings name."""
        plugins, geometry = _at(values, "plugins"), _at(values, "data", "geometry")
        if isinstance(plugins, (list, tuple)):
            import_plugins((plugin for plugin in plugins if isinstance(plugin, str)), "plugins")
        if isinstance(geometry, str) and geometry not in GEOMETRIES:
            raise ValueError(
                f"data.geometry: expected one of {', '.join(GEOMETRIES)}, found {geometry!r}; one of your own is added "
                "by a file that calls coord_codec.register_geometry and is named in plugins"
            )
        return values

    @model_validator(mode="after")
    def _sections_agree(self) -> RunConfig:
        if problem := first_contradiction(self, CUSTOM_RULES, RUN_RULES, DATA_RULES, EVALUATION_RULES, TRAINING_RULES):
            raise ValueError(problem)
        return self


def _at(values: Any, *names: str) -> Any:
    """Return a value of a configuration that is not validated yet; None if there is none."""
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else getattr(values, name, None)
    return values


def load_run_config(
    file: Path | None, overrides: Sequence[str], base: Path | None = None, trains: bool = True, needs_data: bool = False
) -> RunConfig:
    """Resolve a config file and overrides.

    Args:
        file: YAML; paths in `extends` are relative to the file, or else to the working folder
        overrides: words like `run.dir=out`, values in YAML
        base: another YAML that `file` overrides, as if its topmost parent extended it
        trains: false for inference, which needs no objective
        needs_data: whether a setting that a file leaves open (`???`), such as `data.annotations`, has to be given

    Raises:
        InputError: a setting is wrong or left open; the message names file and field.
    """
    merged = OmegaConf.create({})
    for path in (base, file):
        if path is not None:
            merged = _override(merged, _read(path, ()), str(path))
    for word in overrides:
        merged = _override(merged, _settings_of(word), word)
    try:
        values = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        raise InputError(f"{file or 'command line'}: {_first_line(error)}") from None
    left_open = [name for name, value in flat_settings(values).items() if value == _LEFT_OPEN]
    for name in left_open:
        *path, key = name.split(".")
        section = values
        for part in path:
            section = section[part]
        section[key] = None
    sources = [] if file is None else [str(file)]
    if overrides or file is None:
        sources.append("command line")
    config = check_run_config(values, " and ".join(sources), trains)  # a mistyped key is told before a missing one
    for name in left_open:
        if needs_data and not (name == "data.annotations" and config.data.sources):
            raise InputError(f"{file}: {name} has to be given, as this configuration is for own data: add {name}=PATH")
    return config


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
        return OmegaConf.to_container(OmegaConf.from_dotlist([word]))
    except (*_MERGE_ERRORS, yaml.YAMLError, ValueError) as error:
        raise InputError(f"{word}: {_first_line(error)}") from None


_LEFT_OPEN = "???"
"""The value of a setting that a file leaves to its user."""
_ENDS = ("max_steps", "num_train_epochs")
"""The two settings of `training` that end it, of which the later one counts."""


def _override(earlier: DictConfig, later: dict[str, Any], source: str) -> DictConfig:
    """Return settings overridden by those of a later file or word, which an error names."""
    try:
        settings = OmegaConf.create(later)
        decodings = [OmegaConf.select(part, "evaluation.decoding") for part in (earlier, settings)]
        if None not in decodings and type(decodings[0]) is not type(decodings[1]):
            earlier.evaluation.pop("decoding")  # a list of decodings, and the settings of a single one
        training = later.get("training")
        ends = [name for name in _ENDS if isinstance(training, dict) and training.get(name) is not None]
        for name in _ENDS:
            if ends and name not in ends and OmegaConf.select(earlier, f"training.{name}") is not None:
                say_once(f"note: {source}: training.{ends[0]} replaces training.{name}={earlier.training.pop(name)}")
        return OmegaConf.merge(earlier, settings)
    except _MERGE_ERRORS as error:
        raise InputError(f"{source}: {_first_line(error)}") from None


def check_run_config(values: Any, source: str, trains: bool = True) -> RunConfig:
    """Validate a mapping; the error message has one line per fault, each with the field's dotted name."""
    try:
        if isinstance(values, dict):
            # A missing section would be validated without the context, and its fault would hide unknown keys.
            values = {"custom": {}} | values
        return RunConfig.model_validate(values, context={"trains": trains})
    except ValidationError as error:
        lines = list({_field(item): _message(item) for item in reversed(error.errors())}.values())[::-1]
        raise InputError(f"{source}: " + "\n".join(lines)) from None


_TEXT = {"string_type": "expected text", "path_type": "expected a path"}
_EXPECTED = _TEXT | {"tuple_type": "expected a list"}
"""Words for the types of pydantic's errors that it explains in terms of Python."""


def _field(item: Any) -> str:
    """Return the dotted name of a field, without the names that pydantic adds for members of a union."""
    return ".".join(str(part) for part in item["loc"] if not re.search(r"[\[(]", str(part)))


def _message(item: Any) -> str:
    field = _field(item)
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return f"{field}: unknown key{_near(item['loc'])}"
    if message.startswith(("custom.", "data.", "training.", "evaluation.", "model.", "run.", "plugins:")):
        return message  # the validator has named the fields itself
    value, kind = item.get("input"), item["type"]
    message = _EXPECTED.get(kind, message[:1].lower() + message[1:])
    hint = yaml_word(value, is_text=kind in _TEXT)
    hint = f"; write [{value}]" if kind == "tuple_type" and isinstance(value, str) else hint
    return f"{field}: {message}, found {value!r}{hint}"


def _near(location: Sequence[Any]) -> str:
    """Return a hint about an unknown key: where it belongs, the most similar key, or all keys of the section."""
    model: Any = RunConfig
    for part in location[:-1]:
        if isinstance(part, int):  # an entry of a list of sections
            model = get_args(model)[0]
            continue
        info = getattr(model, "model_fields", {}).get(part)
        model = info.annotation if info is not None else None
    name, keys = str(location[-1]), list(getattr(model, "model_fields", ()))
    elsewhere = [path for path in _paths(RunConfig) if path.rpartition(".")[2] == name]
    if name in argument_table():
        elsewhere.append(f"training.{name}")
    if len(elsewhere) == 1:
        return f"; it belongs at {elsewhere[0]}"
    if hint := did_you_mean(name, keys):
        return hint
    return f"; known here: {', '.join(keys)}" if keys else ""


def _paths(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every section and key."""
    for name, info in model.model_fields.items():
        yield prefix + name
        if hasattr(info.annotation, "model_fields"):
            yield from _paths(info.annotation, f"{prefix}{name}.")


def read_yaml(file: Path) -> Any:
    """Return the contents of a YAML file; an `InputError` if it is not valid or states a key twice."""
    try:
        return OmegaConf.to_container(OmegaConf.create(read_text(file)))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _read(file: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
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
    beside = file.parent / base
    parent = _read(beside if beside.is_file() else Path(base), (*seen, file.resolve()))
    return OmegaConf.to_container(_override(OmegaConf.create(parent), values, str(file)))


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
