"""Turned, resized and otherwise ordered boxes, beside Pillow and plain arithmetic."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from coord_codec.box_transforms import COMMON_INPUTS, INVERSE_TURN, LAYOUTS, TURNS, resized_sizes, smart_resize

BOX = (2, 3, 5, 4)  # in an image of 10 x 6, without a symmetry


@pytest.mark.parametrize("orientation", TURNS)
def test_turned_box_lies_where_pillow_turns_its_pixels(orientation):
    image = Image.new("L", (10, 6))
    image.paste(255, BOX)
    exif = image.getexif()
    exif[0x0112] = orientation
    image.info["exif"] = exif.tobytes()
    upright = ImageOps.exif_transpose(image)
    stored = np.array([BOX]) / (10, 6, 10, 6)
    turned = TURNS[orientation](stored)
    assert (turned * (*upright.size, *upright.size)).round(9).tolist() == [list(upright.getbbox())]
    np.testing.assert_allclose(TURNS[INVERSE_TURN[orientation]](turned), stored, atol=1e-12)


def test_orders_of_one_box():
    x1, y1, x2, y2 = BOX
    w, h, cx, cy = x2 - x1, y2 - y1, (x1 + x2) / 2, (y1 + y2) / 2
    written = {"xyxy": BOX, "xywh": (x1, y1, w, h), "cxcywh": (cx, cy, w, h)}
    written |= {"yxyx": (y1, x1, y2, x2), "yxhw": (y1, x1, h, w), "cycxhw": (cy, cx, h, w)}
    assert written.keys() == LAYOUTS.keys()
    for name, row in written.items():
        assert LAYOUTS[name](np.array([row], float)).tolist() == [list(BOX)], name


def test_common_inputs_are_those_of_both_families_with_the_limits_of_their_makers():
    """56 x 56 of Qwen2-VL and 256 x 256 of Qwen3-VL at least; at most tokens or squares of pixels."""
    for factor, least in ((28, 56 * 56), (32, 256 * 256)):
        highest = {high for own, low, high in COMMON_INPUTS if (own, low) == (factor, least)}
        assert {1280 * factor**2, 16384 * factor**2, 256 * factor**2, 640 * 640, 1024 * 1024} <= highest
    assert {own for own, _, _ in COMMON_INPUTS} == {28, 32}


def test_sizes_of_many_images_are_those_of_each():
    sizes = np.random.default_rng(0).integers(20, 3000, (60, 2))
    sizes[10:20] = sizes[3]
    limits = {"factor": 28, "min_pixels": 56 * 56, "max_pixels": 1280 * 28 * 28}
    assert resized_sizes(sizes, *limits.values()).tolist() == [
        list(smart_resize(width, height, **limits)) for width, height in sizes.tolist()
    ]
    small, large = smart_resize(20, 30, **limits), smart_resize(5000, 4000, **limits)
    assert small[0] * small[1] >= limits["min_pixels"] and large[0] * large[1] <= limits["max_pixels"]
    assert smart_resize(56, 56, **limits) == (56, 56) and smart_resize(42, 70, **limits) == (56, 56)


@pytest.mark.parametrize(("factor", "least", "most"), [(28, 56 * 56, 28 * 28 * 1280), (32, 256 * 256, 1024 * 1024)])
def test_resized_sides_are_those_of_the_published_rule(factor, least, most):
    """Rounded sides decide whether an image is too large or too small, and an image at a limit is neither."""
    draw = np.random.default_rng(1)
    sizes = [
        *map(tuple, draw.integers(10, 2500, (300, 2)).tolist()),
        (factor, factor),
        (1024, 1024),
        (1010, 1040),
        (57, 55),
        (10, 2500),
    ]
    for width, height in sizes:
        sides = [max(factor, round(side / factor) * factor) for side in (width, height)]
        scale = np.sqrt(width * height / most) if np.prod(sides) > most else np.sqrt(width * height / least)
        if np.prod(sides) > most:
            sides = [max(factor, int(np.floor(side / scale / factor)) * factor) for side in (width, height)]
        elif np.prod(sides) < least:
            sides = [int(np.ceil(side / scale / factor)) * factor for side in (width, height)]
        found = smart_resize(width, height, factor=factor, min_pixels=least, max_pixels=most)
        assert found == tuple(sides), (width, height)
        assert not any(side % factor for side in found)
