"""What the tests of `detect` share: a folder of four images."""

import pytest


@pytest.fixture
def sources(tmp_path):
    from fakes import make_images

    from coord_detect.detection.image_sources import find_sources

    return find_sources([str(make_images(tmp_path / "photos", a=(40, 20), b=(40, 20), c=(8, 8), d=(41, 20)))])
