"""Answers on a wrong scale, in another order or shifted: the way that finds the objects is named, with its AP."""

import json
import random
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from coco_builder import coco, generated_set

from coord_eval import AnswerSettings, Detections, LabelSettings, ReportSettings, compare, load_ground_truth, score
from coord_eval.cli.main import main
from coord_eval.diagnosis import diagnose, smart_resize
from coord_eval.diagnosis.answers import learnt_nothing


def unit_boxes(coco_set):
    """Label and corners in [0, 1] of the objects of each image."""
    names = {c["id"]: c["name"] for c in coco_set["categories"]}
    for image in coco_set["images"]:
        size = (image["width"], image["height"])
        objects = []
        for a in coco_set["annotations"]:
            if a["image_id"] == image["id"] and not a.get("iscrowd"):
                x, y, w, h = a["bbox"]
                corners = (x / size[0], y / size[1], (x + w) / size[0], (y + h) / size[1])
                objects.append((names[a["category_id"]], corners))
        yield image["id"], size, objects


def answers(coco_set, write):
    """Records whose boxes are `write(corners, size)`."""
    return [
        {
            "image_id": image,
            "text": json.dumps([{"bbox_2d": list(write(box, size)), "label": name} for name, box in objects]),
        }
        for image, size, objects in unit_boxes(coco_set)
    ]


def diagnosis(coco_set, predictions, diagnose=True, **reading):
    """What scoring says of other ways to read the numbers."""
    told = {"answers": AnswerSettings(**reading), "report": ReportSettings(diagnose=diagnose)}
    notes = score(coco_set, predictions, **told).notes
    return [note for note in notes if note.startswith("diagnosis: ")]


def _resized(box, size):
    width, height = smart_resize(*size, factor=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280)
    return [box[0] * width, box[1] * height, box[2] * width, box[3] * height]


def _thousandths(box):
    return [1000 * v for v in box]


def _padded(box, size, side, centred):
    """Corners in pixels of a square into which the image was fitted."""
    ratio = side / max(size)
    left, top = ((side - s * ratio) / 2 if centred else 0.0 for s in size)
    return [
        box[0] * size[0] * ratio + left,
        box[1] * size[1] * ratio + top,
        box[2] * size[0] * ratio + left,
        box[3] * size[1] * ratio + top,
    ]


WAYS = {
    "divided by 640 in a padded square with the image in the centre": lambda b, s: _padded(b, s, 640, True),
    "divided by 1000 in a padded square with the image in the centre": lambda b, s: _padded(b, s, 1000, True),
    "divided by 448 in a padded square with the image at the top left": lambda b, s: _padded(b, s, 448, False),
    "--scale 1)": lambda b, s: [round(v, 4) for v in b],
    "--scale 100)": lambda b, s: [100 * v for v in b],
    "--scale pixels)": lambda b, s: [b[0] * s[0], b[1] * s[1], b[2] * s[0], b[3] * s[1]],
    "multiples of 28": _resized,
    "as xywh": lambda b, s: _thousandths((b[0], b[1], b[2] - b[0], b[3] - b[1])),
    "as cxcywh": lambda b, s: _thousandths(((b[0] + b[2]) / 2, (b[1] + b[3]) / 2, b[2] - b[0], b[3] - b[1])),
    "as yxyx": lambda b, s: _thousandths((b[1], b[0], b[3], b[2])),
    "mirrored left to right": lambda b, s: _thousandths((1 - b[2], b[1], 1 - b[0], b[3])),
    "turned clockwise": lambda b, s: _thousandths((b[1], 1 - b[2], b[3], 1 - b[0])),
    "in pixels of the image, turned counter-clockwise": lambda b, s: [
        *((1 - b[3]) * s[1], b[0] * s[0]),
        *((1 - b[1]) * s[1], b[2] * s[0]),
    ],
    "x times 2.000 -0.400, y times 1.000": lambda b, s: _thousandths((b[0] / 2 + 0.2, b[1], b[2] / 2 + 0.2, b[3])),
}


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", WAYS)
def test_diagnose_names_the_way_that_fits_and_its_ap(coco_set, name):
    records = answers(coco_set, WAYS[name])
    # Without a named scale fractions are read as such, and there is nothing to diagnose.
    lines = diagnosis(coco_set, records, scale=1000)
    assert name in lines[1], lines
    assert float(re.search(r"would give AP (\S+),", lines[1])[1]) > 0.9
    if name in ("as yxyx", "mirrored left to right"):  # no option changes these
        assert "--scale" not in " ".join(lines)


