"""Both readings side by side, as each is applied; and turned images, whose boxes may be of the stored pixels."""

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tables import boxes, looks, rects_of

from coord_codec import AnnotationSet
from coord_codec.box_transforms import TURNS
from coord_codec.origins import ORIGINS
from coord_data.finding import Finding
from coord_data.inspection.both_readings import sections_of_readings
from coord_data.inspection.examine import Examination
from coord_data.inspection.numbers import one_pixel
from coord_data.inspection.numbers.laid_out import LaidOut
from coord_data.inspection.numbers.one_pixel import beside_by_a_pixel
from coord_data.inspection.turned import examine_turned
from coord_data.looking.image_file import ImageFolder
from coord_data.looking.looks import ImageFile


def saved(folder, name, size, orientation=1, image=None):
    """Write an image that has this size once it is upright."""
    upright = image or Image.effect_noise(size, 50).convert("RGB")
    undo = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    stored, exif = upright.transpose(undo[orientation]) if orientation > 1 else upright, Image.Exif()
    exif[0x0112] = orientation
    stored.save(folder / name, exif=exif)


def drawn(folder, raw, reading, *codes):
    """Return title, image names and boxes, as fractions, of the drawings of each section."""
    files = ImageFolder(folder).look_at_all(raw.files)
    found = [Finding(code, "error", "m", "e", 1, "f", read_as=reading) for code in codes or ("exif",)]
    sections = []
    for html in sections_of_readings(Examination(tuple(found), AnnotationSet(()), raw, files, folder)):
        svgs = html.split("<svg ")[1:]
        sizes = [tuple(map(float, svg.split('viewBox="0 0 ')[1].split('"')[0].split())) for svg in svgs]
        shown = [svg.split('aria-label="')[1].split('"')[0] for svg in svgs]
        corners = [
            [(x / w, y / h, (x + a) / w, (y + b) / h) for x, y, a, b in rects_of(svg)]
            for svg, (w, h) in zip(svgs, sizes, strict=True)
        ]
        sections.append((html.split("<h2>")[1].split("</h2>")[0], shown, corners))
    return sections


BOX = (0.1, 0.2, 0.4, 0.8)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_boxes_are_drawn_by_the_orientation_of_their_image(tmp_path, orientation):
    saved(tmp_path, "a.jpg", (80, 60), orientation)
    ((title, shown, (one, other)),) = drawn(tmp_path, boxes(["a.jpg"], [(0, "x", BOX)], unit="unit"), "stored")
    assert shown == ["a.jpg"] * 2 and title == "exif: as stated, and read as stored"
    np.testing.assert_allclose(one, [BOX], atol=0.01)
    np.testing.assert_allclose(other, TURNS[orientation](np.array([BOX])), atol=0.01)


@pytest.mark.parametrize(("stated", "one_by"), [((160, 60), (160, 60)), ((np.nan, np.nan), (80, 60))])
def test_pixels_are_those_of_the_stated_size_or_of_the_file(tmp_path, stated, one_by):
    saved(tmp_path, "a.jpg", (80, 60))
    numbers = np.array([8, 6, 40, 30])
    raw = boxes(["a.jpg"], [(0, "x", numbers), (0, "x", (5, 5, 5, 9)), (0, "x", (5, 9, 9, 5))], sizes=[stated])
    ((_, _, (one, other)),) = drawn(tmp_path, raw, "pixels")
    np.testing.assert_allclose(one, [numbers / np.tile(one_by, 2)], atol=0.01)
    np.testing.assert_allclose(other, [numbers / np.tile((80, 60), 2)], atol=0.01)
    sized = replace(raw, layout="xywh").with_numbers(np.array([[8, 6, 40, 30]] * 3))
    ((_, _, (one, other)),) = drawn(tmp_path, sized, "xyxy")
    np.testing.assert_allclose(one, [np.array((8, 6, 48, 36)) / np.tile(one_by, 2)] * 3, atol=0.01)
    np.testing.assert_allclose(other, [numbers / np.tile(one_by, 2)] * 3, atol=0.01)


