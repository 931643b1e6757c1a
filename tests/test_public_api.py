"""What `__all__` names is there, documented and typed; the rest of a package is nobody's business."""

import importlib
import inspect

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
        assert value.__module__.startswith(package), f"{name} is somebody else's"
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
    from pathlib import Path

    module = importlib.import_module(package)
    assert len(set(module.__all__)) == len(module.__all__)
    assert (Path(module.__file__).parent / "py.typed").exists()