def _renamed(records, rename):
    for record in records:
        objects = [item | {"label": rename(item["label"])} for item in json.loads(record["text"])]
        record["text"] = json.dumps(objects)
    return records


def test_diagnose_takes_the_options_that_answers_were_scored_with(coco_set):
    """Synonyms, ignored labels, prompted labels and stated confidences change the AP that a way would give."""
    records = answers(coco_set, WAYS["--scale pixels)"])
    for record in _renamed(records, lambda name: f"a {name}"):
        objects = json.loads(record["text"])
        stated = [item | {"score": (90 - i) / 100} for i, item in enumerate(objects)]
        noise = {"bbox_2d": [1, 1, 9, 9], "label": "noise", "score": 0.95}
        record["text"] = json.dumps([noise, *stated])
    labels = LabelSettings({c["name"]: [f"a {c['name']}"] for c in coco_set["categories"]})
    reading = AnswerSettings(ignored_labels=["noise"])
    evaluation = score(coco_set, records, answers=reading, labels=labels)
    lines = diagnose(evaluation, records, answers=reading, labels=labels, force=True)
    named = score(coco_set, records, answers=replace(reading, scale="pixels"), labels=labels)
    assert named.score_source == "stated" and named.coco["AP"] > 0.9
    assert f"would give AP {named.coco['AP']:.3f}" in lines[1]
    assert "noise" not in named.unknown_labels


@pytest.mark.slow
def test_diagnose_places_the_boxes_of_tiles_in_their_image():
    """Two tiles an image, as the model was given them; the way that is named has the AP of scoring in that way."""
    draw, rows, records = random.Random(1), [], []
    for image in range(1, 31):
        for label, (left, top) in enumerate(((0, 40), (200, 100)), 1):
            x, y, w, h = draw.randrange(130), draw.randrange(90), draw.randrange(20, 70), draw.randrange(20, 60)
            rows.append((image, label, [left + x, top + y, w, h]))
            box = {"bbox_2d": [x, y, x + w, y + h], "label": ("cat", "dog")[label - 1]}
            records.append({"image_id": image, "text": json.dumps([box]), "tile": [left, top, 200, 150]})
    truth = coco(*rows, images=range(1, 31), names=("cat", "dog"), size=(400, 300))
    lines = diagnosis(truth, records, scale=1000)
    assert "--scale pixels) would give AP 1.000, mean best IoU 1.000" in lines[1]
    (_, told) = diagnosis(truth, records, scale="pixels")
    assert "the way they are read fits best" in told
    for record in records:
        (box,) = json.loads(record["text"])
        record["text"] = json.dumps([box | {"bbox_2d": [3 * v + 200 for v in box["bbox_2d"]]}])
    told = diagnosis(truth, records, scale=1000)[1]
    assert "as fractions of the image's size, x times 0.333 -0.333, y times 0.333 -0.444 would give AP 1.000" in told


def test_diagnose_gives_boxes_without_label_the_one_of_the_prompt(coco_set):
    category = coco_set["categories"][0]
    coco_set["categories"] = [category]
    coco_set["annotations"] = [a | {"category_id": category["id"]} for a in coco_set["annotations"]]
    records = _renamed(answers(coco_set, WAYS["--scale pixels)"]), lambda name: "")
    records = [record | {"label": category["name"]} for record in records]
    lines = diagnosis(coco_set, records, scale=1000)
    assert float(re.search(r"would give AP (\S+),", lines[1])[1]) > 0.9


@pytest.mark.slow
def test_diagnose_prefers_the_option_to_a_fit_that_finds_it_again_and_agrees_with_its_score(coco_set):
    """Rounding to whole pixels makes a map fitted on the objects a little better than the truth."""
    whole = answers(coco_set, lambda b, s: [round(v) for v in WAYS["--scale pixels)"](b, s)])
    lines = diagnosis(coco_set, whole)
    assert "--scale pixels)" in lines[1] and not any("times" in line for line in lines)
    named = score(coco_set, whole, answers=AnswerSettings(scale="pixels"), score_source="constant")
    assert f"would give AP {named.coco['AP']:.3f}" in lines[1]


