"""Copies of an image are told from images that look alike."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from coord_data.inspection.duplicates import duplicate_images, leakage
from coord_data.looking.alike import alike_images, are_copies
from coord_data.looking.look import look_at_images
from coord_data.sources.raw_boxes import RawBoxes


def form(seed):
    """Return a form with a heading and fields of words, in which little differs from any other of its kind."""
    image, rng = Image.new("RGB", (700, 900), "white"), np.random.default_rng(seed)
    draw = ImageDraw.Draw(image)
    draw.rectangle((30, 30, 670, 110), fill=(30, 60, 140))
    for y in range(132, 828, 58):
        draw.rectangle((180, y, 660, y + 38), outline="black")
        draw.text((190, y + 8), "word " * rng.integers(1, 9), fill="black")
    return image


@pytest.fixture
def files(tmp_path):
    """A form, another one, and copies of the first: smaller, and of low quality."""
    first = form(0)
    stored = io.BytesIO()
    first.save(stored, "JPEG", quality=25)
    for k, image in enumerate([first, form(4), first.resize((350, 450)), Image.open(stored)]):
        image.save(tmp_path / f"{k}.png")
    return look_at_images([f"{k}.png" for k in range(4)], tmp_path)


def test_copies_are_the_same_and_another_form_is_alike(files):
    found = {(pair.first, pair.second): pair.kind != "alike" for pair in alike_images(files[:1], files)}
    assert found == {(0, 0): True, (0, 1): False, (0, 2): True, (0, 3): True}


def raw(count):
    nothing = np.zeros((0, 4))
    names = tuple(f"{k}.png" for k in range(count))
    return RawBoxes.of(names, np.full((count, 2), np.nan), np.zeros(0, int), nothing, (), "xyxy", "unit")


def test_images_that_look_alike_are_no_leak_and_no_duplicate(files):
    alike, copied = (
        leakage(raw(1).files, files[:1], raw(1).files, files[1:2]),
        leakage(raw(1).files, files[:1], raw(3).files, files[1:]),
    )
    assert [f.severity for f in alike] == ["warning"] and "look like" in alike[0].message
    assert [(f.severity, f.count) for f in copied] == [("error", 2), ("warning", 1)]
    twice = duplicate_images(raw(2).files, files[:2], [])
    assert [f.severity for f in twice] == ["note"] and "1 pair" in twice[0].message
    assert [f.severity for f in duplicate_images(raw(3).files, files.take(np.array([0, 2, 3])), [])] == ["error"]


def test_held_out_image_that_only_looks_like_one_is_named_beside_another_that_is_a_copy(files):
    # The first training image is a copy of the second held-out image, and looks like the first one.
    found = leakage(raw(2).files, files[:2], ("a", "b"), files.take(np.array([1, 2])))
    assert [(f.severity, f.count, f.pairs) for f in found] == [("error", 2, (("0.png", "b"), ("1.png", "a")))]
    found = leakage(raw(1).files, files[:1], ("a", "b"), files.take(np.array([1, 2])))
    assert [(f.severity, f.pairs) for f in found] == [("error", (("0.png", "b"),)), ("warning", (("0.png", "a"),))]
    found = leakage(raw(2).files, files.take(np.array([0, 2])), ("a", "b"), files.take(np.array([1, 3])))
    of_b, of_a = ((("0.png", name), ("1.png", name)) for name in "ba")
    assert [(f.severity, f.pairs) for f in found] == [("error", of_b), ("warning", of_a)]


def test_copies_are_told_however_many_pairs_there_are(files):
    is_copy_P = are_copies(files, files, np.array([(0, 1)] * 1100 + [(0, 2)]))
    assert is_copy_P.tolist() == [False] * 1100 + [True]
