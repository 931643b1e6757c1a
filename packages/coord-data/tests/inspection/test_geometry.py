"""What is said of all boxes of a set: small objects, units that differ by image, padded copies, few images."""

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw
from planted import COCO, SHARED_DATA, Draft, centred, padded, read, shapes, sized, told_of_boxes, told_reading

from coord_codec.box_transforms import resized_sizes
from coord_data.inspection.numbers.edges import EdgeMaps, Sample
from coord_data.inspection.numbers.find_meaning import declared_meaning
from coord_data.inspection.numbers.geometry import examine_geometry
from coord_data.inspection.numbers.mixture import in_one_meaning
from coord_data.inspection.records import one_off
from coord_data.sources.raw_boxes import RawBoxes
from coord_data.sources.read_as import inflate


@pytest.fixture(scope="module")
def clean():
    """Generated images without their lower quarter, which are wider than high, and the boxes that are left."""
    draft = shapes(60)
    images, corners = {}, []
    for (name, image), boxes in zip(draft.images.items(), draft.corners, strict=True):
        left = boxes[boxes[:, 3] <= 0.75]
        if len(left):
            images[name] = image.crop((0, 0, 96, 72))
            corners.append(left / (1, 0.75, 1, 0.75))
    return Draft(images, tuple(corners), tuple(("x",) * len(c) for c in corners))


def small_objects(low, high, size):
    """Return images of a few sharp rectangles on noise, with the boxes to the pixel."""
    rng, images, corners = np.random.default_rng(low), {}, []
    for k in range(30):
        grey = np.clip(rng.normal(200, 3, size[::-1]), 0, 255).astype(np.uint8)
        image, boxes = Image.fromarray(grey).convert("RGB"), []
        for _ in range(rng.integers(2, 7)):
            sides = rng.integers(low, high, 2)
            x, y = rng.integers(0, np.array(size) - sides)
            ImageDraw.Draw(image).rectangle((x, y, x + sides[0] - 1, y + sides[1] - 1), fill=(60, 40, 40))
            boxes.append((x, y, x + sides[0], y + sides[1]))
        images[f"{k}.png"] = image
        corners.append(np.array(boxes) / np.tile(size, 2))
    return Draft(images, tuple(corners), tuple(("x",) * len(c) for c in corners), coco=True)


@pytest.mark.slow
@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("low", "high", "size"), [(12, 24, (640, 480)), (20, 40, (640, 480)), (40, 80, (640, 480)), (30, 60, (1280, 960))]
)
def test_boxes_of_small_objects_that_fit_are_right(low, high, size):
    assert told_of_boxes(small_objects(low, high, size))[0] == {}


@pytest.mark.slow
def test_boxes_of_larger_objects_that_are_too_small_are_named():
    draft = small_objects(120, 240, (640, 480)).moved(lambda b: inflate(b, 0.9))
    assert set(told_of_boxes(draft)[0]) == {"too_small"}


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("step", [(0.05, 0.05), (0.04, -0.05)])
def test_small_boxes_that_are_shifted_along_both_sides_are_one_shift(step):
    """Beside their objects, so that smaller boxes seem to fit better too."""
    found, _ = told_of_boxes(small_objects(40, 80, (640, 480)).moved(lambda b: np.add(b, (*step, *step))))
    assert set(found) == {"shifted"}
    x, across, y, along = re.search(r"(\d+) px to the (\w+) and (\d+) px (\w+)", found["shifted"].message).groups()
    assert (across, along) == ("left" if step[0] < 0 else "right", "above" if step[1] < 0 else "below")
    assert [int(x), int(y)] == pytest.approx(np.abs(step) * (640, 480), abs=2)


@pytest.mark.slow
def test_shift_that_leaves_some_overlap_is_no_copy():
    """Boxes that overlap their objects a little, so that copies are tried, and fit after a shift as well."""
    drawn = shapes(100)
    part = drawn.subset(np.random.default_rng(0).permutation(len(drawn.images))[:30])
    found, _ = told_of_boxes(replace(part, coco=True).moved(lambda b: np.add(b, (-0.06, -0.02, -0.06, -0.02))))
    assert set(found) == {"shifted"}


@pytest.mark.slow
def test_copies_of_boxes_of_a_wrong_size_are_both():
    found, _ = told_of_boxes(COCO["resized, .8"](COCO["too_large, 20 %"](replace(shapes(30), coco=True))))
    assert set(found) == {"resized", "too_large"}


