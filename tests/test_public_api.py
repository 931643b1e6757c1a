"""Every tensor of a public function says its shape: what neither mypy nor ruff has a rule for."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PACKAGES = sorted(
    path.name for path in Path(__file__).parents[1].glob("packages/*/src/*") if (path / "py.typed").exists()
)
NAMES = [(package, name) for package in PACKAGES for name in importlib.import_module(package).__all__]


def callables(value, name):
    """A function, or the public methods that a class of ours defines."""
    if inspect.isfunction(value):
        yield name, value
    elif inspect.isclass(value) and value.__module__.startswith("coord_"):
        for attribute, member in inspect.getmembers_static(value):
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            ours = inspect.isfunction(function) and function.__module__.startswith("coord_")
            if ours and (not attribute.startswith("_") or attribute == "__call__"):
                yield f"{name}.{attribute}", function


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[f"{p}.{n}" for p, n in NAMES])
def test_every_tensor_says_its_shape(package, name):
    """By its name, `logits_NV`, or in brackets in the docstring."""
    value = getattr(importlib.import_module(package), name)
    for place, function in callables(value, name):
        text = (inspect.getdoc(function) or "") + (inspect.getdoc(value) or "")
        signature = inspect.signature(function)
        for parameter in signature.parameters.values():
            if re.match(r"(torch\.)?Tensor|<class 'torch.Tensor'>", str(parameter.annotation)):
                named = re.search(r"_[A-Z][A-Z0-9]*$", parameter.name)
                told = re.search(rf"^\s*{parameter.name}: .*\[.*\]", text, re.MULTILINE)
                assert named or told, f"{place}: what shape has {parameter.name}?"
        if "Tensor" in str(signature.return_annotation):
            shape = r"\[[\w., ]+\]|_[A-Z][A-Z0-9]*\b|0-d"
            assert re.search(shape, text), f"{place}: what shape is returned?"
