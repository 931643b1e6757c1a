"""Public names, commands, config keys and file formats may grow; what stands in `public_surface.json` stays."""

import importlib
import inspect
import json
import typing
from pathlib import Path

import pytest
import typer

import coord_codec
from coord_trainer import RunConfig
from coord_trainer.config.former_keys import FORMER_KEYS

SURFACE = json.loads((Path(__file__).parent / "public_surface.json").read_text())
APPS = {
    "coord-data": "coord_data.cli",
    "coord-trainer": "coord_trainer.cli",
    "coord-exporter": "coord_exporter.cli",
    "coord-eval": "coord_eval.cli",
}
NAMES = [(package, name) for package, names in SURFACE["names"].items() for name in names]


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[f"{p}.{n}" for p, n in NAMES])
def test_public_name_keeps_its_parameters_and_members(package, name):
    module = importlib.import_module(package)
    assert name in module.__all__
    before = SURFACE["names"][package][name]
    if before in (None, "constant"):
        return
    value = getattr(module, name)
    if isinstance(before, list):
        assert [p for p in parameters(value) if p in before] == before, "a parameter is gone or moved"
        return
    if before["parameters"] and "args" not in before["parameters"]:
        assert set(before["parameters"]) <= set(parameters(value))
    members = {*dir(value), *(key for base in value.__mro__ for key in vars(base).get("__annotations__", {}))}
    assert set(before["members"]) <= members


@pytest.mark.parametrize("program", APPS)
def test_command_keeps_its_options(program):
    group = typer.main.get_command(importlib.import_module(APPS[program]).app)
    for name, options in SURFACE["commands"][program].items():
        assert name == "" or name in group.commands, f"{program} {name} is gone"
        command = group.commands[name] if name else group.commands.get("first-run", group)
        found = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        assert set(options) <= found, f"{program} {name}"


def config_keys(model, prefix=""):
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *typing.get_args(field.annotation)]
        sections = [kind for kind in kinds if inspect.isclass(kind) and hasattr(kind, "model_fields")]
        for section in sections:
            yield from config_keys(section, f"{prefix}{name}.")
        if not sections:
            yield prefix + (field.alias or name)


def test_config_keys_stay():
    """A former key is an alias of a present one."""
    keys = set(config_keys(RunConfig))
    present = {FORMER_KEYS.get(key, key).rstrip(".") for key in SURFACE["config_keys"]}
    sections = {key.rpartition(".")[0] for key in keys}
    assert present <= keys | sections


@pytest.mark.parametrize("package", ["coord_losses", "coord_adapter", "coord_eval", "coord_exporter", "coord_trainer"])
def test_every_package_names_the_one_input_error(package):
    assert importlib.import_module(package).InputError is coord_codec.InputError