@pytest.mark.slow
def test_copies_in_another_order_that_overlap_their_objects_a_little_are_named():
    """So that edges of the objects lie below the wrong boxes too, with a z of 3.2 to 4.3."""
    rng, drawn = np.random.default_rng(0), shapes(300)
    chosen = [rng.permutation(len(drawn.images))[:30] for _ in range(8)]
    for part in (drawn.subset(chosen[k]) for k in (4, 5, 6)):
        found, _ = told_of_boxes(COCO["cxcywh"](COCO["resized, .8"](replace(part, coco=True))))
        assert set(found) == {"cxcywh", "resized"}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("coco", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_images_whose_numbers_have_another_unit_are_counted(clean, coco, share):
    others = round(share * len(clean.images))
    of_image = iter([True] * others + [False] * (len(clean.images) - others))
    mixed = replace(clean, coco=coco, unit=lambda size: np.ones_like(size) if next(of_image) == coco else size)
    found, meaning = told_of_boxes(mixed)
    assert set(found) == {"mixed_units"} and found["mixed_units"].count == others
    assert f"{others} of {len(clean.images)}" in found["mixed_units"].message
    np.testing.assert_allclose(meaning.boxes.of(slice(None)), np.concatenate(clean.corners), atol=1e-9)


def test_further_faults_are_found_beside_mixed_units(clean):
    of_image = iter([True, False] * len(clean.images))
    mixed = replace(clean, unit=lambda size: size if next(of_image) else np.ones_like(size), layout=centred)
    assert set(told_of_boxes(mixed)[0]) == {"mixed_units", "cxcywh"}


OTHERS = {
    "xyxy": (True, {"layout": lambda b: b}),
    "thousandths": (True, {"unit": lambda size: np.full_like(size, 1000)}),
    "x, y, width, height": (False, {"layout": sized}),
}


@pytest.mark.slow
@pytest.mark.drawn(3)
@pytest.mark.parametrize("share", [0.2, 0.4])
@pytest.mark.parametrize("name", OTHERS)
def test_images_that_are_read_in_another_way_than_the_others_are_counted(clean, name, share):
    coco, other = OTHERS[name]
    right = replace(clean, coco=coco)
    is_other = np.arange(len(clean.images)) % 10 < 10 * share
    numbers = [
        b if k else a for a, b, k in zip(right.numbers(), replace(right, **other).numbers(), is_other, strict=True)
    ]
    found, meaning = told_of_boxes(type("Mixed", (Draft,), {"numbers": lambda self: numbers})(**vars(right)))
    assert set(found) == {"mixed_units"}
    count, wrong = found["mixed_units"].count, int(is_other.sum())
    assert (
        wrong * 0.6 <= count <= wrong and f"at least {count} of {len(is_other)} images" in found["mixed_units"].message
    )
    mended = np.abs(meaning.boxes.of(slice(None)) - np.concatenate(clean.corners)).max(axis=1) < 0.01
    assert mended.mean() > 1 - 0.4 * share


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize(("step", "coco"), [((40, 0), True), ((0, -30), True), ((36, 36), False)])
def test_boxes_that_are_shifted_out_of_their_images_are_moved_back(clean, step, coco):
    """So many pixels in each image, whatever its size."""
    sizes = [(288, 216), (432, 216), (288, 360)] * len(clean.images)
    images = {name: image.resize(sizes[k]) for k, (name, image) in enumerate(clean.images.items())}
    corners = [b + np.tile(np.array(step) / i.size, 2) for b, i in zip(clean.corners, images.values(), strict=True)]
    found, meaning = told_of_boxes(replace(clean, images=images, corners=tuple(corners), coco=coco))
    assert {f.code for f in found.values() if f.severity == "error"} == {"shifted"}
    assert np.abs(meaning.boxes.of(slice(None)) - np.concatenate(clean.corners)).max() < 0.03
    assert meaning.shift.in_pixels
    changes = told_reading(found["shifted"]).changes
    assert len(changes) == np.count_nonzero(step) and all(change.in_pixels for change in changes)


BCCD = SHARED_DATA / "bccd"


@pytest.fixture(scope="module")
def cells():
    """Photographs of round cells, with boxes that have a margin."""
    if not BCCD.is_dir():
        pytest.skip(f"the photographs are not at {BCCD}")
    draft = read(BCCD / "Annotations", BCCD / "JPEGImages")
    return replace(draft.subset(np.random.default_rng(0).permutation(len(draft.images))[:30]), coco=True)


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("factor", [0.9, 0.95])
def test_scale_of_boxes_with_a_margin_is_told_to_the_per_cent(cells, factor):
    found, _ = told_of_boxes(cells.moved(lambda b: b * factor))
    assert {f.code for f in found.values() if f.severity != "note"} == {"resized"}
    reading = told_reading(found["resized"])
    zoom = reading.unit.value if reading.unit else reading.changes[0].value
    assert zoom == pytest.approx(factor, abs=0.01)


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("step", [-0.05, 0.03, 0.05])
def test_shift_of_boxes_with_a_margin_is_told_to_some_pixels(cells, step):
    found, _ = told_of_boxes(cells.moved(lambda b: np.add(b, (step, 0, step, 0))))
    assert {f.code for f in found.values() if f.severity != "note"} == {"shifted"}
    (change,) = told_reading(found["shifted"]).changes
    assert change.name == ("moved-right" if step > 0 else "moved-left") and not change.in_pixels
    assert change.value == pytest.approx(abs(step), abs=0.006)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("step", [(0.04, -0.05)])
def test_boxes_that_are_shifted_along_both_sides_are_no_copy(cells, step):
    """And stay in their images, so that neither order nor unit looks wrong."""
    found, meaning = told_of_boxes(cells.moved(lambda b: np.add(b, (*step, *step))))
    assert {f.code for f in found.values() if f.severity != "note"} == {"shifted"}
    found_step = np.array([meaning.shift.x, meaning.shift.y]) / (640, 480)
    assert found_step == pytest.approx(np.negative(step), abs=0.01)


@pytest.mark.slow
@pytest.mark.shared
def test_pixels_of_a_copy_are_no_thousandths_in_another_order(cells):
    """YOLO labels in pixels of a larger copy: as thousandths from corners they fit a little, by chance."""
    planted = replace(cells, coco=False, layout=centred, unit=lambda size: 1.25 * size)
    stated, maps = planted.raw(), EdgeMaps.of(planted.images.values())
    raw = replace(stated, layout="cxcywh").with_numbers(stated.numbers_N4)
    sample = Sample(maps, np.arange(len(raw)), raw.image_N)
    found, _ = examine_geometry(raw, raw.stated_I2, sample)
    assert {f.code for f in found if f.severity != "note"} == {"resized"}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("coco", "side"), [(False, 1.0), (False, 640.0), (True, 640.0), (True, 160.0)])
