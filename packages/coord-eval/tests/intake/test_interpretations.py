"""Readings of numbers: each is the best for the numbers that it is about, and says what to do."""

import json
import random

import numpy as np
import pytest
from coco_builder import coco

from coord_codec.box_transforms import LAYOUTS
from coord_eval import AnswerSettings, load_ground_truth, score
from coord_eval.boxes.detections import Detections
from coord_eval.intake.box_sources import with_boxes_from
from coord_eval.intake.interpretations import RawNumbers, interpretations_by_fit, robust_line
from coord_eval.intake.prediction import prediction_of
from coord_eval.parse.parser import parse_answer

DRAW = random.Random(3)
SIZE = (300.0, 200.0)
BOXES = [
    (n, 1, [DRAW.uniform(5, 120), DRAW.uniform(5, 60), DRAW.uniform(20, 90), DRAW.uniform(20, 70)]) for n in range(30)
]
TRUTH = load_ground_truth(coco(*BOXES, images=range(30), size=SIZE))
CORNERS = LAYOUTS["xywh"](TRUTH.boxes_N4)
UNIT = CORNERS / np.tile(SIZE, 2)


def turned(x1, y1, x2, y2, how):
    """The corners of a box in an image that is changed so, all in [0, 1]."""
    return {
        "mirrored left to right": (1 - x2, y1, 1 - x1, y2),
        "turned upside down": (1 - x2, 1 - y2, 1 - x1, 1 - y1),
        "mirrored top to bottom": (x1, 1 - y2, x2, 1 - y1),
        "turned clockwise": (1 - y2, x1, 1 - y1, x2),
        "turned counter-clockwise": (y1, 1 - x2, y2, 1 - x1),
        "mirrored along the rising diagonal": (1 - y2, 1 - x2, 1 - y1, 1 - x1),
    }[how]


def best(numbers, order="xyxy", kind="plain", inputs=None, fitted=True):
    count = len(numbers)
    input_B2 = np.full((count, 2), np.nan) if inputs is None else np.tile(inputs, (count, 1))
    boxes = Detections.of(TRUTH, TRUTH.image_N, TRUTH.category_N, TRUTH.boxes_N4, np.ones(count), np.zeros(count))
    return interpretations_by_fit(TRUTH, RawNumbers(boxes, numbers, input_B2, order, kind), fitted)[0]


@pytest.mark.parametrize(
    "how",
    ["mirrored left to right", "turned upside down", "mirrored top to bottom", "turned clockwise",
     "turned counter-clockwise", "mirrored along the rising diagonal"],
)  # fmt: skip
@pytest.mark.parametrize("scale", ["thousandths", "pixels"])
def test_boxes_that_were_not_turned_with_their_images_are_told(how, scale):
    """The numbers are those of the upright image; those of the objects are of the changed one, or the other way."""
    back = {"turned clockwise": "turned counter-clockwise", "turned counter-clockwise": "turned clockwise"}.get(
        how, how
    )
    unit = np.array([turned(*row, back) for row in UNIT])
    sides = np.array(SIZE[::-1] if "clockwise" in how or "diagonal" in how else SIZE)
    numbers = unit * (1000 if scale == "thousandths" else np.tile(sides, 2))
    found = best(numbers, fitted=False)
    told = "divided by 1000" if scale == "thousandths" else "in pixels of the image"
    assert (found.name, found.fit) == (f"numbers {told}, {how}", pytest.approx(1))
    assert found.unit_B4 == pytest.approx(UNIT) and "were not" in found.advice


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["xyxy", "yxyx", "xywh", "cxcywh"])
@pytest.mark.parametrize(
    ("divisor", "option"),
    [
        (1000, "--scale 1000"),
        (999, "--scale 999"),
        (100, "--scale 100"),
        ("image", "--scale pixels"),
        ("input", "--scale input_pixels"),
    ],
)
def test_order_and_divisor_of_the_numbers_are_told_with_their_option(layout, divisor, option):
    inputs = (448.0, 224.0)
    sides = {"image": SIZE, "input": inputs}.get(divisor, (divisor, divisor))
    x1, y1, x2, y2 = (UNIT * np.tile(sides, 2)).T
    columns = {"xyxy": (x1, y1, x2, y2), "yxyx": (y1, x1, y2, x2), "xywh": (x1, y1, x2 - x1, y2 - y1),
               "cxcywh": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)}  # fmt: skip
    found = best(np.stack(columns[layout], axis=1), inputs=inputs, fitted=False)
    names = {"image": "in pixels of the image", "input": "in pixels of the model's input"}
    order = "" if layout == "xyxy" else f" as {layout}"
    assert (found.name, found.fit) == (
        f"numbers{order} {names.get(divisor, f'divided by {divisor}')}",
        pytest.approx(1),
    )
    assert found.advice == option if layout == "xyxy" else "answers hold" in found.advice
    stated = best(np.stack(columns[layout], axis=1), kind="results", order="xywh", inputs=inputs, fitted=False)
    assert stated.advice.endswith("on another scale; COCO's results have pixels of the image") == (layout == "xywh")
    assert best(UNIT * 1000, kind="tokens").advice == ""


