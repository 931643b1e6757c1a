"""What a caller may hand over as an image, and what it becomes."""

import numpy as np
import pytest
from PIL import Image

from coord_codec import InputError
from coord_detect.answers.image_input import check_image, open_image

RGB = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3) * 3
GREY = RGB[..., 0]
HALF = np.dstack([RGB, np.where(np.arange(6) < 3, 255, 0).astype(np.uint8) + np.zeros((4, 1), np.uint8)])


@pytest.mark.parametrize(
    ("array", "expected"),
    [(RGB, RGB), (GREY, np.dstack([GREY] * 3)), (GREY[..., None], np.dstack([GREY] * 3)),
     (HALF, np.where(np.arange(6)[:, None] < 3, RGB, 255)), (RGB[:, ::-1], RGB[:, ::-1]), (RGB[:1, :1], RGB[:1, :1])],
    ids=["colour", "grey", "one channel", "alpha", "view", "one pixel"],
)  # fmt: skip
def test_array_and_pil_image_are_upright_and_in_colour(array, expected):
    found = open_image(array)
    assert found.mode == "RGB" and np.array_equal(np.asarray(found), expected)
    image = Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)
    image.getexif()[0x0112] = 6  # a viewer turns it clockwise
    assert np.array_equal(np.asarray(open_image(image)), expected[::-1].swapaxes(0, 1))


@pytest.mark.parametrize(
    "given",
    [*(np.zeros(shape, np.uint8) for shape in ((4, 6, 2), (4, 6, 5), (4,), (1, 4, 6, 3), (0, 6, 3), (4, 0))),
     RGB / 255, RGB.astype(np.int64), RGB > 3, [[1, 2]], None, 3, b"x"],
    ids=lambda given: f"{getattr(given, 'dtype', type(given).__name__)}-{getattr(given, 'shape', '')}",
)  # fmt: skip
def test_what_is_no_image_is_told_by_its_name(given):
    told = "of uint8, found" if isinstance(given, np.ndarray) else "a path, a PIL image or an array, found"
    with pytest.raises(InputError, match=f"^images\\[2\\]: expected .*{told}"):
        check_image(given, "images[2]")
    with pytest.raises(InputError, match=r"^image: expected"):
        open_image(given)


def test_file_is_named_where_it_cannot_be_decoded_and_nothing_is_downloaded(tmp_path):
    Image.fromarray(RGB).save(tmp_path / "a.png")
    for path in (tmp_path / "a.png", str(tmp_path / "a.png")):
        assert np.array_equal(np.asarray(open_image(path)), RGB)
    for name, told in (("gone.png", "does not exist"), ("https://a.org/b.png", "a URL, and nothing is downloaded")):
        with pytest.raises(InputError, match=f"{name}: .*{told}"):
            open_image(name if "://" in name else tmp_path / name)
    closed = Image.open(tmp_path / "a.png")
    closed.close()
    with pytest.raises(InputError, match=r"^image: it cannot be decoded"):
        open_image(closed)
