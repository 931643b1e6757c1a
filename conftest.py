"""Settings of every test in the workspace."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Two test workers on two cores: threads of one would only wait for those of the other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Machines are shared and noisy: how long an example takes says nothing about the code.
settings.register_profile("workspace", deadline=None)
settings.load_profile("workspace")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of the longest tests: a worker that comes to one last leaves the other idle for minutes."""
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real data; beside the repository or where COORDEXP_SHARED says."""
    here = Path(__file__).resolve()
    candidates = [Path(value) for value in [os.environ.get("COORDEXP_SHARED", "")] if value]
    candidates += [parent.parent / "shared" for parent in here.parents if (parent / ".git").exists()]
    for candidate in candidates:
        if (candidate / "data").is_dir():
            return candidate / "data"
    pytest.skip("no real data: put it in ../shared or set COORDEXP_SHARED")