@pytest.mark.slow
def test_diagnose_keeps_silent_about_good_answers_and_says_when_nothing_fits(coco_set):
    good = answers(coco_set, lambda b, s: _thousandths(b))
    evaluation = score(coco_set, good)
    assert diagnose(evaluation, good) == []
    assert "the way they are read fits best" in diagnose(evaluation, good, force=True)[1]
    draw = random.Random(0)
    wild = answers(coco_set, lambda b, s: sorted(draw.randint(0, 20) for _ in range(4)))
    lines = diagnosis(coco_set, wild, diagnose=None)
    assert "no scale, order, shift or resize fits" in lines[1]


@pytest.mark.slow
def test_diagnose_reads_results_lists(coco_set):
    results = [
        {"image_id": a["image_id"], "category_id": a["category_id"], "score": 1.0, "bbox": [x, y, x + w, y + h]}
        for a in coco_set["annotations"]
        for x, y, w, h in [a["bbox"]]
    ]
    lines = diagnosis(coco_set, results)
    assert "numbers in pixels of the image" in lines[1]
    assert "bbox holds x1, y1, x2, y2; COCO's results have x, y, width, height" in lines[1]
    assert "--scale" not in " ".join(lines)


@pytest.mark.slow
def test_diagnose_names_no_option_for_coordinate_tokens(coco_set):
    """The numbers of tokens are divided by their grid, whatever the scale."""
    records = answers(coco_set, lambda b, s: [f"<|coord_{round(100 * v)}|>" for v in b])
    lines = diagnosis(coco_set, records)
    assert "numbers divided by 100 would give" in lines[1]


@pytest.mark.slow
def test_diagnose_takes_the_order_of_the_format_for_read_as_it_should(coco_set):
    records = [
        record | {"text": record["text"].replace("bbox_2d", "box_2d")}
        for record in answers(coco_set, lambda b, s: [b[1] * s[1], b[0] * s[0], b[3] * s[1], b[2] * s[0]])
    ]
    lines = diagnosis(coco_set, records, format="gemini", scale=1000)
    assert "as yxyx in pixels of the image" in lines[1] and "are read as" not in lines[1]


def _shifted(coco_set):
    """Results with the boxes of the truth and the next category each."""
    after = {c["id"]: d["id"] for c, d in pairwise([*coco_set["categories"], {"id": 999}])}
    return [
        {"image_id": a["image_id"], "category_id": after[a["category_id"]], "score": 1.0, "bbox": a["bbox"]}
        for a in coco_set["annotations"]
    ]


@pytest.mark.parametrize(
    ("predictions", "pairs"),
    [
        (
            lambda truth: _renamed(answers(truth, lambda b, s: _thousandths(b)), lambda name: f"x{name}"),
            ["'xcat' -> 'cat'"],
        ),
        (_shifted, ["'dog' -> 'cat'", "'category_id 999' -> 'traffic light'"]),
    ],
)
def test_diagnose_names_the_labels_where_they_alone_are_wrong(coco_set, predictions, pairs):
    wrong = predictions(coco_set)
    lines = diagnosis(coco_set, wrong)
    assert "the labels are wrong" in lines[1]
    for pair in pairs:
        true = {c["name"]: c["id"] for c in coco_set["categories"]}[pair.split("'")[-2]]
        count = sum(not a["iscrowd"] and a["category_id"] == true for a in coco_set["annotations"])
        assert f"{pair} ({count})" in lines[1]
    assert "and 1 more" in lines[1]


def test_half_of_the_names_with_half_of_the_labels_right_is_told():
    boxes = [(1, [10, 10, 30, 30]), (2, [50, 50, 30, 30])]
    coco_set = coco(*((i, k, box) for i in (1, 2) for k, box in boxes), names=("cat", "dog"), images=(1, 2))
    results = [{"image_id": i, "category_id": 1, "bbox": box, "score": 0.5} for i in (1, 2) for _, box in boxes]
    assert any("of 2 categories with objects 1 is answered" in line for line in diagnosis(coco_set, results))


