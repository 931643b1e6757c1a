"""Boxes from expectations that a producer states; the scale of plain numbers, given, inferred or assumed."""

import json
import math
import random

import pytest

from coord_codec import Instance, Object
from coord_eval import AnswerSettings, InputError, score, score_expression_files
from coord_eval.cli.main import main
from coord_eval.diagnosis import smart_resize

INFERRED = AnswerSettings(scale="infer")

TRUTH = [
    Instance(
        image="a.png", width=100, height=100, image_id=1, objects=[Object(desc="cat", bbox=(0.1004, 0.2, 0.5, 0.6))]
    )
]
TEXT = "<obj_start>cat<|coord_100|><|coord_200|><|coord_900|><|coord_600|><obj_end>"


def record(**more):
    return {"image_id": 1, "text": TEXT, **more}


def test_expected_boxes_replace_those_of_tokens():
    given = record(coord_expected=[0.1004, 0.2, 0.5, 0.6])
    said, read = (score(TRUTH, [given], answers=AnswerSettings(boxes=boxes)) for boxes in ("tokens", "expected"))
    assert said.mean_iou == pytest.approx(0.3996 / 0.8, rel=1e-6)
    assert read.mean_iou == pytest.approx(1.0, rel=1e-9)
    assert read.format == said.format


def test_answers_that_state_nothing_among_others_have_the_boxes_of_their_tokens_and_are_counted():
    truth = [TRUTH[0], TRUTH[0].model_copy(update={"image": "b.png", "image_id": 2})]
    given = [record(coord_expected=[0.1004, 0.2, 0.5, 0.6]), record(image_id=2)]
    read = score(truth, given, answers=AnswerSettings(boxes="expected"))
    assert read.mean_iou == pytest.approx((1 + 0.3996 / 0.8) / 2, rel=1e-6)
    assert "1 of 2 answers state no coord_expected: their boxes are those of the tokens" in read.notes


def test_boxes_by_median_and_by_expected_iou():
    x1, y1 = [0.1, 0.1, 0.2, 0.3, 0.3], [0.2, 0.2, 0.3, 0.3, 0.4]
    x2, y2 = [0.5, 0.5, 0.5, 0.7, 0.8], [0.5, 0.5, 0.6, 0.8, 0.9]
    given = record(coord_quantiles=[x1, y1, x2, y2])
    median, best = (score(TRUTH, [given], answers=AnswerSettings(boxes=boxes)) for boxes in ("median", "best_iou"))
    assert median.mean_iou == pytest.approx(0.3 * 0.3 / (0.3996 * 0.4), rel=1e-6)
    # The sides that are least certain matter less to IoU in a box that is larger than the medians': .2, .2, .5, .8.
    assert best.mean_iou == pytest.approx(0.3 * 0.4 / (0.3996 * 0.4 + 0.3 * 0.2), rel=1e-6)


@pytest.mark.parametrize(
    ("quantiles", "told"),
    [
        (None, "coord_quantiles: expected one value"),
        ([[0.1] * 3] * 3, "coord_quantiles: expected one value"),
        ([[0.1] * 2] * 4, "an odd number"),
        ([[0.1] * 3] * 3 + [[0.1]], "an odd number"),
        ([[0.3, 0.2, 0.1]] * 4, "ascending"),
        ([[0.1, 0.2, 1.1]] * 4, r"coord_quantiles\[0\]\[2\]: .*found 1.1"),
        ([0.1] * 4, "coord_quantiles"),
        ("0.1", "coord_quantiles: .*found '0.1'"),
    ],
)
def test_quantiles_that_are_none_are_refused(quantiles, told):
    with pytest.raises(InputError, match=told):
        score(TRUTH, [record(coord_quantiles=quantiles)], answers=AnswerSettings(boxes="median"))


