"""The examples of the docstrings, as they are shown in the reference."""

import doctest

import pytest


def test_examples_of_docstrings_run(documented_module):
    module = pytest.importorskip(documented_module, reason="needs an extra of the package", exc_type=ImportError)
    assert doctest.testmod(module).failed == 0