@pytest.mark.slow
def test_diagnose_tells_labels_from_numbers_where_both_are_wrong(coco_set):
    records = _renamed(answers(coco_set, WAYS["--scale pixels)"]), lambda name: f"x{name}")
    lines = diagnosis(coco_set, records, scale=1000)
    assert re.search(r"--scale pixels\) would give AP 0.000 \((0.9|1.0)\d* for any label\)", lines[1])


SIZED = {
    "": lambda b: b,
    " as xywh": lambda b: (b[0], b[1], b[2] - b[0], b[3] - b[1]),
    " as yxyx": lambda b: (b[1], b[0], b[3], b[2]),
}


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("order", "labels"),
    [("", str), (" as xywh", lambda name: f"{name}s"), (" as yxyx", str)],
    ids=["xyxy", "xywh", "yxyx"],
)
def test_diagnose_finds_scale_and_order_together_whatever_the_labels(coco_set, order, labels):
    """Pixels of a copy of 617 x 617, which is no common size."""
    records = _renamed(answers(coco_set, lambda b, s: [617 * v for v in SIZED[order](b)]), labels)
    line = diagnosis(coco_set, records, scale=1000)[1]
    assert f"numbers{order} divided by 1000, x times 1.62" in line and ", y times 1.62" in line
    assert ("are read as x1, y1, x2, y2" in line) == bool(order)
    assert float(re.search(r"mean best IoU (\S+)$", line)[1]) > 0.9


def _limited(box, size):
    width, height = smart_resize(*size, factor=32, min_pixels=256 * 256, max_pixels=256 * 32 * 32)
    return [box[0] * width, box[1] * height, box[2] * width, box[3] * height]


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda b, s: [640 * v for v in b], "in pixels of a copy of 640 x 640 pixels (--scale 640)"),
        (_limited, "in pixels of an input resized to multiples of 32 and at most 262144 pixels"),
    ],
    ids=["square", "limited"],
)
def test_diagnose_knows_common_sizes_of_inputs(coco_set, write, told):
    records = answers(coco_set, write)
    line = diagnosis(coco_set, records, scale=1000)[1]
    assert told in line and float(re.search(r"would give AP (\S+),", line)[1]) > 0.9


@pytest.mark.slow
def test_diagnose_states_no_way_as_fact_that_hardly_fits():
    draw, coco_set = random.Random(1), generated_set(40)
    loose = answers(
        coco_set, lambda b, s: [draw.uniform(0, 300) for _ in range(2)] + [draw.uniform(700, 999) for _ in "xy"]
    )
    (line,) = diagnosis(coco_set, loose, scale=100)[1:]
    assert "no scale, order, shift or resize fits" in line and "alone" not in line
    (line,) = diagnosis(coco_set, loose[:20], scale=100)[1:]
    assert "no scale, order, shift or resize fits" in line and "images alone, more may tell" in line


@pytest.mark.slow
@pytest.mark.parametrize("way", ["as yxyx", "as read"])
def test_boxes_that_are_too_few_to_be_sure_are_told_as_such(way):
    """Of twelve images the boxes of four fit, the others lie anywhere: more than chance, and no proof."""
    draw, numbers = random.Random(1), iter(range(1000))

    def write(box, size):
        if next(numbers) % 12 < 4:
            return WAYS[way](box, size) if way in WAYS else _thousandths(box)
        return sorted(draw.sample(range(1000), 2)) + sorted(draw.sample(range(1000), 2))

    coco_set = generated_set(12)
    told = diagnosis(coco_set, answers(coco_set, write), scale=1000)[-1]
    assert "too few to tell" in told
    assert (way if way in WAYS else "most likely the way they are read") in told


@pytest.mark.parametrize(("images", "are_told_apart"), [(3, False), (12, True)])
def test_readings_that_few_images_do_not_tell_apart_are_all_named(images, are_told_apart):
    coco_set = generated_set(images)
    lines = diagnosis(coco_set, answers(coco_set, WAYS["multiples of 28"]), scale=1000)
    named = [line for line in lines if "would give" in line]
    assert "multiples of 28" in named[0] and any("pixels of the image" in line for line in named) != are_told_apart
    assert len(named) == (1 if are_told_apart else 3)


