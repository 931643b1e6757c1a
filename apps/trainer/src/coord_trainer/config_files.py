"""YAML files with one `extends`, and `section.key=value` words, merged by OmegaConf into one mapping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from .config import RunConfig
from .errors import InputError


def load_run_config(file: Path | None, overrides: Sequence[str], base: Path | None = None) -> RunConfig:
    """Resolve a config file and overrides.

    Args:
        file: YAML; paths in `extends` are looked up beside the file, then from the working folder.
        overrides: words like `run.dir=out`, values in YAML.
        base: another YAML that `file` is laid over, as if its topmost parent extended it.

    Raises:
        InputError: naming file and field.
    """
    merged = OmegaConf.merge(*(_read(path, ()) for path in (base, file) if path is not None), {})
    for word in overrides:
        if "=" not in word or word.startswith("-"):
            raise InputError(f"{word}: expected section.key=value, for example run.dir=out")
        try:
            merged = OmegaConf.merge(merged, OmegaConf.from_dotlist([word]))
        except (OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
            raise InputError(f"{word}: {_first_line(error)}") from None
    try:
        values = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        raise InputError(f"{file or 'command line'}: {_first_line(error)}") from None
    return check_run_config(values, str(file) if file else "command line")


def check_run_config(values: Any, source: str) -> RunConfig:
    """Validate a mapping; every complaint in one message, a line each, with the field's dotted name."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        lines = [_complaint(item) for item in error.errors()]
        raise InputError(f"{source}: " + "\n".join(lines)) from None


def _complaint(item: Any) -> str:
    field = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return f"{field}: unknown key{_near(item['loc'])}"
    if message.startswith(("custom.", "data.", "training.", "evaluation.", "model.", "run.")):
        return message  # the validator named both sides itself
    return f"{field}: {message[:1].lower() + message[1:]}, found {item.get('input')!r}"


def _near(location: Sequence[Any]) -> str:
    from difflib import get_close_matches

    model: Any = RunConfig
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    known = list(model.model_fields)
    near = get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}"


def _read(file: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if not file.is_file():
        raise InputError(f"{file}: no such config file")
    if file.resolve() in seen:
        raise InputError(f"{file}: extends itself, by way of {' -> '.join(map(str, seen))}")
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file}: expected a mapping of sections, found a {type(values).__name__}")
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise InputError(f"{file}: extends: expected one file name, found {base!r}")
    beside = file.parent / base
    parent = _read(beside if beside.is_file() else Path(base), (*seen, file.resolve()))
    return OmegaConf.to_container(OmegaConf.merge(parent, values))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
