"""A pixel beside the objects: told of computed boxes, with the reading that mends them, and never of drawn ones."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from coord_data import ReadingRules, examine
from coord_data.inspection.numbers import one_pixel
from coord_data.reading.read import read_source

SIZES = [(300, 220), (700, 500)]
"""Of a thumbnail, and of an image that is opened again."""


def draw(folder, size, suffix, jitter=0, background=0, count=20):
    """Draw `count` images of coloured rectangles, ellipses and letters, and return the exact box of each object.

    With `jitter` each corner lies up to so many pixels aside, as people place them, and with `background` there is
    noise of this amplitude, a little blurred.
    """
    rng = np.random.default_rng(1)
    found = {}
    for number in range(count):
        noise_HWC = rng.normal(190, background, (size[1], size[0], 3)) if background else np.full((*size[::-1], 3), 255)
        canvas = Image.fromarray(noise_HWC.clip(0, 255).astype(np.uint8)).filter(
            ImageFilter.GaussianBlur(bool(background))
        )
        brush, boxes = ImageDraw.Draw(canvas), []
        for column, row in np.ndindex(3, 2):
            width, height = rng.integers(20, 70, 2).tolist()
            x, y = 8 + 95 * column + int(rng.integers(15)), 8 + 100 * row + int(rng.integers(15))
            colour = tuple(rng.integers(0, 160, 3).tolist())
            (brush.ellipse if column == 1 else brush.rectangle)((x, y, x + width - 1, y + height - 1), fill=colour)
            box = np.array([x, y, x + width, y + height]) + rng.integers(-jitter, jitter + 1, 4)
            boxes.append(tuple(box.tolist()))
        found[f"{number}.{suffix}"] = boxes
        canvas.save(folder / f"{number}.{suffix}")
    return found


def write_voc(folder, boxes, size, as_written, head=""):
    for name, own in boxes.items():
        objects = "".join(
            "<object><name>x</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>".format(
                *as_written(box)
            )
            for box in own
        )
        top = f"<filename>{name}</filename>{head}<size><width>{size[0]}</width><height>{size[1]}</height></size>"
        (folder / name).with_suffix(".xml").write_text(f"<annotation>{top}{objects}</annotation>")


def told(source, **rules):
    return [finding for finding in examine(source, ReadingRules(**rules)) if finding.code == "one_off"]


DEVKIT = "<source><database>The VOC2007 Database</database></source>"
WAYS = {
    "as Pascal VOC": (lambda b: (b[0] + 1, b[1] + 1, b[2], b[3]), None),
    "from 0": (lambda b: b, "from-0"),
    "from 0 to the last": (lambda b: (b[0], b[1], b[2] - 1, b[3] - 1), "from-0-to-last"),
    "one more": (lambda b: tuple(value + 1 for value in b), "from-1-past-last"),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=["small", "large"])
@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("way", WAYS)
def test_boxes_a_pixel_beside_what_was_drawn_are_told_with_the_reading_that_mends_them(tmp_path, way, suffix, size):
    as_written, word = WAYS[way]
    boxes = draw(tmp_path, size, suffix)
    write_voc(tmp_path, boxes, size, as_written, DEVKIT)
    found = told(tmp_path)
    assert [finding.read_as for finding in found] == [word] * bool(word)
    if word:
        assert told(tmp_path, read_as=word) == []
        read = read_source(tmp_path, read_as=word).annotations.instances
        pixels = {
            i.image: [tuple(round(v * s) for v, s in zip(o.bbox, size * 2, strict=True)) for o in i.objects]
            for i in read
        }
        assert pixels == boxes


@pytest.mark.slow
@pytest.mark.parametrize(("jitter", "background"), [(1, 0), (2, 0), (3, 0), (1, 30), (2, 30)])
@pytest.mark.parametrize("way", ["from 0", "one more"])
def test_nothing_is_said_of_boxes_that_people_drew(tmp_path, way, jitter, background):
    boxes = draw(tmp_path, SIZES[0], "png", jitter, background)
    write_voc(tmp_path, boxes, SIZES[0], WAYS[way][0], DEVKIT)
    assert [finding for finding in told(tmp_path) if "exact" in finding.message] == []


@pytest.mark.slow
def test_a_border_of_a_pixel_around_all_objects_is_no_fault(tmp_path):
    boxes = draw(tmp_path, SIZES[0], "png")
    write_voc(tmp_path, boxes, SIZES[0], lambda b: (b[0] + 2, b[1] + 2, b[2] - 1, b[3] - 1), DEVKIT)
    assert told(tmp_path) == []


@pytest.mark.slow
def test_eight_images_are_enough_and_seven_are_not(tmp_path):
    write_voc(tmp_path, draw(tmp_path, SIZES[0], "png", count=8), SIZES[0], WAYS["from 0"][0], DEVKIT)
    assert len(told(tmp_path)) == 1
    (tmp_path / "7.xml").unlink()
    assert not any("exact" in finding.message for finding in told(tmp_path))


@pytest.mark.parametrize(
    ("boxes", "agreeing", "found"), [(40, 40, (1, 1, 1.0)), (39, 39, None), (40, 32, (1, 1, 0.8)), (40, 31, None)]
)
def test_forty_boxes_of_which_four_fifths_agree_are_enough(boxes, agreeing, found):
    offsets_n4 = np.full((boxes, 4), np.nan)
    offsets_n4[:agreeing] = 1
    assert one_pixel._common(offsets_n4) == found


@pytest.mark.parametrize(
    ("sides", "found"),
    [
        ((0, 0, 0, 0), None), ((1, 1, 0, 0), (1, 0, 1.0)), ((0, 0, -2, -2), (0, -2, 1.0)), ((1, 0, 1, 0), None),
        ((1, 0, 1, 1), None), ((1, 1, 1, 0), None), ((1, 1, -1, -1), None), ((-1, -1, 1, 1), None),
        ((3, 3, 2, 2), (3, 2, 1.0)),
    ],
)  # fmt: skip
def test_both_axes_agree_and_boxes_are_not_wider_or_narrower_on_both_sides(sides, found):
    assert one_pixel._common(np.array([sides] * 40, float)) == found


@pytest.mark.parametrize(
    ("changes", "offset"),
    [((0, 0, 0, 32, 0, 0, 0), 0), ((0, 0, 0, 31, 0, 0, 0), np.nan), ((0, 0, 32, 64, 0, 0, 0), -1),
     ((0, 0, 31, 64, 0, 0, 0), 0), ((0, 0, 0, 0, 0, 0, 32), 3), ((32, 0, 0, 0, 0, 0, 0), np.nan)],
)  # fmt: skip
def test_object_begins_at_half_of_the_largest_change_of_32_or_more(changes, offset):
    pixels_HWC = np.repeat(np.cumsum([0, *changes])[None, :, None], 3, axis=2)
    np.testing.assert_equal(one_pixel._first_change(pixels_HWC, 4, 8, 1), offset)


@pytest.mark.parametrize(("border", "is_known"), [(3, False), (4, True), (6, True), (7, False)])
def test_border_near_that_of_the_image_tells_nothing(border, is_known):
    pixels_HWC = np.zeros((2, 10, 3), int)
    pixels_HWC[:, border:] = 90
    assert np.isfinite(one_pixel._first_change(pixels_HWC, border, 10, 1)) == is_known