def test_diagnose_takes_numbers_that_are_no_box_as_they_are_read():
    """Width and height equal the upper left corner, so that the boxes have no area as corners."""
    boxes = [(20, 30), (24, 40), (40, 21)]
    coco_set = coco(*((image, 1, [*box, *box]) for image, box in enumerate(boxes, 1)), images=(1, 2, 3))
    line = diagnosis(coco_set, answers(coco_set, WAYS["as xywh"]), scale=1000)[1]
    assert "as xywh" in line and "AP 1.000" in line


@pytest.mark.slow
def test_diagnose_says_what_fits_slightly_better(coco_set):
    records = answers(coco_set, lambda b, s: [999 * v for v in b])
    evaluation = score(coco_set, records, answers=AnswerSettings(scale=1010))
    lines = diagnose(evaluation, records, force=True)
    better = score(coco_set, records, answers=AnswerSettings(scale=999)).coco["AP"]
    assert "divided by 999 (--scale 999) fits slightly better, too little to be sure" in lines[1]
    assert f"AP {better:.3f} instead of {evaluation.coco['AP']:.3f}" in lines[1]


def test_diagnose_blames_ground_truth_without_boxes(coco_set):
    records = answers(coco_set, lambda b, s: _thousandths(b))
    empty = coco_set | {"annotations": []}
    assert diagnose(score(empty, records), records, force=True) == [
        "diagnosis: nothing to diagnose: the ground truth holds no boxes"
    ]


@pytest.mark.slow
def test_score_command_diagnoses_at_ap_near_0_and_on_request(coco_set, tmp_path, capsys):
    (tmp_path / "g.json").write_text(json.dumps(coco_set))
    for name, way in (("bad", WAYS["--scale 1)"]), ("good", lambda b, s: _thousandths(b))):
        lines = (json.dumps(record) + "\n" for record in answers(coco_set, way))
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    files = ["score", "--ground-truth", str(tmp_path / "g.json"), "--out", str(tmp_path / "r"), "--predictions"]
    assert main([*files, str(tmp_path / "bad.jsonl"), "--scale", "1000"]) == 0
    assert "--scale 1)" in capsys.readouterr().out
    assert "--scale 1)" in (tmp_path / "r" / "report.html").read_text()
    assert main([*files, str(tmp_path / "good.jsonl"), "--no-report"]) == 0
    assert "diagnosis" not in capsys.readouterr().out
    assert main([*files, str(tmp_path / "good.jsonl"), "--no-report", "--diagnose"]) == 0
    assert "diagnosis: as read" in capsys.readouterr().out


def test_diagnosis_is_proposed_where_ap_is_low_and_another_interpretation_fits(coco_set):
    """Boxes of which a part lies right by chance: AP is far from 0, and the note names the order that fits them all."""
    results = [
        {"image_id": a["image_id"], "category_id": a["category_id"], "bbox": [*a["bbox"]], "score": 1.0}
        for a in coco_set["annotations"]
        if not a["iscrowd"]
    ]
    for n, row in enumerate(results):
        x, y, w, h = row["bbox"]
        row["bbox"] = [y, x, h, w] if n % 4 else row["bbox"]
    evaluation = score(coco_set, results)
    assert 0.02 < evaluation["AP"] < 0.3
    (told,) = [note for note in evaluation.notes if note.startswith("diagnosis")]
    assert "--diagnose shows" in told and "yxhw" in told
    assert not any(
        note.startswith("diagnosis") for note in score(coco_set, results, report=ReportSettings(diagnose=False)).notes
    )


def test_few_boxes_of_very_many_images_are_looked_at():
    """The images whose input size is tried are some of those with boxes, wherever these are."""
    from coord_eval.intake.interpretations import RawNumbers, interpretations_by_fit

    images = {i: f"{i}.jpg" for i in range(2000)}
    truth = load_ground_truth(coco(*((i, 1, [10, 10, 40, 40]) for i in (3, 5, 11)), images=images))
    numbers_B4 = np.array([[10.0, 10, 50, 50]] * 3)
    none_B = np.zeros(3, np.int64)
    boxes = Detections.of(truth, np.array([3, 5, 11]), none_B, numbers_B4, np.ones(3), none_B)
    raw = RawNumbers(boxes, numbers_B4, np.full((3, 2), np.nan), "xyxy", "plain")
    assert interpretations_by_fit(truth, raw)[0].fit == pytest.approx(1)


