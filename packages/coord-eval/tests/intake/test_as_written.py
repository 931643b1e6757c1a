"""Boxes of text answers in pixels as they are written: the figures of the same boxes in a results list, bit for bit."""

import json
import random

import numpy as np
import pytest

from coord_eval import AnswerSettings, ReportSettings, parse_answer, score, score_expressions
from coord_eval.boxes.pixels import boxes_in_pixels

UNDIAGNOSED = ReportSettings(diagnose=False)

SIZES = ((500, 375), (640, 480), (1000, 1000), (333, 777), (1024, 768))
SHARES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
FORMS = ("pixels", "thousandths", "tokens", "fractions", "xywh")
QUICK = 12


def as_text(form, box, size):
    """Return an answer with a box `x1, y1, x2, y2`, given in pixels, in thousandths, or as bins."""
    x1, y1, x2, y2 = box
    if form == "tokens":
        tokens = "".join(f"<|coord_{value}|>" for value in box)
        return f"<|object_ref_start|>c1<|object_ref_end|><|box_start|>{tokens}<|box_end|>"
    if form == "fractions":
        box = [value / 1000 for value in box]
    key, numbers = ("bbox", [x1, y1, x2 - x1, y2 - y1]) if form == "xywh" else ("bbox_2d", list(box))
    numbers = {"x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1} if form == "xywh" else numbers
    return json.dumps([{key: numbers, "label": "c1"}])


def in_pixels(form, box, size):
    """Return `x, y, width, height` of the same box, by the decimal numbers."""
    if form in ("pixels", "xywh"):
        x1, y1, x2, y2 = box
    else:
        x1, y1, x2, y2 = (round(value * side / 1000, 6) for value, side in zip(box, size * 2, strict=True))
    return [x1, y1, round(x2 - x1, 6), round(y2 - y1, 6)]


def drawn_set(draw, form, true_sides=None):
    """Return a set of one object an image, text answers of an exact IoU, and a results list of the same boxes."""
    size = draw.choice(SIZES)
    truth = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "c1"}]}
    texts, results = [], []
    for number in range(1, 6):
        limit = size if form in ("pixels", "xywh") else (1000, 1000)
        width, height = true_sides or (20 * draw.randint(1, 12), draw.randint(4, 200))
        x1, y1 = draw.randint(0, limit[0] - width), draw.randint(0, limit[1] - height)
        share = 1 if true_sides else draw.choice(SHARES)
        answered = (x1, y1, x1 + round(width * share), y1 + height)
        box = in_pixels(form, (x1, y1, x1 + width, y1 + height), size)
        truth["images"].append({"id": number, "file_name": f"{number}.jpg", "width": size[0], "height": size[1]})
        truth["annotations"].append({"id": number, "image_id": number, "category_id": 1, "bbox": box})
        texts.append({"image_id": number, "text": as_text(form, answered, size)})
        results.append({"image_id": number, "category_id": 1, "bbox": in_pixels(form, answered, size), "score": 1.0})
    scale = {"pixels": "pixels", "xywh": "pixels", "thousandths": 1000, "tokens": None, "fractions": 1}[form]
    return truth, texts, results, scale


def check(draw, form, true_sides=None):
    truth, texts, results, scale = drawn_set(draw, form, true_sides)
    found = score(
        truth, texts, answers=AnswerSettings(scale=scale), score_source="constant", report=UNDIAGNOSED
    ).to_dict()
    expected = score(truth, results, report=UNDIAGNOSED).to_dict()
    del found["analysis"]["reliability"], expected["analysis"]["reliability"]  # a constant is no probability
    for name in ("coco", "per_class", "pr_curves", "detection", "mean_iou", "analysis", "coco_class_agnostic"):
        assert found[name] == expected[name], (form, name)
    reference = score(
        truth,
        texts,
        backend="pycocotools",
        answers=AnswerSettings(scale=scale),
        score_source="constant",
        report=UNDIAGNOSED,
    )
    assert found["coco"] == reference.coco


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_exact_thresholds(form):
    for seed in range(QUICK):
        check(random.Random(seed), form)


@pytest.mark.slow
@pytest.mark.parametrize("sides", [(32, 32), (96, 96)])
@pytest.mark.parametrize("form", FORMS)
def test_boxes_on_the_borders_of_areas(form, sides):
    """An object of exactly 32 x 32 pixels is small and medium, as in pycocotools."""
    for seed in range(QUICK // 4):
        check(random.Random(seed), form, sides)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_many_exact_thresholds_and_borders(form):
    for seed in range(120):
        check(random.Random(100 + seed), form, draw_sides(seed))


def draw_sides(seed):
    return (None, (32, 32), (96, 96))[seed % 3]


def test_pixels_stand_as_they_are_written_and_others_take_one_step():
    def boxes(text, size, **options):
        answer = parse_answer(text, **options)
        return boxes_in_pixels(answer.objects, np.tile(np.array(size, float), (len(answer), 1))).tolist()

    decimals = '[{"bbox_2d": [10.1, 20.123456789, 50.3, 33.3], "label": "c"}]'
    assert boxes(decimals, (500, 375), scale="pixels", image_size=(500, 375))[0][:3] == [10.1, 20.123456789, 40.2]
    assert boxes('[{"bbox_2d": [557, 133, 588, 286], "label": "c"}]', (640, 480), scale=1000) == [
        [356.48, 63.84, 19.84, 73.44]
    ]
    swapped = '[{"bbox_2d": [588, 286, 557, 133], "label": "c"}]'
    assert boxes(swapped, (640, 480), scale=1000) == [[356.48, 63.84, 19.84, 73.44]]
    outside = '[{"bbox_2d": [480, 300, 503, 350], "label": "c"}]'
    assert boxes(outside, (500, 375), scale="pixels", image_size=(500, 375)) == [[480.0, 300.0, 20.0, 50.0]]


@pytest.mark.parametrize("form", ["pixels", "thousandths"])
def test_expressions_of_an_iou_of_one_half_are_right(form):
    draw = random.Random(1)
    boxes, answers = [], []
    for _ in range(500):
        size = draw.choice(SIZES) if form == "pixels" else (1000, 1000)
        width, height = 2 * draw.randint(1, 100), draw.randint(4, 200)
        x1, y1 = draw.randint(0, size[0] - width), draw.randint(0, size[1] - height)
        boxes.append([x1 / size[0], y1 / size[1], (x1 + width) / size[0], (y1 + height) / size[1]])
        text = as_text("pixels", (x1, y1, x1 + width // 2, y1 + height), size)
        options = {"scale": "pixels", "image_size": size} if form == "pixels" else {"scale": 1000}
        answers.append(parse_answer(text, **options))
    assert score_expressions(boxes, answers, resamples=0).accuracy == {"0.5": 1.0}
