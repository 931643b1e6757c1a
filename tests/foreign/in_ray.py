"""The fixture `ray`: Ray, installed beside the workspace, for tests in this process and for those that Ray starts."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from environment import make


@pytest.fixture
def ray(monkeypatch):
    """Ray, installed beside the workspace."""
    try:
        python = make(Path(__file__).with_name("ray.txt"))
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"Ray cannot be installed: {getattr(error, 'stderr', error)}")
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    monkeypatch.setenv("PYTHONPATH", str(packages))
    # A warning of Ray's own class is told to the process that started the tests, which cannot import Ray.
    monkeypatch.setattr(warnings, "showwarning", lambda *_, **__: None)
    import ray

    yield ray
    ray.shutdown()