def _centred(x, y, w, h, size):
    """Pixels of a square of 640 x 640 with the image in its centre."""
    ratio = 640 / max(size)
    left, top = ((640 - side * ratio) / 2 for side in size)
    return x * ratio + left, y * ratio + top, w * ratio, h * ratio


_WRONG = {
    "divided by 1 ": lambda x, y, w, h, s: (x / s[0], y / s[1], w / s[0], h / s[1]),
    "divided by 100 ": lambda x, y, w, h, s: (100 * x / s[0], 100 * y / s[1], 100 * w / s[0], 100 * h / s[1]),
    "as xywh divided by ": lambda x, y, w, h, s: (1000 * x / s[0], 1000 * y / s[1], 1000 * w / s[0], 1000 * h / s[1]),
    "numbers in pixels of the image (bbox holds x1, y1, x2, y2;": lambda x, y, w, h, s: (x, y, x + w, y + h),
    "as yxyx in pixels of the image": lambda x, y, w, h, s: (y, x, y + h, x + w),
    "as yxhw in pixels of the image": lambda x, y, w, h, s: (y, x, h, w),
    "as cxcywh in pixels of the image": lambda x, y, w, h, s: (x + w / 2, y + h / 2, w, h),
    "as cxcywh divided by 1 ": lambda x, y, w, h, s: ((x + w / 2) / s[0], (y + h / 2) / s[1], w / s[0], h / s[1]),
    "numbers divided by 1 ": lambda x, y, w, h, s: (x / s[0], y / s[1], (x + w) / s[0], (y + h) / s[1]),
    "a copy of 416 x 416": lambda x, y, w, h, s: (416 * x / s[0], 416 * y / s[1], 416 * w / s[0], 416 * h / s[1]),
    "640 in a padded square with the image in the centre": _centred,
    "x times 2.000, y times 2.000": lambda x, y, w, h, s: (x / 2, y / 2, w / 2, h / 2),
    "x times 0.500, y times 0.500": lambda x, y, w, h, s: (2 * x, 2 * y, 2 * w, 2 * h),
    "mirrored left to right": lambda x, y, w, h, s: (s[0] - x - w, y, w, h),
    "turned upside down": lambda x, y, w, h, s: (s[0] - x - w, s[1] - y - h, w, h),
}


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("detector", ["centernet", "nanodet"])
def test_readings_of_a_real_list_are_named_and_a_right_one_and_noise_are_not(real_detectors, detector):
    """Most of the answers of a detector are of low score and beside no object."""
    truth, results = real_detectors(detector)
    size = {image["id"]: (image["width"], image["height"]) for image in truth["images"]}
    for name, change in _WRONG.items():
        wrong = [row | {"bbox": [float(v) for v in change(*row["bbox"], size[row["image_id"]])]} for row in results]
        lines = diagnosis(truth, wrong)
        assert name in lines[1] and "would give AP" in lines[1], (name, lines)
        assert "how sure" in lines[-1] and "with another's" in lines[-1]
    assert "so it is right" in diagnosis(truth, results)[-1]
    assert diagnosis(truth, results, diagnose=None) == []
    draw = np.random.default_rng(0)
    others = dict(zip(size, draw.permutation(list(size)).tolist(), strict=True))
    elsewhere = [row | {"image_id": others[row["image_id"]]} for row in results]
    central = [
        row | {"bbox": [*(np.array(size[row["image_id"]]) * draw.uniform(0.1, 0.4, 2)).tolist(), 250.0, 250.0]}
        for row in results
    ]
    anywhere = [row | {"bbox": draw.uniform(0, 1000, 4).tolist()} for row in results]
    for noise in (elsewhere, central, anywhere):
        assert "no scale, order, shift or resize fits" in diagnosis(truth, noise)[-1]


