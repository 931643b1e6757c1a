"""What the tests of data share."""

import pytest
from PIL import Image


@pytest.fixture
def place(tmp_path):
    (tmp_path / "images").mkdir()
    Image.new("RGB", (64, 48), "red").save(tmp_path / "images" / "a.png")
    return tmp_path
