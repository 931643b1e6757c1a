"""The cost of importing the package, and the examples of its README and docstrings."""

import doctest
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages

import pytest

import coord_losses


def test_public_names_exist_and_are_in_the_readme():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for name in coord_losses.__all__:
        assert hasattr(coord_losses, name)
        assert f"`{name}" in readme, f"README.md does not mention {name}"


def test_readme_examples_run(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec("\n".join(examples), {})  # tests/hf runs those of the extra too
    assert len(examples) == 4
    assert "loss" in capsys.readouterr().out


def test_docstring_examples_run():
    names = [found.name for found in walk_packages(coord_losses.__path__, "coord_losses.")]
    if find_spec("transformers") is None:
        names = [name for name in names if not name.startswith("coord_losses.hf")]
    modules = [import_module(name) for name in names]
    assert not [module.__name__ for module in modules if doctest.testmod(module).failed]


@pytest.mark.parametrize("name", coord_losses.__all__)
def test_public_names_have_an_example(name):
    (found,) = doctest.DocTestFinder(recurse=False).find(getattr(coord_losses, name), name)
    assert found.examples
