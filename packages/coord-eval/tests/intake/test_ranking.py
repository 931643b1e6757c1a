"""Scores by which detections are sorted, worked out by hand."""

import math

import pytest

from coord_codec import Instance, encode_target
from coord_eval import InputError, score

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