def test_boxes_of_a_padded_copy_are_named(clean, coco, side):
    found, meaning = told_of_boxes(replace(padded(clean, side), coco=coco))
    assert set(found) == {"padded"}
    assert np.abs(meaning.boxes.of(slice(None)) - np.concatenate(clean.corners)).max() < 0.03


@pytest.mark.slow
def test_choice_by_range_alone_says_so(clean):
    rng = np.random.default_rng(0)
    noise = {name: Image.fromarray(rng.integers(0, 255, (72, 96, 3), np.uint8)) for name in clean.images}
    found, _ = told_of_boxes(COCO["norm1000"](replace(clean, images=noise, coco=True)))
    assert "not confirmed by the pixels" in found["norm1000"].evidence


@pytest.mark.slow
@pytest.mark.parametrize("images", [12, 40])
def test_pixels_that_say_nothing_are_told(clean, images):
    part = COCO["mirrored"](replace(clean.subset(range(images)), coco=True))
    noise = np.random.default_rng(0).integers(0, 255, (72, 96, 3), np.uint8)
    found, _ = told_of_boxes(replace(part, images=dict.fromkeys(part.images, Image.fromarray(noise))))
    assert set(found) == {"no_evidence"} and found["no_evidence"].severity == "note"
    assert ("12 images are too few" in found["no_evidence"].message) == (images == 12)


def test_nothing_is_said_of_pixels_where_no_image_can_be_compared(clean):
    """Because their EXIF orientation is in doubt, or none can be decoded: another finding says so."""
    raw, none = replace(clean, coco=True).raw(), np.zeros(0, np.int64)
    found, _ = examine_geometry(raw, raw.stated_I2, Sample(EdgeMaps.of([]), none, none))
    assert found == []


