"""Right boxes in front of a regular pattern are no error, wrong ones are; a command is tried before it is printed."""

import io
import json
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps
from planted import COCO, Draft, shapes, told, told_of_boxes, told_reading

from coord_data.finding import Finding
from coord_data.inspection.both_readings import sections_of_readings
from coord_data.inspection.examine import examination_of
from coord_data.inspection.numbers.background import gain_beside
from coord_data.inspection.numbers.edges import EdgeMaps, Sample, z_value
from coord_data.inspection.numbers.offsets import KINDS, Offset
from coord_data.inspection.numbers.trial import kept_inside, objection_to
from coord_data.looking.alike import groups_of_alike
from coord_data.looking.hashes import grey_values, perceptual_hashes
from coord_data.preparing.preparation import prepare
from coord_data.reading.rules import ReadingRules
from coord_data.sources.read_as import ReadAs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def alarms():
    """The benchmark of false alarms, with its generated patterns."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield runpy.run_path(str(BENCHMARKS / "false_alarms.py"))
    finally:
        sys.path.remove(str(BENCHMARKS))


TILINGS = ("chess boards", "bricks", "shelves", "some of shelves", "keyboards", "car parks")


@pytest.mark.slow
@pytest.mark.parametrize("one_camera", [False, True])
@pytest.mark.parametrize("name", TILINGS)
def test_right_boxes_at_the_pitch_of_a_pattern_are_no_error(alarms, name, one_camera):
    assert set(alarms["TILINGS"]) == set(TILINGS)
    draft = replace(alarms["tiling"](name, 30, one_camera=one_camera), coco=True)
    found, _ = told_of_boxes(draft)
    assert [finding for finding in found.values() if finding.severity == "error"] == []


@pytest.mark.slow
def test_boxes_beside_the_pieces_of_a_board_gain_by_a_step_to_its_squares_and_those_beside_other_objects_do_not(alarms):
    def gain(draft, step):
        raw, maps = replace(draft, coco=False).raw(), EdgeMaps.of(draft.images.values())
        sample = Sample(maps, np.arange(len(raw)), raw.image_N)
        return gain_beside(raw.numbers_N4, step(raw.numbers_N4), sample, in_stated_size=True)

    def enlarge(boxes_N4):
        centres_N4 = np.tile((boxes_N4[:, :2] + boxes_N4[:, 2:]) / 2, 2)
        return centres_N4 + (boxes_N4 - centres_N4) * 1.43

    assert gain(alarms["tiling"]("chess boards", 20, one_camera=True), enlarge).explains
    small = shapes(40).moved(lambda b: (b + np.tile((b[:, :2] + b[:, 2:]) / 2, 2) * 0.43) / 1.43)
    background = gain(small, enlarge)
    assert background.is_ruled_out and background.gain > 2 * background.beside


def goods(gap, inset):
    """Return images of nine coloured goods each, `gap` pixels apart, with boxes that lack `inset` of each side."""
    side, rng = 128, np.random.default_rng(0)
    images, corners = {}, []
    for number in range(24):
        canvas = Image.new("RGB", (side, side), (128, 125, 120))
        brush = ImageDraw.Draw(canvas)
        width = int(rng.integers(16, 21))
        left, top = rng.integers(2, side - 3 * (width + gap), 2).tolist()
        boxes = []
        for row, column in np.ndindex(3, 3):
            x, y = left + column * (width + gap), top + row * (width + gap)
            brush.rectangle((x, y, x + width - 1, y + width - 1), fill=tuple(rng.integers(30, 225, 3).tolist()))
            boxes.append((x + inset, y + inset, x + width - inset, y + width - inset))
        noisy_HWC = np.asarray(canvas, np.float32) + rng.normal(0, 4, (side, side, 3))
        images[f"{number}.png"] = Image.fromarray(noisy_HWC.clip(0, 255).astype(np.uint8))
        corners.append(np.array(boxes) / side)
    return Draft(images, tuple(corners), (("x",) * 9,) * len(images), coco=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gap", "inset", "severity"),
    [
        (2, 0, None),  # right boxes, which reach the weaker edges between their neighbours if they are enlarged
        (1, 1, None),
        (12, 2, "error"),
    ],
)
def test_boxes_are_too_small_only_by_edges_that_are_as_strong(gap, inset, severity):
    expected = {"too_small": severity} if severity else {}
    assert {code: f.severity for code, f in told_of_boxes(goods(gap, inset))[0].items()} == expected


@pytest.mark.slow
@pytest.mark.parametrize("quality", [{}, {"subsampling": 0}], ids=["chroma halved", "whole chroma"])
@pytest.mark.parametrize("low", [12, 24])
def test_exact_boxes_of_coloured_drawings_are_not_too_small_for_what_jpeg_leaves_around_them(quality, low):
    rng = np.random.default_rng(low)
    images, corners, size = {}, [], (320, 240)
    for number in range(30):
        canvas, boxes = Image.new("RGB", size, "white"), []
        for column, row in np.ndindex(3, 2):
            width, height = rng.integers(low, 80, 2).tolist()
            x, y = 10 + 104 * column + int(rng.integers(16)), 10 + 116 * row + int(rng.integers(24))
            colour = tuple(rng.integers(0, 256, 3).tolist())
            ImageDraw.Draw(canvas).rectangle((x, y, x + width - 1, y + height - 1), fill=colour)
            boxes.append((x, y, x + width, y + height))
        canvas.save(content := io.BytesIO(), "JPEG", **quality)
        images[f"{number}.png"] = Image.open(content).convert("RGB")
        corners.append(np.array(boxes) / (*size, *size))
    draft = Draft(images, tuple(corners), (("x",) * 6,) * len(images), coco=True)
    assert told_of_boxes(draft)[0] == {}


SIZES = (416, 512, 600, 640)


@pytest.mark.slow
@pytest.mark.drawn(2)
@pytest.mark.parametrize("side", SIZES)
def test_pixels_of_copies_have_a_usual_size_and_all_boxes_inside(side):
    draft = replace(shapes(40), coco=True, unit=lambda size: np.full_like(size, side))
    found, meaning = told_of_boxes(draft)
    unit = told_reading(found["resized"]).unit
    assert unit.value == side if unit.kind != "times" else unit.value * 96 == pytest.approx(side, rel=0.02)
    boxes_N4 = meaning.boxes.of(slice(None))
    np.testing.assert_allclose(boxes_N4, np.concatenate(draft.corners), atol=0.02)
    assert boxes_N4.max() <= 1.002


def test_command_that_loses_boxes_or_makes_them_less_plausible_is_not_printed():
    draft = replace(shapes(20), coco=True)
    raw = draft.raw()
    sample = Sample(EdgeMaps.of(draft.images.values()), np.arange(len(raw)), raw.image_N)
    own_N4 = np.concatenate(draft.corners)

    def objection(reading):
        return objection_to(ReadAs.parse(reading), raw, own_N4, raw.stated_I2, sample)

    assert objection("moved-left:0.1%") == ""
    beyond = int((own_N4[:, 2] + 0.2 > 1 + 1 / 96).sum())
    assert objection("moved-left:20%").startswith(f"{beyond} box")
    assert "fit the pixels worse" in objection("upside-down")


def test_images_that_look_alike_count_once():
    draft = shapes(8)
    pictures = [picture for image in draft.images.values() for picture in (image, image, ImageOps.mirror(image))]
    group_I = groups_of_alike(perceptual_hashes([grey_values(picture)[0] for picture in pictures]))
    assert (group_I[0::3] == group_I[1::3]).all() and len(set(group_I[0::3].tolist())) == 8
    values_I = np.random.default_rng(0).normal(1, 1, 8)
    none = np.zeros(0, np.int64)
    sample = Sample(EdgeMaps.of([]), none, none, np.repeat(np.arange(8), 3))
    repeated_I = np.where(np.arange(24) % 3 == 2, np.nan, np.repeat(values_I, 3))
    assert sample.z_of_groups(repeated_I) == pytest.approx(z_value(values_I))
    assert z_value(repeated_I) > sample.z_of_groups(repeated_I)


@pytest.mark.slow
def test_page_draws_the_boxes_as_stated_beside_those_of_the_reading(tmp_path):
    draft = replace(shapes(8), coco=True)
    source = draft.write(tmp_path / "in")
    found = examination_of(source.annotations, source.rules)
    assert sections_of_readings(found) == []
    proposal = Finding("mirrored", "warning", "the boxes are mirrored", "", 1, "", read_as="mirrored")
    (drawn,) = sections_of_readings(found.with_findings([proposal, replace(proposal, code="xywh")]))
    svgs = drawn.split("<svg")[1:]
    assert len(svgs) == 12 and drawn.count("<figure") == 6
    x1, _, x2, _ = draft.corners[0][0]
    first, second = ([float(v) for v in re.findall(r'<rect x="([0-9.]+)"', svg)] for svg in svgs[:2])
    side = float(re.search(r'viewBox="0 0 (\d+)', svgs[0]).group(1))
    assert any(abs(x - x1 * side) < 1.5 for x in first) and any(abs(x - (1 - x2) * side) < 1.5 for x in second)


def test_step_that_keeps_all_boxes_inside_is_preferred_where_it_is_near():
    boxes_N4 = np.array([[0.03, 0.2, 0.4, 0.6], [0.5, 0.2, 0.9, 0.7]])
    shifted, resized, _ = KINDS[1], KINDS[0], KINDS[2]
    near = kept_inside(Offset(shifted, (-0.035, 0.0), 0, 0, 1, 9), boxes_N4)
    assert near.step == pytest.approx((-0.03, 0.0))
    assert kept_inside(Offset(shifted, (-0.08, 0.0), 0, 0, 1, 9), boxes_N4).step == (-0.08, 0.0)
    assert kept_inside(Offset(resized, (1.115,), 0, 0, 1, 9), boxes_N4).step == pytest.approx((1 / 0.9,))


def test_boxes_that_are_enlarged_end_at_the_border():
    boxes_N4, size_N2 = np.array([[0.0, 0.2, 0.4, 1.0], [1.1, 0.0, 1.3, 0.5]]), np.array([[100.0, 100.0]] * 2)
    grown_N4 = ReadAs.parse("enlarged:0.8").of_format("xyxy", "unit").corners(boxes_N4, size_N2, size_N2)
    np.testing.assert_allclose(grown_N4[0], [0.0, 0.1, 0.45, 1.0])
    assert grown_N4[1, 2] > 1.3  # as before, outside


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shifted, 3 %", "resized, .95", "too_small, 20 %"])
def test_command_loses_no_box(tmp_path, name):
    source = COCO[name](replace(shapes(40), coco=True)).write(tmp_path / "in")
    codes, found = told(source)
    assert codes == {name.partition(",")[0]}
    reading = told_reading(found.findings[0])
    rules = ReadingRules(images=source.images, read_as=str(reading))
    prepare([source.annotations], tmp_path / "out", rules)
    summary = json.loads((tmp_path / "out" / "instances.summary.json").read_text())
    assert summary["boxes"] == len(found.raw) and summary["problems"] == 0
    again = examination_of(tmp_path / "out")
    assert summary["read_as"] == str(reading)
    assert str(reading) in next(f.message for f in again.findings if f.code == "reread")
    assert not any(f.severity == "error" for f in again.findings)


def coco_of(folder, **more):
    categories = more.get("categories", [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}])
    image = next(iter(shapes(1).images.values()))
    image.save(folder / "a.png")
    images = [{"id": 1, "file_name": "a.png", "width": image.width, "height": image.height}]
    boxes = [
        {"id": k, "image_id": 1, "category_id": k, "bbox": [8 * k, 8, 16, 16], **more.get("box", {})} for k in (1, 2)
    ]
    (folder / "a.json").write_text(json.dumps({"images": images, "annotations": boxes, "categories": categories}))
    return folder / "a.json"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, None),
        ({"categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}]}, "same_names"),
        ({"box": {"score": 0.9}}, "predictions"),
        ({"box": {"score": None}}, None),
        ({"box": {"score": 1.0}}, None),
        ({"box": {"iscrowd": 0}}, None),
    ],
)
def test_prepare_tells_what_the_annotations_alone_show(tmp_path, caplog, more, code):
    caplog.set_level("INFO")
    file = coco_of(tmp_path, **more)
    prepare([file], tmp_path / "out", ReadingRules())
    told = [line for line in caplog.messages if line.startswith(("warning: ", "error: "))]
    assert [line.split(": ")[1] for line in told] == ([code] if code else [])
    summary = json.loads((tmp_path / "out" / "instances.summary.json").read_text())
    assert set(told) <= set(summary["told"])


@pytest.mark.parametrize(("column", "cells"), [("score", ".1 .2 .3"), ("confidence", "1 1 .3"), ("score", "1 1.0 1")])
def test_table_of_predictions_is_named(tmp_path, caplog, column, cells):
    caplog.set_level("INFO")
    coco_of(tmp_path)
    rows = "".join(f"a.png,{8 * k},8,40,40,cat,{cell}\n" for k, cell in enumerate(cells.split(), 1))
    (tmp_path / "a.csv").write_text(f"filename,xmin,ymin,xmax,ymax,class,{column}\n{rows}")
    prepare([tmp_path / "a.csv"], tmp_path / "out", ReadingRules())
    assert any(line.startswith("warning: predictions: ") for line in caplog.messages) == ("." in cells.split()[-1])


def test_class_numbers_that_are_shifted_are_told_by_prepare(tmp_path, caplog):
    caplog.set_level("INFO")
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for k, image in enumerate(shapes(3).images.values()):
        image.save(tmp_path / "images" / f"{k}.png")
        (tmp_path / "labels" / f"{k}.txt").write_text(f"{1 + k % 2} .5 .5 .2 .2\n")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [dog, cat]\n")
    prepare([tmp_path], tmp_path / "out", ReadingRules())
    assert any(line.startswith("error: class_numbers: ") for line in caplog.messages)
