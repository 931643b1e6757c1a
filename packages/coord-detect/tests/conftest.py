"""What the tests share: `helpers/` on the path, and a folder of four images."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))


@pytest.fixture
def sources(tmp_path):
    from fakes import make_images

    from coord_detect.detection.image_sources import find_sources

    return find_sources([str(make_images(tmp_path / "photos", a=(40, 20), b=(40, 20), c=(8, 8), d=(41, 20)))])


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Call the command line in process, in an empty folder: exit code, stderr, stdout."""
    from called import caller

    from coord_detect.cli.main import main

    return caller(main, "coord-detect", monkeypatch, capsys, tmp_path)
