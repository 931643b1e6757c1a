"""Control experiments: the truth, written down, scores the ceiling, and every way of being off lowers it."""

import re

import pytest

from coord_codec import CoordGrid, int_to_token, token_to_int
from coord_eval import oracle_predictions, score

_TOKENS = re.compile(r"(<\|coord_\d+\|>)(<\|coord_\d+\|>)(<\|coord_\d+\|>)(<\|coord_\d+\|>)")
_LAST = CoordGrid().bins - 1


def _rewrite(records, change):
    """Apply ``change(bins) -> bins`` to every box in the texts."""

    def replace(match):
        bins = change([token_to_int(token) for token in match.groups()])
        return "".join(int_to_token(min(max(k, 0), _LAST)) for k in bins)

    return [{**record, "text": _TOKENS.sub(replace, record["text"])} for record in records]


@pytest.fixture(params=["generated", pytest.param("photographs", marks=pytest.mark.shared)])
def truth(request):
    if request.param == "generated":
        return request.getfixturevalue("coco_set")
    return request.getfixturevalue("shared_dir") / "coco_permissive33" / "instances.json"


@pytest.mark.parametrize("markers", ["obj", "qwen"])
@pytest.mark.parametrize("form", ["tokens", "numbers"])
def test_the_encoded_truth_scores_exactly_the_ceiling(truth, markers, form):
    records = oracle_predictions(truth, markers=markers, form=form, max_objects=30)
    evaluation = score(truth, records, max_objects=30)
    assert evaluation.coco == evaluation.ceiling
    assert evaluation.coco["AP"] > 0.95
    assert evaluation.format["dropped"] == {}


@pytest.mark.parametrize("form", ["tokens", "numbers"])
def test_json_scores_the_same_ceiling(truth, form):
    records = oracle_predictions(truth, style="json", form=form, max_objects=30)
    evaluation = score(truth, records, max_objects=30)
    assert evaluation.coco == evaluation.ceiling


CHANGES = {
    "ids shifted by three": lambda b: [k + 3 for k in b],
    "scale doubled": lambda b: [2 * k for k in b],
    "x and y swapped": lambda b: [b[1], b[0], b[3], b[2]],
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_path_that_is_off_scores_below_the_ceiling(truth, name):
    records = _rewrite(oracle_predictions(truth), CHANGES[name])
    evaluation = score(truth, records)
    assert evaluation.coco["AP"] < evaluation.ceiling["AP"] - 0.02
    assert evaluation.mean_iou < score(truth, oracle_predictions(truth)).mean_iou


def test_decoding_by_999_scores_below_the_ceiling(truth):
    records = oracle_predictions(truth)
    off = score(truth, records, grid=CoordGrid(scale=999))
    assert off.coco["AP"] < score(truth, records).coco["AP"] - 0.003


def test_an_object_limit_lowers_the_ceiling_by_the_recall_it_costs(coco_set):
    evaluation = score(coco_set, oracle_predictions(coco_set, max_objects=3), max_objects=3)
    assert evaluation.coco == evaluation.ceiling
    assert evaluation.ceiling["AP"] < 0.8
    assert evaluation.detection["0.5"]["precision"] == 1.0