def test_six_images_with_boxes_are_drawn_spread_over_the_set(tmp_path):
    for n in range(14):
        (tmp_path / f"{n}.png").write_bytes(b"no image") if n == 13 else saved(tmp_path, f"{n}.png", (80, 60))
    rows = [(n, "x", BOX) for n in range(14) if n != 1] + [(0, "y", BOX)] * 45
    names = [f"{n}.png" for n in range(14)]
    (section,) = drawn(tmp_path, boxes(names, rows, unit="unit"), "mirrored", "mirrored", "exif")
    title, shown, corners = section
    assert title == "mirrored, exif: as stated, and read as mirrored" and shown[::2] == shown[1::2]
    assert [int(name[:-4]) for name in shown[::2]] == [0, 3, 5, 8, 10, 12]  # of 0, 2 to 12
    assert [len(boxes) for boxes in corners] == [40] * 2 + [1] * 10
    assert drawn(tmp_path, boxes(names, rows, unit="unit"), "") == []


def turned_set(folder, orientations, size=(96, 72), stated=None, draw_stored=False, count=10):
    """Write images of a dark rectangle each, with its box on the upright or on the stored pixels."""
    rng, rows, names = np.random.default_rng(3), [], []
    for n in range(count):
        x, y = rng.integers(8, 30, 2).tolist()
        width, height = rng.integers(20, 36, 2).tolist()
        image = Image.fromarray(rng.normal(200, 4, (*size[::-1], 3)).clip(0, 255).astype(np.uint8))
        image.paste((40, 40, 60), (x, y, x + width, y + height))
        orientation = orientations[n % len(orientations)]
        saved(folder, f"{n}.png", size, orientation, image)
        box = np.array([[x, y, x + width, y + height]]) / np.tile(size, 2)
        rows.append((n, "x", (TURNS[{6: 8, 8: 6}.get(orientation, orientation)](box) if draw_stored else box)[0]))
        names.append(f"{n}.png")
    raw = boxes(names, rows, sizes=stated, unit="unit")
    return raw, ImageFolder(folder).look_at_all(names, range(count))


def laid(raw, files, folder):
    return raw, files, folder, LaidOut(lambda rows: raw.numbers_N4[rows], len(raw))


def turned(folder, raw, files):
    findings, swapped = examine_turned(*laid(raw, files, folder))
    return [(f.severity, f.count, f.read_as) for f in findings], swapped


STORED, UPRIGHT = (72, 96), (96, 72)


@pytest.mark.parametrize(
    ("orientations", "draw_stored", "stated", "wanted", "swapped"),
    [
        ((1,), False, None, [], set()),
        ((6,), False, None, [("note", 10, "")], set()),
        ((6,), True, None, [("error", 10, "stored")], set()),
        ((1, 6, 8, 3), True, None, [("error", 7, "stored")], set()),
        ((6, 1), False, [STORED] * 10, [("error", 5, "")], {0, 2, 4, 6, 8}),  # the boxes fit the upright images
        ((6, 1), True, [STORED] * 10, [("error", 5, "stored")], {0, 2, 4, 6, 8}),
        ((6, 1), False, [UPRIGHT] * 10, [("note", 5, "")], set()),
        ((1,), False, [STORED] * 10, [], set()),
        ((3,), False, [UPRIGHT] * 10, [("note", 10, "")], set()),
    ],
)
def test_boxes_on_upright_and_on_stored_pixels_are_told_apart(
    tmp_path, orientations, draw_stored, stated, wanted, swapped
):
    raw, files = turned_set(tmp_path, orientations, stated=stated, draw_stored=draw_stored)
    assert turned(tmp_path, raw, files) == (wanted, swapped)


@pytest.mark.slow
def test_boxes_are_in_doubt_while_z_is_below_2_on_either_side(tmp_path):
    raw, files = turned_set(tmp_path, (6,), count=8)
    low_N2, found = np.concatenate([raw.numbers_N4[:, :2]] * 2), []
    for seed in range(8):
        moved_N2 = low_N2 + np.random.default_rng(seed).normal(0, 0.04, low_N2.shape)
        rows = [(n % 8, "x", (*low, *(low + 0.3))) for n, low in enumerate(moved_N2)]
        ((finding,), _) = examine_turned(*laid(boxes(raw.files, rows, unit="unit"), files, tmp_path))
        z = float(re.search(r"z (-?[0-9.]+)", finding.evidence)[1])
        found.append(z)
        assert finding.severity == ("error" if z >= 2 else "note" if z <= -2 else "warning"), z
    assert any(-2 < z < -0.2 for z in found), found


