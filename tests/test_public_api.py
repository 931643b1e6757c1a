"""What `__all__` names is there, documented and typed; the rest of a package is nobody's business."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PACKAGES = ["coord_codec", "coord_losses", "coord_adapter", "coord_eval"]
NAMES = [(package, name) for package in PACKAGES for name in importlib.import_module(package).__all__]


def ours(value):
    return getattr(value, "__module__", "").startswith("coord_")


def callables(value, name):
    """A function, or the public methods that a class of ours defines."""
    if inspect.isfunction(value):
        yield name, value
    elif inspect.isclass(value):
        for attribute, member in vars(value).items():
            function = getattr(member, "__func__", member)
            function = member.fget if isinstance(member, property) else function
            if inspect.isfunction(function) and ours(function) and "<" not in function.__qualname__:
                written = function.__code__.co_filename != "<string>"  # not made by dataclass or NamedTuple
                if written and (not attribute.startswith("_") or attribute in ("__init__", "__call__")):
                    yield f"{name}.{attribute}", function


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[f"{p}.{n}" for p, n in NAMES])
def test_a_public_name_is_there_documented_and_typed(package, name):
    value = getattr(importlib.import_module(package), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__.startswith((package, "coord_codec")), f"{name} is somebody else's"
        assert inspect.getdoc(value), f"{name} has no docstring"
    for place, function in callables(value, name):
        if not place.endswith("__init__"):
            assert inspect.getdoc(function), f"{place} has no docstring"
        signature = inspect.signature(function)
        untyped = [p.name for p in list(signature.parameters.values()) if p.annotation is p.empty]
        assert untyped in ([], ["self"], ["cls"]), f"{place}: {untyped} not annotated"
        assert signature.return_annotation is not signature.empty, f"{place}: no return type"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_is_repeated_and_checkers_are_told_of_types(package):
    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert (Path(module.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[f"{p}.{n}" for p, n in NAMES])
def test_every_tensor_says_its_shape(package, name):
    """By its name, `logits_NV`, or in brackets in the docstring; what no linter has a rule for."""
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
