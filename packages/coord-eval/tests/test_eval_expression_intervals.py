"""Intervals of Acc@IoU: pictures are drawn, each with all its phrases."""

import numpy as np
import pytest

from coord_eval import InputError, parse_answer, score_expressions


def answers_and_pictures(phrases=40):
    generator = np.random.default_rng(5)
    right = generator.integers(0, 1001, phrases)
    texts = [f"<|box_start|>(0,0),({x},1000)<|box_end|>" for x in right]
    pictures = [f"{place}.jpg" for place in generator.integers(0, 9, phrases)]
    return [(0, 0, 1, 1)] * phrases, texts, pictures, right / 1000


def test_intervals_are_those_of_copied_pictures():
    boxes, texts, pictures, iou = answers_and_pictures()
    found = score_expressions(
        boxes, map(parse_answer, texts), (0.5, 0.75), images=pictures, resamples=200, seed=3
    )
    names = list(dict.fromkeys(pictures))
    draws = np.random.default_rng(3).multinomial(len(names), [1 / len(names)] * len(names), 200)
    means = {"Acc@0.5": [], "Acc@0.75": [], "mean_iou": []}
    for counts in draws:
        copied = [
            value
            for name, count in zip(names, counts, strict=True)
            for _ in range(count)
            for value, picture in zip(iou, pictures, strict=True)
            if picture == name
        ]
        means["Acc@0.5"].append(np.mean([value >= 0.5 for value in copied]))
        means["Acc@0.75"].append(np.mean([value >= 0.75 for value in copied]))
        means["mean_iou"].append(np.mean(copied))
    assert found.intervals.keys() == means.keys()
    for name, drawn in means.items():
        low, high = np.percentile(drawn, [2.5, 97.5])
        assert found.intervals[name]["low"] == pytest.approx(low, abs=1e-12)
        assert found.intervals[name]["high"] == pytest.approx(high, abs=1e-12)
    assert found.intervals["Acc@0.5"]["value"] == found.accuracy["0.5"]
    assert found.intervals["Acc@0.5"]["low"] < found.accuracy["0.5"] < found.intervals["Acc@0.5"]["high"]


def test_pictures_and_not_phrases_are_drawn():
    boxes, texts, _, _ = answers_and_pictures()
    one_picture = score_expressions(boxes, map(parse_answer, texts), images=["a"] * len(boxes))
    assert one_picture.intervals["Acc@0.5"]["low"] == one_picture.intervals["Acc@0.5"]["high"]
    assert score_expressions(boxes, map(parse_answer, texts), resamples=0).intervals == {}
    assert score_expressions([], []).intervals == {}
    with pytest.raises(InputError, match="40 boxes and 1 pictures"):
        score_expressions(boxes, map(parse_answer, texts), images=["a"])
