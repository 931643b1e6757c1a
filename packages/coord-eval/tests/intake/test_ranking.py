"""Scores by which detections are sorted, worked out by hand."""

import json
import math

import pytest
from coco_builder import coco

from coord_codec import Instance, encode_target
from coord_eval import AnswerSettings, InputError, score

THOUSANDTHS = AnswerSettings(scale=1000)

TRUTH = [
    Instance(
        image="1.jpg",
        image_id=1,
        width=100,
        height=100,
        objects=[{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}, {"desc": "dog", "bbox": [0.6, 0.6, 0.9, 0.9]}],
    )
]
TEXT = encode_target(TRUTH[0], markers="obj", order="given")
COORDS = [-0.1, -0.2, -0.3, -0.4, -1.0, -1.0, -1.0, -2.0]


def run(source="auto", **more):
    return score(TRUTH, [{"image_id": 1, "text": TEXT, **more}], score_source=source)


def test_coord_logprobs_score():
    evaluation = run(coord_logprobs=COORDS)
    assert evaluation.score_source == "coord_logprobs"
    assert evaluation.detections.scores_D.tolist() == pytest.approx([math.exp(-0.25), math.exp(-1.25)])


def test_coord_desc_logprobs_score():
    evaluation = run(coord_logprobs=COORDS, desc_logprobs=[[-0.5], [-0.1, -0.3]])
    assert evaluation.score_source == "coord_desc_logprobs"
    assert evaluation.detections.scores_D.tolist() == pytest.approx([math.exp(-1.5 / 5), math.exp(-5.4 / 6)])


def test_desc_logprobs_as_a_flat_list_need_token_counts():
    flat = run(coord_logprobs=COORDS, desc_logprobs=[-0.5, -0.1, -0.3])
    assert flat.score_source == "coord_logprobs"
    assert any("desc_token_counts" in note for note in flat.notes)
    counted = run(coord_logprobs=COORDS, desc_logprobs=[-0.5, -0.1, -0.3], desc_token_counts=[1, 2])
    nested = run(coord_logprobs=COORDS, desc_logprobs=[[-0.5], [-0.1, -0.3]])
    assert counted.detections.scores_D.tolist() == nested.detections.scores_D.tolist()


def test_coord_min_emission_rank_and_constant_scores():
    assert run("coord_min", coord_logprobs=COORDS).detections.scores_D.tolist() == pytest.approx(
        [math.exp(-0.4), math.exp(-2.0)]
    )
    assert run("emission_rank").detections.scores_D.tolist() == [1.0, 0.5]
    assert run("constant", coord_logprobs=COORDS).detections.scores_D.tolist() == [1.0, 1.0]


def test_coord_logprobs_skip_the_tokens_of_dropped_objects():
    broken = TEXT.replace("<obj_end>", "", 1)[: TEXT.index("<obj_end>")]
    text = broken[: broken.rindex("<|coord_")] + TEXT[TEXT.index("<obj_end>") + len("<obj_end>") :]
    evaluation = score(TRUTH, [{"image_id": 1, "text": text, "coord_logprobs": [-9, -9, -9, *COORDS[4:]]}])
    assert evaluation.format["dropped"] == {"nested_start": 1}
    assert evaluation.detections.scores_D.tolist() == pytest.approx([math.exp(-1.25)])


def test_choose_source_auto_notes_why_it_falls_back_to_a_constant():
    assert any("no token probabilities" in note for note in run().notes)
    short = run(coord_logprobs=COORDS[:-1])
    assert short.score_source == "constant"
    assert any("7 coord_logprobs for 8 coordinate tokens" in note for note in short.notes)


def test_choose_source_by_name_refuses_missing_probabilities():
    with pytest.raises(InputError, match="7 coord_logprobs for 8 coordinate tokens"):
        run("coord_logprobs", coord_logprobs=COORDS[:-1])
    with pytest.raises(InputError, match="coord_desc_logprobs"):
        run("coord_desc_logprobs", coord_logprobs=COORDS)


def test_score_source_changes_ap_but_not_ap_of_constant_scores():
    """One label, a hit and a false box: ranked first the hit is worth 1, ranked behind it a half."""
    truth = [TRUTH[0].model_copy(update={"objects": TRUTH[0].objects[:1]})]
    both = [TRUTH[0].objects[1].model_copy(update={"desc": "cat"}), TRUTH[0].objects[0]]
    text = encode_target(TRUTH[0].model_copy(update={"objects": tuple(both)}), markers="obj", order="given")
    good = score(truth, [{"image_id": 1, "text": text, "coord_logprobs": [-5] * 4 + [-1] * 4}])
    bad = score(truth, [{"image_id": 1, "text": text, "coord_logprobs": [-1] * 4 + [-5] * 4}])
    assert good.coco["AP50"] == pytest.approx(1.0)
    assert bad.coco["AP50"] == pytest.approx(0.5)
    assert good.coco_constant_score["AP50"] == bad.coco_constant_score["AP50"] == pytest.approx(0.5)


