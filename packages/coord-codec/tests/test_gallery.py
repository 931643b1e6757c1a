"""The images of a page: scaled alike, within a budget, each problem told once."""

import base64
from io import BytesIO

import pytest

from coord_codec.pages import Card, Drawn, Gallery

Image = pytest.importorskip("PIL.Image")


def size_of(data):
    with Image.open(BytesIO(base64.b64decode(data.partition(",")[2]))) as image:
        return image.size


@pytest.mark.parametrize(
    ("expected", "sides"), [(24, (720, 240)), (100, (480, 160)), (500, (360, 120)), (501, (192, 64))]
)
def test_images_are_the_less_sharp_the_more_there_are(expected, sides, tmp_path):
    images = Gallery(expected=expected)
    Image.new("RGB", (1500, 750)).save(tmp_path / "a.jpg")
    for side, pixels in zip((480, 160), sides, strict=True):
        image = images.read("a.jpg", tmp_path / "a.jpg", side)
        assert size_of(images.embed(image, side)) == (pixels, pixels // 2)
    assert size_of(images.embed(Image.new("RGB", (60, 40)))) == (60, 40)  # never enlarged


def test_reading_reduces_a_photograph_to_what_its_drawing_needs(tmp_path):
    Image.new("RGB", (3000, 1500)).save(tmp_path / "a.jpg")
    images = Gallery()
    assert images.read("a.jpg", tmp_path / "a.jpg").size == (1500, 750)
    assert images.read("a.jpg", lambda at_most: Image.new("RGB", at_most)).size == (720, 720)


def test_budget_keeps_later_images_away():
    images, shown = Gallery(budget=1000), []
    for name in "abc":
        image = images.read(name, lambda at_most: Image.new("RGB", (8, 8)))
        shown.append(image is not None)
        images.add(Card("x" * 600, name))
    assert shown == [True, True, False] and images.is_full and images.notes == []


def test_each_problem_is_told_once_with_the_number_of_its_images(tmp_path):
    images = Gallery()
    for name in ("a.png", "b.png"):
        assert images.read(name, tmp_path / name) is None
    assert images.read("c.png", b"no image") is None
    first, second = images.notes
    assert first == "2 images, the first a.png: the file does not exist" and second.startswith("c.png: cannot be")


def test_box_is_drawn_above_one_threshold_and_up_to_another():
    drawn = Drawn("cat", (0, 0, 1, 1), above=0.25, up_to=0.5)
    assert [drawn.is_drawn(value) for value in (0.2, 0.25, 0.3, 0.5, 0.6)] == [False, False, True, True, False]
