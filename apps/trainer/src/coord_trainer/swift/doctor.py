"""`doctor`: checks versions, devices, and that the installed packages have the names that the trainer depends on."""

from __future__ import annotations

import ast
import inspect
import os
import re
import textwrap
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch

import coord_trainer.swift
from coord_codec import RunError
from coord_codec.counts import counted
from coord_detect.console import say
from coord_detect.families.registry import FAMILIES
from coord_trainer.config.refused_arguments import OWNED_NAMES
from coord_trainer.config.swift_arguments import argument_table
from coord_trainer.requirements import refuse_other_versions

_SHOWN = ("torch", "transformers", "peft", "ms-swift", "deepspeed", "accelerate", "datasets")
_NAME = re.compile(
    r"(?P<module>[\w.]+):(?P<path>[\w.]+)"
    r"(?:#(?P<instance>\w+)|\((?P<parameters>[^)]*)\)|\[\"(?P<key>\w+)\"\]|\{(?P<handled>[^}]*)\})?"
)


@dataclass(frozen=True)
class Seam:
    """One name of another package, in the notation of the table: what it is used for, and what fails without it."""

    name: str
    why: str
    without: str

    @property
    def _parts(self) -> re.Match[str]:
        match = _NAME.fullmatch(self.name)
        assert match is not None, self.name
        return match

    @property
    def identifier(self) -> str:
        """The name alone, without module, class and parameters."""
        match = self._parts
        return match["instance"] or match["path"].rsplit(".", 1)[-1]

    def problem(self) -> str | None:
        """Look the name up in the installed packages; returns what is missing, or None."""
        match = self._parts
        try:
            value: Any = import_module(match["module"])
            for part in match["path"].split("."):
                value = getattr(value, part)
        except (ImportError, AttributeError) as error:
            return str(error)
        if match["key"] is not None:
            return None if match["key"] in value else f"no key {match['key']!r}"
        if match["instance"] is not None:
            return None if match["instance"] in _set_on_instances(value) else "no instance has it"
        if match["parameters"] is not None:
            required = set(match["parameters"].replace(",", " ").split())
            missing = sorted(required - set(inspect.signature(value).parameters))
        else:
            missing = sorted(set(re.findall(r'"(\w+)"', match["handled"] or "")) - _strings_in(value))
        return f"without {', '.join(missing)}" if missing else None


def read_seams() -> tuple[Seam, ...]:
    """Return the rows of the table, and those of what the record of each model family names."""
    rows = re.findall(r"^ {4}(\S.*)\n {8}(.*) \| (.*)$", coord_trainer.swift.__doc__ or "", re.MULTILINE)
    seams = {name: Seam(name, why, without) for name, why, without in rows}
    for family in FAMILIES.values():
        for table, key in (("model:MODEL", family.swift_model), ("template:TEMPLATE", family.swift_template)):
            name = f'swift.{table}_MAPPING["{key}"]'
            seams.setdefault(name, Seam(name, "our own entry is a copy of it", f"{family.name} cannot be trained"))
    return tuple(seams.values())


def _set_on_instances(value: type) -> set[str]:
    """Return the attributes that methods of a class or of its bases assign."""
    return {
        node.attr
        for base in value.__mro__
        if base is not object
        for node in ast.walk(_tree(base))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }


def _strings_in(value: Any) -> set[Any]:
    return {node.value for node in ast.walk(_tree(value)) if isinstance(node, ast.Constant)}


def _tree(value: Any) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError):  # written in C
        return ast.Module([], [])


def examine() -> None:
    """Print versions, devices, and for each row of the table whether the name exists; else a `RunError`."""
    say("  ".join(f"{name} {version(name)}" for name in _SHOWN))
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    say(f"{os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()} threads")
    say(f"GPUs: {', '.join(devices) or 'none'}")
    flash = "installed" if find_spec("flash_attn") else "not installed (model.attention: sdpa works without)"
    say(f"flash-attn: {flash}")
    verdicts = [(seam.name, seam.problem(), seam.without) for seam in read_seams()]
    verdicts.append(("every argument that `training:` may name", _unknown_arguments(), "a config key is refused"))
    refuse_other_versions()
    broken = 0
    for name, problem, without in verdicts:
        broken += problem is not None
        say(f"ok      {name}" if problem is None else f"MISSING {name}: {problem}; without it: {without}")
    if broken or len(verdicts) == 1:
        raise RunError(
            f"{broken} of {counted(len(verdicts), 'name')} that training depends on are missing; install "
            "the pinned versions "
            "(uv sync)"
        )


def _unknown_arguments() -> str | None:
    from swift.arguments import SftArguments

    missing = sorted((argument_table().keys() | OWNED_NAMES.keys()) - set(inspect.signature(SftArguments).parameters))
    return f"without {', '.join(missing)}" if missing else None