def test_expected_boxes_are_sorted_and_dropped_without_area():
    swapped = score(TRUTH, [record(coord_expected=[0.5, 0.6, 0.1004, 0.2])], answers=AnswerSettings(boxes="expected"))
    assert swapped.mean_iou == pytest.approx(1.0, rel=1e-9)
    flat = score(TRUTH, [record(coord_expected=[0.5, 0.2, 0.5, 0.6])], answers=AnswerSettings(boxes="expected"))
    assert flat.format["objects"] == 0
    assert flat.format["dropped"] == {"no_area": 1}


def test_expected_boxes_of_equal_tokens_may_differ():
    flat = TEXT.replace("900", "100")
    given = {"image_id": 1, "text": flat, "coord_expected": [0.1004, 0.2, 0.5, 0.6]}
    assert score(TRUTH, [given]).format["dropped"] == {"no_area": 1}
    read = score(TRUTH, [given], answers=AnswerSettings(boxes="expected"))
    assert read.mean_iou == pytest.approx(1.0, rel=1e-9)
    assert read.format["dropped"] == {} and read.format["parsed"] == 1


@pytest.mark.parametrize(
    ("more", "boxes", "told"),
    [
        ({}, "expected", "found nothing"),
        ({"coord_expected": [0.1, 0.2]}, "expected", "found 2 values"),
        ({"coord_expected": [0.1, 0.2, 3.0, 0.4]}, "tokens", r"coord_expected\[2\]: .*found 3.0"),
        ({}, "wishes", "expected one of tokens, expected"),
    ],
)
def test_expected_boxes_refuse_missing_expectations(more, boxes, told):
    with pytest.raises(InputError, match=told):
        score(TRUTH, [record(**more)], answers=AnswerSettings(boxes=boxes))


@pytest.fixture
def answers(coco_set):
    """A function that writes the truth in any scale, in pictures that the model saw at other sizes."""
    names = {c["id"]: c["name"] for c in coco_set["categories"]}
    draw = random.Random(0)

    def write(divide_by):
        records = []
        for image in coco_set["images"]:
            width, height = image["width"], image["height"]
            seen = (28 * draw.randint(8, 60), 28 * draw.randint(8, 60))
            sides = {"pixels": (width, height), "input_pixels": seen}.get(divide_by, (divide_by, divide_by))
            objects = []
            for a in coco_set["annotations"]:
                if a["image_id"] == image["id"] and not a["iscrowd"]:
                    x, y, w, h = a["bbox"]
                    unit = (x / width, y / height, (x + w) / width, (y + h) / height)
                    box = [round(u * sides[i % 2]) for i, u in enumerate(unit)]
                    objects.append({"bbox_2d": box, "label": names[a["category_id"]]})
            records.append(
                {"image_id": image["id"], "text": json.dumps(objects), "input_width": seen[0], "input_height": seen[1]}
            )
        return records

    return write


@pytest.mark.parametrize("scale", [1000, "pixels", "input_pixels"])
def test_infer_scale_finds_the_scale_that_was_used(coco_set, answers, scale):
    records = answers(scale)
    named = score(coco_set, records, answers=AnswerSettings(scale=scale))
    assert named.mean_iou > 0.95
    assert not any("assumed" in note or "inferred" in note for note in named.notes)
    inferred = score(coco_set, records, answers=INFERRED)
    assert inferred.mean_iou == named.mean_iou
    assert any(f"scale {scale}" in note and "inferred from" in note for note in inferred.notes)
    assert sum("mean best IoU" in note for note in inferred.notes) == 4


def test_assumed_scale_is_noted(coco_set, answers):
    evaluation = score(coco_set, answers("pixels"))
    assert any("/1000 was assumed" in note for note in evaluation.notes)
    assert evaluation.mean_iou < 0.6


def test_infer_scale_finds_fractions(coco_set, answers):
    records = answers(1000)
    for record in records:
        objects = json.loads(record["text"])
        record["text"] = json.dumps([o | {"bbox_2d": [v / 1000 for v in o["bbox_2d"]]} for o in objects])
    inferred = score(coco_set, records, answers=INFERRED)
    assert inferred.mean_iou > 0.95 and any("scale 1.0 inferred" in note for note in inferred.notes)


