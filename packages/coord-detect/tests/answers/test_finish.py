"""What becomes of the boxes of an answer: each is kept, or in one count; each part of `Finish` acts."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import coord_eval
from coord_codec import InputError, Object, encode_target
from coord_codec.records import Instance
from coord_detect.answers.finish import FUSED, Finish, ScoreThreshold, asked_threshold
from coord_detect.views.view import Question
from coord_eval import AnswerSettings

BOX = (0.25, 0.5, 0.75, 0.875)
LINE = {"boxes": 4, "objects": 2, "cut": 3, "joined": 1, "names_a_side": 5, "other_label": 6, "below_threshold": 7}
LINE |= {"uncalibrated": 8}


def record(*labels, log_p=-0.5, **more):
    """An answer with one box for each label, every second one with half the probability of the others."""
    objects = [Object(desc=label, bbox=(0, 0, 0.1 * (place + 1), 1)) for place, label in enumerate(labels)]
    logprobs = [log_p * (1 + place % 2) for place in range(len(labels)) for _ in range(4)]
    text = encode_target(Instance(image="x", objects=objects))
    return {"image": "a", "width": 40, "height": 20, "text": text, "coord_logprobs": logprobs, **more}


class Half:
    """A calibration that halves scores."""

    score_source, rests_on = "constant", {"images": 3}

    def __init__(self, source="constant"):
        self.score_source = source

    def apply(self, objects):
        return [item._replace(score=item.score / 2) for item in objects]

    def choose(self, **wanted):
        return SimpleNamespace(value=0.25, to_dict=lambda: {"wanted": wanted})


def test_each_part_alone_decides_whether_boxes_change():
    changing = {"views": ("mirror",), "calibration": Half(), "threshold": ScoreThreshold(0.1), "labels": frozenset("a")}
    others = {"question": Question("?"), "boxes": "median", "forced": ("a",), "threshold": ScoreThreshold(0.0)}
    assert not Finish().changes
    assert all(Finish(**{name: value}).changes for name, value in changing.items())
    assert not any(Finish(**{name: value}).changes for name, value in others.items())


def test_box_that_is_left_out_is_in_one_count_and_a_score_of_the_threshold_is_kept():
    answer = record("cat", "dog", "cat", "cat")  # the second and fourth have lower scores
    every, _, counts = Finish().objects(answer)
    high, low = every[0].score, every[1].score
    assert high > low and counts == {"views": {}, "boxes": 4, "objects": 4}
    for least, kept, below in ((0.0, 3, 0), (low, 3, 0), (low + 1e-6, 2, 1), (high, 2, 1), (high + 1e-6, 0, 3)):
        finish = Finish(labels=frozenset({"cat"}), threshold=ScoreThreshold(least))
        found, dropped, counts = finish.objects(answer)
        assert len(found) == kept and counts.get("below_threshold", 0) == below, least
        assert counts["other_label"] == dropped["other_label"] == 1
        assert kept + below + 1 == len(every)


@pytest.mark.parametrize(("source", "applies"), [("constant", True), ("coord_logprobs_of_another_kind", False)])
def test_scores_of_another_source_are_not_calibrated_and_counted(monkeypatch, source, applies):
    answer, own = record("cat", "dog"), coord_eval.scored_objects

    def read(answer, score_source=None, **more):
        if score_source == "coord_logprobs_of_another_kind":
            raise InputError("no probabilities")
        return own(answer, **more)

    monkeypatch.setattr("coord_eval.scored_objects", read)
    plain, _, _ = Finish().objects(answer)
    found, _, counts = Finish(calibration=Half(source)).objects(answer)
    factor = 0.5 if applies else 1
    assert [item.score for item in found] == pytest.approx([item.score * factor for item in plain])
    assert counts.get("uncalibrated", 0) == (0 if applies else 2)


def test_scores_of_all_views_are_calibrated_or_none_is(monkeypatch):
    """A map for probabilities does not suit an answer without them, beside which others would be on another scale."""
    own = coord_eval.scored_objects

    def read(answer, score_source=None, **more):
        if score_source and answer.get("no_probabilities"):
            raise InputError("no probabilities")
        return own(answer, **more)

    monkeypatch.setattr("coord_eval.scored_objects", read)
    finish = Finish(("mirror",), calibration=Half())
    for image, view in ((True, True), (True, False), (False, True), (False, False)):
        given = record("cat", no_probabilities=not image)
        given |= {"views": [{"view": "mirror", **record(), "no_probabilities": not view}]}
        _, _, counts = finish.objects(given)
        assert ("uncalibrated" in counts) is not (image and view)


@pytest.mark.parametrize("views", [("mirror",), ("mirror", "scale:2"), ("scale:2", "mirror")])
def test_labels_that_name_a_side_are_counted_whichever_view_comes_last(views):
    asked = {"image": record("cat"), "mirror": record("left cat", "cat", "right dog"), "scale:2": record("left cat")}
    given = asked["image"] | {"views": [{"view": word, **asked[word]} for word in views]}
    found, _, counts = Finish(views).objects(given)
    assert counts["names_a_side"] == 2
    assert sorted({item.desc for item in found}) == (["cat", "left cat"] if "scale:2" in views else ["cat"])


def test_boxes_of_distributions_are_those_of_tokens_where_there_are_none():
    answer = record("cat")
    for boxes in ("median", "best_iou", "expected"):
        for missing in ({}, {"coord_expected": None, "coord_quantiles": None}):
            found, _, _ = Finish().objects(answer | missing, AnswerSettings(boxes=boxes))
            assert [item.box for item in found] == [item.box for item in Finish().objects(answer)[0]]
    stated = {"coord_expected": [0.5, 0.5, 0.75, 0.75], "coord_quantiles": [[v] * 7 for v in (0.5, 0.5, 0.75, 0.75)]}
    for boxes in ("median", "best_iou", "expected"):
        for absent in (None, *stated):  # of two halves neither says where the box is
            (found,), _, _ = Finish().objects(
                answer | stated | ({absent: None} if absent else {}), AnswerSettings(boxes=boxes)
            )
            assert found.box == pytest.approx((0, 0, 0.1, 0.999) if absent else (0.5, 0.5, 0.75, 0.75))


def test_answers_to_other_views_are_refused_and_duplicates_score_no_more_than_1():
    answer = record("cat", log_p=0.0)
    with pytest.raises(InputError, match="expected the answers of 1 views"):
        Finish(("mirror",)).objects(answer)
    with pytest.raises(InputError, match="expected the answers of 0 views"):
        Finish().objects(answer | {"views": [{"view": "mirror", **answer}]})
    twice = answer | {"text": answer["text"] * 2, "coord_logprobs": [0.0] * 8}
    (found,), _, counts = Finish(("mirror",)).objects(twice | {"views": [{"view": "mirror", **record()}]})
    assert found.score <= 1 and counts["boxes"] == 2 and counts["objects"] == 1


def test_counts_of_a_folder_are_the_sums_of_its_records_and_say_what_they_rest_on(tmp_path):
    views = {"image": {"boxes": 3, "merged": 1}, "mirror": {"boxes": 2, "alone": 1}}
    rows = [{FUSED: LINE | {"views": views}}, {FUSED: LINE | {"views": {"image": {"boxes": 4}}}}, {"text": "no boxes"}]
    finish = Finish(("mirror",), calibration=Half(), labels=frozenset({"b", "a"}))
    finish = finish.with_threshold(precision=0.9)
    found = finish.write_counts(tmp_path, rows)
    assert found == json.loads((tmp_path / "boxes.json").read_text())
    assert found["fusion"] == {name: 2 * count for name, count in LINE.items()} | {
        "views": {"image": {"boxes": 7, "merged": 1}, "mirror": {"boxes": 2, "alone": 1}}
    }
    assert (found["views"], found["labels"], found["calibrated"]) == (["mirror"], ["a", "b"], True)
    assert found["calibration"] == {"rests_on": {"images": 3}}
    assert found["threshold"] == {"precision": 0.9, "min_score": 0.25, "expected": {"wanted": {"precision": 0.9}}}
    plain = Finish(labels=frozenset({"a"})).write_counts(tmp_path, rows[2:])
    assert plain == {"views": [], "labels": ["a"], "fusion": {}, "calibrated": False}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"min_score": 0}, ("min_score", 0)),
        ({"min_score": 1}, ("min_score", 1)),
        ({"precision": 1}, ("precision", 1)),
        ({"recall": 1e-9}, ("recall", 1e-9)),
        ({"min_score": -0.01}, "from 0 to 1"),
        ({"min_score": 1.01}, "from 0 to 1"),
        ({"min_score": float("nan")}, "from 0 to 1"),
        ({"precision": 0}, "above 0 and up to 1"),
        ({"recall": 0}, "above 0 and up to 1"),
        ({"recall": 1.01}, "above 0"),
        ({"min_score": 0, "recall": 0.5}, "min_score and recall"),
        ({"precision": 0.5, "recall": 0.5}, "precision and recall"),
    ],
)
def test_threshold_is_one_number_in_its_range(given, expected):
    every = dict.fromkeys(("min_score", "precision", "recall")) | given
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            asked_threshold(**every)
    else:
        assert asked_threshold(**every) == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "MODEL ANNOTATIONS"),
        ({"boxes": "median"}, "MODEL ANNOTATIONS evaluation.decoding.boxes=median"),
        ({"views": ("mirror", "classes")}, "MODEL ANNOTATIONS --views mirror,classes"),
        ({"forced": ("red cat", "dog")}, "MODEL ANNOTATIONS --only 'red cat' --only dog"),
    ],
)
def test_threshold_without_a_calibration_names_the_command_that_makes_it(changes, words):
    for name in ("precision", "recall"):
        with pytest.raises(InputError) as caught:
            replace(Finish(), **changes).with_threshold(**{name: 0.5})
        assert str(caught.value).startswith(f"{name}: ") and str(caught.value).endswith(f"calibrate {words}")
    finish = replace(Finish(), **changes)
    assert finish.with_threshold(min_score=0.5).threshold == ScoreThreshold(0.5, ("min_score", 0.5))
    assert finish.with_threshold() is finish