@pytest.mark.parametrize(
    ("size", "stated", "wanted", "swapped"),
    [
        ((80, 80), [(80, 80)] * 4, "warning", set()),  # of a square nobody knows
        (UPRIGHT, [STORED] * 4, "error", {0, 1, 2, 3}),
        (UPRIGHT, [STORED, *[UPRIGHT] * 3], "error", {0}),
        (UPRIGHT, None, "warning", set()),
    ],
)
def test_stated_sizes_decide_where_pixels_say_too_little(tmp_path, size, stated, wanted, swapped):
    raw, files = turned_set(tmp_path, (6,), size, stated, count=4)
    found, of_stored = turned(tmp_path, raw, files)
    reading = "stored" if len(swapped) == 4 else ""
    assert (found, of_stored) == ([(wanted, 4, reading)], swapped)


def test_turned_images_whose_thumbnails_were_not_kept_are_opened_again(tmp_path):
    raw, _ = turned_set(tmp_path, (6,), draw_stored=True)
    assert turned(tmp_path, raw, ImageFolder(tmp_path).look_at_all(raw.files)) == ([("error", 10, "stored")], set())


def test_image_of_unknown_size_is_not_turned(tmp_path):
    files = looks(ImageFile(None, "is no file", orientation=6), (9, 9))
    raw = boxes(["a", "b"], [(0, "x", BOX)], unit="unit")
    assert turned(tmp_path, raw, files) == ([], set())


@pytest.mark.parametrize(("orientations", "measured"), [((1,), 96), ((6,), 0), ((8, 1), 48), ((3, 1), 48)])
def test_pixels_beside_their_objects_are_measured_on_images_that_are_stored_upright(tmp_path, orientations, measured):
    rng, rows, names, size = np.random.default_rng(0), [], [], (200, 150)
    for n in range(16):
        image = Image.new("RGB", size, "white")
        for column, row in np.ndindex(3, 2):
            x, y = 10 + 60 * column + int(rng.integers(9)), 10 + 65 * row + int(rng.integers(9))
            image.paste(tuple(rng.integers(0, 150, 3).tolist()), (x, y, x + 30, y + 40))
            rows.append((n, "x", (x + 1, y + 1, x + 31, y + 41)))
        saved(tmp_path, f"{n}.png", size, orientations[n % len(orientations)], image)
        names.append(f"{n}.png")
    raw = boxes(names, rows)
    files = ImageFolder(tmp_path).look_at_all(names, range(16))
    found = beside_by_a_pixel(
        raw, LaidOut(lambda rows: raw.numbers_N4[rows] / np.tile(size, 2), len(raw)), files, tmp_path
    )
    assert [(f.read_as, f"borders of {measured} boxes" in f.evidence) for f in found] == [
        ("from-1-past-last", True)
    ] * bool(measured)


FROM = ORIGINS["from-0"], ORIGINS["from-1"], None


@pytest.mark.parametrize(
    ("low", "high", "words", "readings"),
    [
        (0, 1, "end a pixel before their objects", ("from-0-to-last", "", "")),
        (
            -1,
            -1,
            "begin a pixel behind their objects and end a pixel behind their objects",
            ("from-1-past-last", "moved-right:1px,moved-down:1px", "moved-right:1px,moved-down:1px"),
        ),
        (1, 0, "begin a pixel before their objects", ("from-0-first-early", "from-0", "")),
        (0, -1, "end a pixel behind their objects", ("from-0-past-last", "from-1-past-last", "")),
        (-1, 0, "begin a pixel behind their objects", ("from-1", "", "")),
        (
            2,
            2,
            "begin 2 pixels before their objects and end 2 pixels before their objects",
            ("moved-left:2px,moved-up:2px",) * 3,
        ),
    ],
)
def test_distances_of_borders_are_told_in_words_and_as_a_reading(tmp_path, monkeypatch, low, high, words, readings):
    monkeypatch.setattr(one_pixel, "_offsets", lambda *_: np.array([[low, low, high, high]] * 50))
    laid_out = LaidOut(lambda rows: np.array([BOX]), 1)
    for origin, reading in [*zip(FROM, readings, strict=True), ("unit", readings[2])]:
        raw = boxes(["a"], [(0, "x", BOX)], unit="unit" if origin == "unit" else "pixels")
        raw = raw if origin == "unit" else replace(raw, origin=origin)
        (found,) = beside_by_a_pixel(raw, laid_out, looks((9, 9)), tmp_path)
        assert (found.read_as, found.message) == (reading, f"boxes that are exact to the pixel {words}")
        command = f"coord-data prepare SRC --out DIR --read-as {reading}"
        assert found.fix.startswith(command if reading else "count pixels as the tool that wrote them does")
        assert found.fix.endswith(")") == (reading in ORIGINS) and "100% of the borders of 50 boxes" in found.evidence