def test_infer_scale_prefers_what_finds_objects_to_what_stays_inside(coco_set, answers):
    """Pixels of which a few lie outside their images, as a careless model writes them."""
    records = answers("pixels")
    for record in records[::4]:
        objects = json.loads(record["text"])
        record["text"] = json.dumps([*objects, {"bbox_2d": [10, 10, 5000, 5000], "label": "cat"}])
    assert any("scale pixels inferred" in note for note in score(coco_set, records, answers=INFERRED).notes)


def test_infer_scale_tells_999_from_1000(coco_set, answers):
    assert any("scale 999.0 inferred" in note for note in score(coco_set, answers(999), answers=INFERRED).notes)


def test_infer_scale_notes_another_scale_that_fits_as_well(coco_set, answers):
    """In images of 1000 x 1000 bins and pixels are the same."""
    for image in coco_set["images"]:
        image.update(width=1000, height=1000)
    for a in coco_set["annotations"]:
        a["bbox"] = [min(v, 450) for v in a["bbox"]]
    notes = score(coco_set, answers(1000), answers=INFERRED).notes
    assert any("scale 1000.0 inferred" in note and "another one fits as well" in note for note in notes)


def test_infer_scale_refuses_numbers_that_fit_no_image(coco_set, answers):
    with pytest.raises(InputError, match=r"none fits .*; name the scale; `coord-eval score --diagnose` tries orders"):
        score(coco_set, answers(100_000), answers=INFERRED)


def rewritten(coco_set, records, change):
    """The records with each box changed by a function of the box and the size of the image."""
    sizes = {image["id"]: (image["width"], image["height"]) for image in coco_set["images"]}
    for record in records:
        objects = json.loads(record["text"])
        changed = [item | {"bbox_2d": change(item["bbox_2d"], sizes[record["image_id"]])} for item in objects]
        record["text"] = json.dumps(changed)
        del record["input_width"], record["input_height"]
    return records


def resized(box, size, factor=32, min_pixels=256 * 256, max_pixels=512 * 512):
    width, height = smart_resize(*size, factor=factor, min_pixels=min_pixels, max_pixels=max_pixels)
    return [round(v * side / 1000) for v, side in zip(box, (width, height) * 2, strict=True)]


def weak(seed):
    """Boxes moved and stretched at random, as a model of a mean best IoU of about .3 answers them."""
    draw = random.Random(seed)

    def change(box, size):
        sides = [(box[i], box[i + 2]) for i in (0, 1)]
        moved = [((a + b) / 2 + draw.gauss(0, 0.4) * (b - a), (b - a) * math.exp(draw.gauss(0, 0.3))) for a, b in sides]
        low, high = zip(*((max(0, c - w / 2), c + w / 2) for c, w in moved), strict=True)
        return [round(v) for v in (*low, *high)]

    return change


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (resized, "this looks like .*an input resized .*give input_width and input_height"),
        (lambda b, s: [0.64 * v for v in b], "this looks like .*a copy of 640 x 640 pixels .--scale 640"),
        (lambda b, s: [b[1], b[0], b[3], b[2]], "this looks like numbers as yxyx"),
        (lambda b, s: [b[0], b[1], b[2] - b[0], b[3] - b[1]], "this looks like numbers as xywh"),
        (lambda b, s: [1000 - b[2], b[1], 1000 - b[0], b[3]], "this looks like .*mirrored left to right"),
        (lambda b, s: [v // 20 for v in b], "name the scale"),
    ],
    ids=["resized", "square copy", "y first", "xywh", "mirrored", "a twentieth"],
)
def test_infer_scale_refuses_numbers_that_another_reading_fits(coco_set, answers, change, told):
    records = rewritten(coco_set, answers(1000), change)
    with pytest.raises(InputError, match=f"none fits .*{told}"):
        score(coco_set, records, answers=INFERRED)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("seed", range(3))