@pytest.mark.shared
@pytest.mark.parametrize("detector", ["centernet", "nanodet"])
def test_ids_of_another_list_are_named_from_the_labels_of_matched_boxes(real_detectors, detector):
    truth, results = real_detectors(detector)
    right = score(truth, results)["AP"]
    ids = sorted(category["id"] for category in truth["categories"])
    for first, last in ((0, 79), (1, 80)):
        moved = [row | {"category_id": ids.index(row["category_id"]) + first} for row in results]
        lines = diagnosis(truth, moved, diagnose=None)
        assert any(f"from {first} to {last}, would give AP {right:.3f}" in line for line in lines), lines
    renumbered = truth | {
        key: [row | {name: ids.index(row[name])} for row in truth[key]]
        for key, name in (("categories", "id"), ("annotations", "category_id"))
    }
    lines = diagnosis(renumbered, results, diagnose=None)
    assert any(f"as COCO's own id, of 1 to 90, would give AP {right:.3f}" in line for line in lines)
    assert not any("category_id" in line for line in diagnosis(truth, results))


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 10, 1000])
def test_a_scale_is_proposed_of_crowded_images_by_their_best_boxes(monkeypatch, most):
    """Half of the boxes, those of low score, are pixels of the image; the others are of a copy of twice its sides."""
    monkeypatch.setattr("coord_eval.diagnosis.answers._BOXES_LOOKED_AT", most)
    rng = np.random.default_rng(0)
    boxes = [
        (n, 1, [*rng.uniform(5, 50, 2).round(2), *rng.uniform(8, 40, 2).round(2)]) for n in range(30) for _ in range(24)
    ]
    truth = coco(*boxes, images=range(30), names=["a"])
    results = [
        {"image_id": n, "category_id": 1, "bbox": [v * (1 + (k % 2)) for v in box], "score": 0.5 + 0.4 * (k % 2)}
        for k, (n, _, box) in enumerate(boxes)
    ]
    assert 0.02 < score(truth, results)["AP"] < 0.3
    told = diagnosis(truth, results, diagnose=None)
    assert [line for line in told if "fits better" in line] == told and len(told) == (most < 1000)


@pytest.mark.slow
@pytest.mark.parametrize("most", [20, 1000])
def test_ids_of_another_list_are_told_from_some_images_of_many(monkeypatch, most):
    """A fifth of the ids is right, so that AP is not near 0, and the others are one less."""
    monkeypatch.setattr("coord_eval.diagnosis.answers._MATCHED_IMAGES", most)
    labels = 5
    truth = coco(
        *((n, 1 + n % labels, [10, 10, 40 + n, 30]) for n in range(60)),
        images=range(60),
        names=[f"c{k}" for k in range(labels)],
    )
    results = [
        {"image_id": n, "category_id": n % labels + (n % 6 == 0), "bbox": [10, 10, 40 + n, 30], "score": 0.9}
        for n in range(60)
    ]
    assert 0.02 < score(truth, results)["AP"] < 0.3
    told = [line for line in diagnosis(truth, results, diagnose=None) if "would give AP" in line]
    assert len(told) == 1 and "category_id" in told[0]
    assert ("of 60 boxes that match objects" in told[0]) == (most == 1000)


@pytest.mark.shared
def test_few_boxes_of_low_score_hide_no_reading_and_one_class_of_many_is_no_wrong_label(shared_dir):
    mini = shared_dir / "real_detectors" / "mini"
    for results in ("r.json", "r1.json"):
        lines = diagnosis(mini / "gt.json", mini / results, diagnose=None)
        assert "divided by 1 " in lines[1] and "would give AP 1.000" in lines[1]
    lines = diagnosis(mini / "gt2.json", mini / "r2.json", diagnose=None)
    assert "of 61 categories with objects 1 is answered" in lines[1] and "1.000: 'cat' 1.000" in lines[1]
    assert not any("labels are wrong" in line for line in lines)
    runs = {name: score(mini / "gt2.json", mini / "r2.json") for name in "ab"}
    assert not any("learnt" in note for note in compare(runs).notes)


def test_boxes_are_paired_by_rank_where_there_are_as_many_as_objects_and_crowds_are_none():
    from coord_eval.intake.interpretations import _ranked_sides

    boxes = [[10, 20, 30, 40], [50, 60, 20, 10], [0, 0, 90, 90]]
    rows = [(1, 0, 0), (1, 1, 0), (1, 2, 1), (2, 0, 0)]
    truth = {
        "images": [{"id": i, "file_name": f"{i}.png", "width": 100, "height": 100} for i in (1, 2)],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": n, "image_id": i, "category_id": 1, "bbox": boxes[k], "iscrowd": crowd, "area": 9.0}
            for n, (i, k, crowd) in enumerate(rows, start=1)
        ],
    }
    found = score(truth, []).truth
    order = np.argsort(found.image_N, kind="stable")
    assert found.crowd_N.sum() == 1
    sides_N2 = np.arange(8.0).reshape(4, 2)
    image_B, sides_B2 = np.array([0, 0, 1, 1]), np.array([[5.0, 1.0], [2.0, 9.0], [3.0, 3.0], [4.0, 4.0]])
    paired_B, paired_N = _ranked_sides(found, image_B, sides_B2, sides_N2)
    own = sides_N2[[n for n in order if found.image_N[n] == 0 and not found.crowd_N[n]]]
    assert paired_B.tolist() == [2.0, 5.0, 1.0, 9.0]
    assert paired_N.tolist() == [*sorted(own[:, 0]), *sorted(own[:, 1])]


