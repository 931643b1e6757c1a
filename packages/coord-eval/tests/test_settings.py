"""Borders of the settings of scoring: what is taken, what it becomes, and what is refused by its name."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from coord_eval import AnswerSettings, CocoParams, InputError, LabelSettings
from coord_eval.cli.review import _lines
from coord_eval.cli.summaries import expression_lines, lvis_lines
from coord_eval.settings import FusionRule, as_labels, number_or


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("1e-9", 1e-9),
        ("pixels", "pixels"),
        *((word, None) for word in "0 -1 inf nan x infer".split()),
    ],
)
def test_word_of_a_scale_is_a_positive_number_or_a_name(word, value):
    read = number_or("pixels")
    if value is not None:
        assert read(word) == value
        return
    with pytest.raises(InputError, match=f"expected a positive number or pixels, found '{word}'"):
        read(word)


@pytest.mark.parametrize(
    ("text", "rule"),
    [("wbf", ("wbf", 0.55)), ("nms:0", ("nms", 0)), ("nms:1", ("nms", 1)), ("wbf:.25", ("wbf", 0.25))]
    + [(text, None) for text in ("nms:", "nms:1.01", "nms:-0.01", "soft", "nms:x", "", ":0.5")],
)
def test_rule_of_fusion_is_a_method_and_an_iou(text, rule):
    if rule is not None:
        found = FusionRule.parse(text)
        assert (found.method, found.iou, FusionRule.parse(str(found))) == (*rule, found)
        return
    with pytest.raises(InputError, match=f"fuse: expected wbf, nms, .* found '{text}'"):
        FusionRule.parse(text)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"iou_thresholds": [1, 0.01], "areas": {"a": (0, 0)}, "max_detections": [1]}, ""),
        ({"iou_thresholds": np.array([0.5]), "max_detections": np.array([5])}, ""),
        ({"areas": ["a=1:2", "b=0:1e5"]}, ""),
        *(({"iou_thresholds": [0.5, value]}, "iou_thresholds: expected numbers above 0") for value in (0, 1.01, -1)),
        ({"iou_thresholds": []}, "iou_thresholds: expected numbers above 0"),
        *(({"max_detections": value}, "max_detections: expected whole numbers") for value in ([0], [1, -1], [1.5], [])),
        *(
            ({"areas": {"a": value}}, r"areas\['a'\]: expected smallest and largest")
            for value in ((2, 1), (-1, 1), (1,))
        ),
        *(({"areas": [value]}, "areas: expected NAME=LOW:HIGH, found") for value in ("a", "a=1", "a=1:x", "a=1:2:3")),
    ],
)
def test_parameters_of_coco_are_thresholds_ranges_and_limits(params, message):
    if not message:
        found = CocoParams(**params)
        assert {type(value) for value in found.iou_thresholds} <= {float, int} and all(found.areas)
        return
    with pytest.raises(InputError, match=message):
        CocoParams(**params)


def test_settings_become_plain_values_and_name_what_is_wrong(tmp_path):
    found = AnswerSettings(ignored_labels="no", scale=np.float64(7))
    assert (found.ignored_labels, type(found.scale), found.shape) == (("no",), float, "box")
    assert (as_labels("ab"), as_labels(["a", "b"]), as_labels(())) == (("ab",), ("a", "b"), ())
    for wrong, message in (
        ({"scale": "inches"}, "scale: expected a number, pixels, input_pixels, infer"),
        ({"boxes": "x"}, "boxes: expected one of tokens"),
        ({"geometry": "x"}, "geometry"),
        ({"format": "x"}, "format: expected one of auto, obj"),
    ):
        with pytest.raises(ValueError, match=message):
            AnswerSettings(**wrong)
    (tmp_path / "s.json").write_text(json.dumps({"cat": ["feline"]}))
    assert LabelSettings(synonyms=tmp_path / "s.json").other_names == {"cat": ["feline"]}
    assert (LabelSettings().other_names, LabelSettings(synonyms={"a": "b"}).other_names) == ({}, {"a": "b"})
    (tmp_path / "s.json").write_text('{"cat": "feline"}')
    with pytest.raises(InputError, match=r"s\.json: cat"):
        LabelSettings(synonyms=str(tmp_path / "s.json"))


def test_summaries_of_commands_count_what_they_name():
    def finding(probability, kind):
        return SimpleNamespace(probability=probability, kind=kind)

    review = SimpleNamespace(
        findings=[finding(0.5, "label"), finding(0.49, "missing"), finding(0.9, "label")],
        judged=[finding(0.25, ""), finding(0.5, "")],
    )
    assert list(_lines(review)) == [
        "2 labels judged, 0.8 of them expected to be wrong",
        "3 suspicions, 2 of at least 50 %: 2 label, 1 missing",
    ]
    scores = SimpleNamespace(summary={"AP": 0.5, "APr": -1.0}, score_source="stated", detections=7, beyond_limit=1)
    scores = SimpleNamespace(
        **vars(scores), unverified=2, unknown=3, join=SimpleNamespace(unknown=4), format={"dropped": {"a": 2, "b": 3}}
    )
    told = list(lvis_lines(scores))
    assert told[:3] == ["AP       0.500", "APr        n/a", "ranked by stated, 7 boxes"]
    assert [line.split()[0] for line in told[3:]] == ["1", "2", "3", "4", "5"]
    assert all(
        word in line for line, word in zip(told[3:], ("300", "verified", "unknown to", "images", "parser"), strict=True)
    )
    phrases = {"accuracy": {0.5: 0.25, 0.75: 0.125}, "mean_iou": 0.5, "point_in_box": None, "precision_f1": None}
    phrases |= {"n_acc": 0.75, "no_target": 0, "several_targets": 2, "without_box": 1, "several_boxes": 3, "phrases": 9}
    intervals = {"Acc@0.75": {"low": 0.1, "high": 0.2}}
    assert list(expression_lines(SimpleNamespace(**phrases, which="best", intervals=intervals))) == [
        "Acc@  0.5 0.2500",
        "Acc@ 0.75 0.1250   95 % over images [0.1000, 0.2000]",
        "mean IoU  0.5000",
        "N-acc     0.7500",
        "0 phrases without a target, 2 with several; Acc, mean IoU and point in box are over the others",
        "9 phrases, 1 answer without a box, 3 with several: the one with the highest IoU counts",
    ]