def test_infer_scale_refuses_inexact_boxes_of_a_resized_input(coco_set, answers, seed):
    """They fit the image itself hardly less, and lose a quarter of their AP on it."""
    draw = random.Random(seed)

    def change(box, size):
        sides = [box[2] - box[0], box[3] - box[1]] * 2
        inexact = [v + draw.gauss(0, 0.05) * side for v, side in zip(box, sides, strict=True)]
        return resized(inexact, size, factor=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280)

    records = rewritten(coco_set, answers(1000), change)
    assert score(coco_set, records, answers=AnswerSettings(scale="pixels")).mean_iou > 0.5
    with pytest.raises(InputError, match=r"this looks like .*an input resized"):
        score(coco_set, records, answers=INFERRED)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("seed", range(3))
def test_infer_scale_keeps_inexact_pixels(coco_set, answers, seed):
    draw = random.Random(seed)

    def change(box, size):
        sides = [box[2] - box[0], box[3] - box[1]] * 2
        return [round(max(0, v + draw.gauss(0, 0.06) * side)) for v, side in zip(box, sides, strict=True)]

    records = rewritten(coco_set, answers("pixels"), change)
    assert any("scale pixels inferred" in note for note in score(coco_set, records, answers=INFERRED).notes)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "names"), [(1000, ("1000.0", "999.0", "1024.0")), ("pixels", ("pixels",))])
def test_infer_scale_finds_the_scale_of_weak_answers(coco_set, answers, scale, names):
    records = rewritten(coco_set, answers(scale), weak(0))
    evaluation = score(coco_set, records, answers=INFERRED)
    found = [note for note in evaluation.notes if "inferred from" in note]
    assert found[0].startswith(tuple(f"scale {name} inferred" for name in names))
    assert 0.2 < evaluation.mean_iou_class_agnostic < 0.4
    assert "it fits weakly" in found[0]


def test_infer_scale_refuses_weak_answers_that_two_scales_fit(coco_set, answers):
    """In images of 920 x 920, pixels are nearly thousandths."""
    for image in coco_set["images"]:
        image.update(width=920, height=920)
    records = rewritten(coco_set, answers("pixels"), weak(0))
    with pytest.raises(InputError, match="none fits"):
        score(coco_set, records, answers=INFERRED)


def test_infer_scale_without_plain_numbers(coco_set):
    evaluation = score(coco_set, [{"image_id": 0, "text": ""}], answers=INFERRED)
    assert "no plain numbers in the answers: nothing to scale" in evaluation.notes


def test_scale_of_an_unknown_name_is_refused(coco_set):
    with pytest.raises(InputError, match="scale: expected a number"):
        score(coco_set, [{"image_id": 0, "text": ""}], answers=AnswerSettings(scale="inches"))


def test_scale_input_pixels_needs_the_input_size(coco_set):
    with pytest.raises(InputError, match="input_width"):
        score(coco_set, [{"image_id": 0, "text": "x"}], answers=AnswerSettings(scale="input_pixels"))


def test_points_are_drops_where_boxes_are_expected(tmp_path, capsys):
    """A point is no box of a thousandth: `score`, `expressions` and `parse` say how points are scored."""
    text, advice = '{"point_2d": [300, 400], "label": "cat"}', "--geometry point"
    cat, records = TRUTH[0], [{"image_id": 1, "text": text}]
    found = score([cat], records)
    assert found.format["dropped"] == {"point": 1}
    assert sum(advice in note for note in found.notes) == 2 and advice in found.notes[-1]
    assert "diagnosis" in found.notes[-1]
    phrases = score_expression_files([cat], records)
    assert phrases.without_box == 1 and any(advice in note for note in phrases.notes)
    assert score_expression_files([cat], records, answers=AnswerSettings(geometry="point")).point_in_box == 1
    (tmp_path / "answer.txt").write_text(text)
    assert main(["parse", str(tmp_path / "answer.txt")]) == 0 and advice in capsys.readouterr().out
    assert main(["parse", str(tmp_path / "answer.txt"), "--geometry", "point"]) == 0
    assert advice not in capsys.readouterr().out