@pytest.mark.slow
def test_runs_that_have_learnt_nothing_are_those_that_no_other_reading_explains(coco_set):
    draw = random.Random(0)
    wild = answers(coco_set, lambda b, s: sorted(draw.randint(0, 20) for _ in range(4)))
    for predictions, scale, expected in (
        ([], None, True),
        (wild, 1000, True),
        (answers(coco_set, WAYS["--scale pixels)"]), 1000, False),
        (answers(coco_set, lambda b, s: _thousandths(b)), 1000, False),
        (_shifted(coco_set), None, False),
    ):
        found = score(coco_set, predictions, answers=AnswerSettings(scale=scale))
        assert learnt_nothing(found) == expected, found.notes
    assert not learnt_nothing(score({**coco_set, "annotations": []}, wild))  # its AP is undefined
    assert not learnt_nothing(score(coco_set, wild, report=ReportSettings(diagnose=False)))  # nobody has looked


def test_points_where_boxes_are_scored_are_counted(coco_set):
    points = answers(coco_set, lambda b, s: [0, 0])
    for record in points:
        record["text"] = record["text"].replace("bbox_2d", "point_2d")
    count = sum(len(json.loads(record["text"])) for record in points)
    told = diagnosis(coco_set, points, diagnose=None)
    assert len(told) == 1 and told[0].startswith(f"diagnosis: {count} points where boxes are scored: ")


def test_answers_about_tiles_are_diagnosed_by_tile():
    """Pixels of the tile, read as thousandths of it."""
    objects = [(image, 1, [100.0 * side + 20, 30.0, 60.0, 40.0]) for image in range(1, 9) for side in (0, 1)]
    truth = coco(*objects, images=range(1, 9), size=(200, 100))
    text = '[{"bbox_2d": [20, 30, 80, 70], "label": "cat"}]'
    tiles = [
        {"image_id": image, "text": text, "width": 200, "height": 100, "tile": [100 * side, 0, 100, 100]}
        for image in range(1, 9)
        for side in (0, 1)
    ]
    told = diagnosis(truth, tiles, scale=1000)
    assert told[0].startswith("diagnosis: as read, AP 0.000") and "mean best IoU 1.000" in told[1]


@pytest.mark.parametrize("is_list", [False, True])
def test_some_answers_from_the_whole_file_are_looked_at_where_ap_is_low(monkeypatch, is_list):
    """The first quarter is right, the others have x and y swapped: the first ones alone would say that all is right."""
    monkeypatch.setattr("coord_eval.diagnosis.answers._LOOKED_AT", 20)
    monkeypatch.setattr("coord_eval.diagnosis.answers._IMAGES_LOOKED_AT", 20)
    truth = coco(*((n, 1, [10 + n, 200 - n, 40 + n, 30]) for n in range(80)), images=range(80), size=(400, 400))
    said = []
    for n, row in enumerate(truth["annotations"]):
        x, y, w, h = row["bbox"]
        x, y, w, h = (x, y, w, h) if n < 20 else (y, x, h, w)
        item = {"bbox_2d": [x / 0.4, y / 0.4, (x + w) / 0.4, (y + h) / 0.4], "label": "cat"}
        listed = {"image_id": n, "category_id": 1, "bbox": [x, y, w, h], "score": 0.5}
        said.append(listed if is_list else {"image_id": n, "text": json.dumps([item])})
    reading = {} if is_list else {"scale": 1000}
    (told,) = diagnosis(truth, said, diagnose=None, **reading)
    assert "fits better" in told and ("yxhw" if is_list else "yxyx") in told