@pytest.mark.parametrize(
    ("first", "ones", "twos", "is_told"), [(1, 5, 2, 1), (1, 4, 2, 0), (1, 12, 6, 1), (1, 11, 6, 0), (0, 14, 6, 0)]
)
def test_corners_that_count_from_1_are_told_where_boxes_touch_the_border(clean, first, ones, twos, is_told):
    raw = replace(clean, coco=True).raw()
    numbers_N4 = np.rint(raw.numbers_N4) + 2 + first
    numbers_N4[:ones, 0], numbers_N4[ones : ones + twos, 0] = first, first + 1
    found = one_off(raw.with_numbers(numbers_N4))
    assert [(f.code, f.severity) for f in found] == [("one_off", "note")] * is_told


@pytest.mark.slow
def test_shift_of_all_boxes_by_the_margin_of_a_padded_copy_is_told_as_that(clean):
    """Of images of one size, whose boxes lie a little too far to the right besides."""
    large = {name: image.resize((320, 240)) for name, image in clean.images.items()}
    corners = tuple(np.add(b, (0.01, 0, 0.01, 0)) for b in clean.corners)
    found, _ = told_of_boxes(replace(padded(replace(clean, images=large, corners=corners), 320.0), coco=True))
    assert set(found) == {"padded"}


@pytest.mark.slow
@pytest.mark.parametrize("limits", [(28, 56 * 56, 384 * 384), (32, 256 * 256, 448 * 448)])
def test_pixels_of_images_as_models_receive_them_are_a_reading(limits):
    """Where some images alone exceed the limit, so that no factor is that of all."""
    large, small = small_objects(40, 80, (640, 480)), small_objects(30, 60, (256, 192))
    images = {f"{kind}{name}": i for kind, d in (("l", large), ("s", small)) for name, i in d.images.items()}
    right = (*large.corners, *small.corners)
    sizes_I2 = np.array([image.size for image in images.values()], np.float64)
    ratios_I2 = resized_sizes(sizes_I2, *limits) / sizes_I2
    numbers = tuple(corners * np.tile(ratio, 2) for corners, ratio in zip(right, ratios_I2, strict=True))
    found, meaning = told_of_boxes(Draft(images, numbers, tuple(("x",) * len(c) for c in right), coco=True))
    assert set(found) == {"resized"}
    assert str(told_reading(found["resized"]).unit) == f"input{limits[0]}:{limits[2]}"
    np.testing.assert_allclose(meaning.boxes.of(slice(None)), np.concatenate(right), atol=1e-6)


@pytest.mark.parametrize(("layout", "unit", "side"), [("cxcywh", "unit", 1), ("xyxy", "norm1000", 1000)])
def test_images_in_another_order_are_rewritten_in_that_of_their_format(clean, layout, unit, side):
    ways = {"cxcywh": (centred, lambda b: b), "xyxy": (lambda b: b, centred)}[layout]
    is_other = np.arange(len(clean.images)) % 5 < 2
    right = [ways[0](corners) * side for corners in clean.corners]
    stated = [ways[k](corners) * side for k, corners in zip(is_other.astype(int), clean.corners, strict=True)]
    owner_N = np.repeat(np.arange(len(right)), [len(c) for c in right])
    sizes_I2, labels = np.full((len(right), 2), (96.0, 72.0)), sum(clean.labels, ())
    raw = RawBoxes.of(tuple(clean.images), sizes_I2, owner_N, np.concatenate(stated), labels, layout, unit)
    sample = Sample(EdgeMaps.of(clean.images.values()), np.arange(len(raw)), owner_N)
    changed, (found,) = in_one_meaning(raw, declared_meaning(raw, sizes_I2, sample), sizes_I2, sample)
    assert found.code == "mixed_units" and 0.6 * is_other.sum() <= found.count <= is_other.sum()
    is_changed_N = np.abs(changed.numbers_N4 - raw.numbers_N4).max(axis=1) > 1e-9 * side
    assert len(np.unique(owner_N[is_changed_N])) == found.count and is_other[owner_N[is_changed_N]].all()
    np.testing.assert_allclose(changed.numbers_N4[is_changed_N], np.concatenate(right)[is_changed_N], atol=1e-6 * side)
