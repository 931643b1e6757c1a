"""The public names, and the examples of the README."""

import doctest
import re
from pathlib import Path

import pytest

import coord_losses


def test_public_names_exist_and_are_in_the_readme():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for name in coord_losses.__all__:
        assert hasattr(coord_losses, name)
        assert f"`{name}" in readme, f"README.md does not mention {name}"


@pytest.mark.slow
def test_readme_examples_run(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec("\n".join(examples), {})  # tests/hf runs those of the extra too
    assert len(examples) == 4
    assert "loss" in capsys.readouterr().out


@pytest.mark.parametrize("name", coord_losses.__all__)
def test_public_names_have_an_example(name):
    (found,) = doctest.DocTestFinder(recurse=False).find(getattr(coord_losses, name), name)
    assert found.examples