@pytest.mark.parametrize(
    ("scale", "shift", "told"),
    [
        ((0.8, 0.9), (0.1, -0.05), ("x times 1.250 -0.125", "y times 1.111 +0.056")),
        ((0.7, 1.0), (0.0, 0.2), ("x times 1.429", "y times 1.000 -0.200")),
    ],
)
def test_affine_map_of_the_numbers_is_told_with_its_sign(scale, shift, told):
    numbers = (UNIT * np.tile(scale, 2) + np.tile(shift, 2)) * 1000
    found = best(numbers)
    assert found.is_fitted and found.fit == pytest.approx(1, abs=1e-3)
    assert found.name.endswith(", ".join(told)) and "divided by 1000" in found.name


def test_line_is_fitted_without_outliers():
    x = np.linspace(0, 1, 40)
    y = 2 * x - 0.5
    y[::9] += 5
    assert robust_line(x, y) == pytest.approx((2, -0.5))
    assert robust_line(x[:7], y[:7]) == (1, 0) and robust_line(np.ones(9), np.ones(9)) == (1, 0)


def test_first_of_two_scales_that_fit_is_inferred_and_the_size_that_an_answer_states_counts():
    """In images of nearly 1000 pixels both fit; thousandths are named first, whichever is a trifle better."""
    truth = coco(*((n, k, [v * 3 for v in box]) for n, k, box in BOXES), images=range(30), size=(1001, 1000))
    texts = [
        {"image_id": n, "text": json.dumps([{"bbox": [x, y, x + w, y + h], "label": "cat"}])}
        for n, _, (x, y, w, h) in ((n, k, [v * 3 for v in box]) for n, k, box in BOXES)
    ]
    settings = AnswerSettings(scale="infer")
    assert any(
        "scale 1000.0 inferred" in note and "as well" in note for note in score(truth, texts, answers=settings).notes
    )
    small = coco(*((n, k, [v / 2 for v in box]) for n, k, box in BOXES), images=range(30), size=(150, 100))
    half = [
        {"image_id": n, "text": json.dumps([{"bbox": [x, y, x + w, y + h], "label": "cat"}])}
        for n, _, (x, y, w, h) in BOXES
    ]
    sized = [{**row, "width": 300, "height": 200} for row in half]
    assert any(note.startswith("scale pixels inferred") for note in score(small, sized, answers=settings).notes)


def test_median_of_a_side_is_the_middle_quantile_and_drops_stay_in_order():
    text = (
        "<obj_start>a<|coord_1|><obj_end>" + "<obj_start>b<|coord_1|><|coord_2|><|coord_30|><|coord_40|><obj_end>" * 2
    )
    text += "<obj_start>c<obj_end>"
    sides = [[0.1, 0.2, 0.4], [0.2, 0.3, 0.5], [0.3, 0.6, 0.7], [0.3, 0.7, 0.8]]
    flat = [[0.2, 0.6, 0.6], *sides[1:]]
    record = prediction_of({"image_id": 1, "text": text, "coord_quantiles": [sides[0], *flat, *sides]}, "here")
    answer = with_boxes_from("median", parse_answer(text), record)
    assert [item.box for item in answer] == [(0.2, 0.3, 0.6, 0.7)]
    assert [drop.reason for drop in answer.dropped] == ["wrong_arity", "no_area", "no_coordinates"]