SPREAD = [0.01] * 4 + [0.2] * 4
EXPECTED = [0.1, 0.1, 0.5, 0.5, 0.6, 0.6, 0.9, 0.9]


def test_expected_iou_is_what_auto_takes_where_spreads_are():
    more = {"coord_logprobs": COORDS, "coord_expected": EXPECTED, "coord_spread": SPREAD}
    evaluation = run(**more, desc_logprobs=[[-0.5], [-0.1, -0.3]])
    sure, unsure = evaluation.detections.scores_D.tolist()
    assert evaluation.score_source == "expected_iou"
    assert 0.9 < sure / math.exp(-0.5) < 1 and 0.1 < unsure / math.exp(-0.4) < 0.5
    hit = run("hit_probability", **more)
    assert hit.detections.scores_D.tolist() == pytest.approx([1.0, 0.0375], abs=0.006)
    assert "reliability" in hit.analysis and hit.analysis["reliability"] is not None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"coord_expected": EXPECTED}, "0 coord_spread for 8"),
        ({"coord_spread": SPREAD}, "0 coord_expected for 8"),
        ({"coord_expected": EXPECTED, "coord_spread": SPREAD[1:]}, "7 coord_spread for 8"),
        ({"coord_expected": EXPECTED, "coord_spread": [2.0] * 8}, r"coord_spread\[0\]: .*found 2.0"),
    ],
)
def test_expected_iou_refuses_what_does_not_fit(more, message):
    with pytest.raises(InputError, match=message):
        run("expected_iou", **more)


def test_expected_iou_of_tokens_with_y_first():
    truth = [
        Instance(image="1.jpg", image_id=1, width=9, height=9, objects=[{"desc": "cat", "bbox": [0, 0.25, 0.5, 1]}])
    ]
    text = "<loc0256><loc0000><loc1023><loc0512> cat"
    record = {"image_id": 1, "text": text, "coord_expected": [0.25, 0, 1, 0.5], "coord_spread": [0] * 4}
    assert score(truth, [record]).detections.scores_D.tolist() == pytest.approx([1], abs=0.01)


def test_stated_confidences_are_the_scores():
    text = '[{"bbox_2d": [1, 2, 30, 40], "label": "cat", "score": 0.25}, {"box": [1, 2, 3, 4], "confidence": "90%"}]'
    evaluation = score(TRUTH, [{"image_id": 1, "text": text}], answers=THOUSANDTHS)
    assert (evaluation.score_source, evaluation.detections.scores_D.tolist()) == ("stated", [0.25, 0.9])
    half = score(TRUTH, [{"image_id": 1, "text": text.replace('"90%"', '"high"')}], answers=THOUSANDTHS)
    assert (half.score_source, half.detections.scores_D.tolist()) == ("stated", [0.25, 0.25])
    assert any(note.startswith("1 of 2 boxes state no confidence") for note in half.notes)
    few = score(
        TRUTH, [{"image_id": 1, "text": text.replace('"90%"', "null").replace("0.25", "null")}], answers=THOUSANDTHS
    )
    assert few.score_source == "constant"


def test_stated_confidences_rank_boxes_of_a_cut_answer_by_its_mean_and_an_answer_without_any_last(coco_set):
    def record(image, *scores):
        boxes = [{"bbox_2d": [1, 2, 30, 40 + i], "label": "cat"} for i in range(len(scores))]
        stated = [box if s is None else {**box, "score": s} for box, s in zip(boxes, scores, strict=True)]
        return {"image_id": image, "text": json.dumps(stated)}

    found = score(coco_set, [record(0, 0.8, 0.4, None), record(1, None), record(2, 0.1, 0.2)], answers=THOUSANDTHS)
    assert found.score_source == "stated"
    assert found.detections.scores_D.tolist() == pytest.approx([0.8, 0.4, 0.6, 0.0, 0.1, 0.2])
    assert any(note.startswith("2 of 6 boxes state no confidence") for note in found.notes)


@pytest.mark.parametrize(
    ("confidences", "expected"),
    [
        ((1, 95, 40), [0.01, 0.95, 0.4]),
        ((1, 5, 4), [0.2, 1.0, 0.8]),
        ((1, 0.95, 0.4), [1.0, 0.95, 0.4]),
        (("1%", "95%", "40%"), [0.01, 0.95, 0.4]),
    ],
)
def test_the_unit_of_confidences_belongs_to_the_set(confidences, expected):
    """A 1 beside 95 is one per cent, in whichever answer either stands."""
    truth = coco(*((i, 1, [10, 10, 40, 40]) for i in (1, 2, 3)), images=(1, 2, 3))
    item = {"bbox_2d": [100, 100, 500, 500], "label": "cat"}
    answers = [
        {"image_id": i, "text": json.dumps([{**item, "confidence": value}])} for i, value in enumerate(confidences, 1)
    ]
    evaluation = score(truth, answers, answers=THOUSANDTHS)
    assert evaluation.score_source == "stated"
    assert evaluation.detections.scores_D.tolist() == pytest.approx(expected)
    assert any("unit" in note for note in evaluation.notes) == (confidences in ((1, 95, 40), (1, 5, 4)))
