"""A reading of box numbers gives back the boxes that they were made of; the words of a command line name it."""

import numpy as np
import pytest

from coord_codec import InputError
from coord_codec.box_transforms import TURNS
from coord_data.sources.read_as import PER_IMAGE, Change, Copy, ReadAs

BOXES = np.array([[0.1, 0.2, 0.4, 0.9], [0.5, 0.05, 0.8, 0.3]])
SIZE, STATED = np.array([[640.0, 480.0]] * 2), np.array([[320.0, 200.0]] * 2)


def low_high(b):
    return b


def low_size(b):
    return np.stack([b[:, 0], b[:, 1], b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]], axis=1)


def centre_size(b):
    return np.stack([(b[:, 0] + b[:, 2]) / 2, (b[:, 1] + b[:, 3]) / 2, b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]], axis=1)


def y_first(write):
    return lambda b: write(b)[:, [1, 0, 3, 2]]


WRITTEN = {
    "xyxy": low_high,
    "xywh": low_size,
    "cxcywh": centre_size,
    "yxyx": y_first(low_high),
    "yxhw": y_first(low_size),
    "cycxhw": y_first(centre_size),
}
UNITS = {
    "pixels": (640, 480),
    "stated": (320, 200),
    "unit": (1, 1),
    "percent": (100, 100),
    "norm1000": (1000, 1000),
    "norm999": (999, 999),
}
COPIES = {"times:0.5": (320, 240), "square:512": (512, 512), "longer:320": (320, 240), "area:277.13": (320, 240)}


def read(words, numbers):
    return ReadAs.parse(words).of_format("xyxy", "unit").corners(numbers, SIZE, STATED)


@pytest.mark.parametrize("unit", UNITS | COPIES)
@pytest.mark.parametrize("layout", WRITTEN)
def test_order_and_unit(layout, unit):
    width, height = (UNITS | COPIES)[unit]
    numbers = WRITTEN[layout](BOXES * [width, height, width, height])
    np.testing.assert_allclose(read(f"{layout},{unit}", numbers), BOXES, atol=1e-4)
    np.testing.assert_allclose(read(f"{unit},{layout}", numbers), BOXES, atol=1e-4)


@pytest.mark.parametrize("side", [640, 1])
def test_padded_copies_have_the_image_at_their_centre(side):
    pixels = BOXES * [640, 480, 640, 480] + [0, 80, 0, 80]  # in a square of 640
    np.testing.assert_allclose(read(f"padded:{side}", pixels / 640 * side), BOXES)


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("mirrored", TURNS[2]),
        ("upside-down", TURNS[4]),
        ("rotated:180", TURNS[3]),
        ("rotated:90", TURNS[8]),
        ("rotated:270", TURNS[6]),
        ("scaled:0.8", lambda b: b * 0.8),
        ("moved-left:32px", lambda b: b - [0.05, 0, 0.05, 0]),
        ("moved-right:2.5%", lambda b: b + np.array([0.025, 0, 0.025, 0])),
        ("moved-up:24px", lambda b: b - [0, 0.05, 0, 0.05]),
        ("moved-down:1%", lambda b: b + np.array([0, 0.01, 0, 0.01])),
        ("enlarged:1.25", lambda b: b + (b - b[:, [2, 3, 0, 1]]) * 0.125),
    ],
)
def test_change_is_undone(words, changed):
    np.testing.assert_allclose(read(words, changed(BOXES)), BOXES)
    assert str(ReadAs.parse(words)) == words


def test_changes_are_undone_from_the_first_to_the_last():
    mirrored_then_moved = TURNS[2](BOXES) - [0.1, 0, 0.1, 0]
    np.testing.assert_allclose(read("moved-left:10%,mirrored", mirrored_then_moved), BOXES)
    assert not np.allclose(read("mirrored,moved-left:10%", mirrored_then_moved), BOXES)


def test_what_is_not_named_is_as_the_format_has_it():
    assert ReadAs.parse("percent").of_format("xywh", "pixels") == ReadAs("xywh", "percent")
    assert ReadAs.parse("yxyx").of_format("xywh", "pixels") == ReadAs("yxyx", "pixels")
    assert ReadAs.parse(" xywh , square:640").of_format("xyxy", "unit") == ReadAs("xywh", Copy("square", 640.0))
    assert ReadAs.parse("moved-up:3px").changes == (Change("moved-up", 3.0, in_pixels=True),)
    with pytest.raises(ValueError, match="of_format"):
        ReadAs.parse("percent").corners(BOXES, SIZE, STATED)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "found ''"),
        ("xyxw", "xyxw"),
        ("xyxy,xywh", "expected one order, found xyxy and xywh"),
        ("from-0,from-1", "expected one origin, found from-0 and from-1"),
        ("percent,square:640", "expected one unit, found percent and square:640"),
        ("square", "found 'square'"),
        ("square:0", "square:0"),
        ("rotated:45", "rotated:45"),
        ("moved-left:3", "moved-left:3"),
        ("scaled:2%", "scaled:2%"),
        ("mirrored:2", "mirrored:2"),
        ("enlarged:1.2.3", "enlarged"),
    ],
)
def test_word_that_is_no_reading_is_refused(words, told):
    with pytest.raises(InputError, match="--read-as") as error:
        ReadAs.parse(words)
    assert told in str(error.value)


def test_units_of_the_table_are_those_of_the_tests():
    assert set(PER_IMAGE) < set(UNITS)


def test_box_up_to_the_border_stays_inside_where_it_is_enlarged_and_one_beyond_it_does_not():
    boxes = np.array([[0.0, 0.2, 0.4, 1.0], [-0.1, 0.2, 0.3, 1.1]])
    found = Change("enlarged", 0.8).undone(boxes, SIZE)
    assert found == pytest.approx(np.array([[0, 0.1, 0.45, 1], [-0.15, 0.0875, 0.35, 1.2125]]))
