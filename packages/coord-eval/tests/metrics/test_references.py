"""The twelve metrics, and precision and recall below them, beside pycocotools and hotcoco: equal to the last bit."""

import contextlib
import io
import random

import numpy as np
import pytest
from random_sets import random_set

from coord_eval import COCO_KEYS, ReportSettings, score
from coord_eval.metrics.coco import coco_scores

QUICK = 12


def check_equals_pycocotools(draw):
    truth, results = random_set(draw)
    ours, reference = (score(truth, results, backend=name) for name in ("coord_eval", "pycocotools"))
    for name in ("coco", "per_class", "pr_curves", "coco_constant_score", "ceiling"):
        assert getattr(ours, name) == getattr(reference, name), name
    for scored in (ours, ours.with_constant_score, ours.with_one_label):
        found, expected = coco_scores(scored), coco_scores(scored, "pycocotools")
        pairs = [(found.all_areas, expected.all_areas)]
        pairs += [*zip(found.by_size, expected.by_size, strict=True)]
        for own, other in pairs:
            assert np.array_equal(own.precision_TRK, other.precision_TRK)
            assert np.array_equal(own.recall_LTK[-1], other.recall_LTK[-1])
        assert np.array_equal(found.all_areas.recall_LTK, expected.all_areas.recall_LTK)
        assert found.summary == expected.summary


def check_equals_hotcoco(draw):
    hotcoco = pytest.importorskip("hotcoco", reason="hotcoco is not installed")
    truth, results = random_set(draw)
    if not results:
        return
    with contextlib.redirect_stdout(io.StringIO()):
        reader = hotcoco.COCO(truth)
        run = hotcoco.COCOeval(reader, reader.loadRes(results), "bbox")
        for step in (run.evaluate, run.accumulate, run.summarize):
            step()
    assert list(score(truth, results, report=ReportSettings(diagnose=False)).coco.values()) == list(run.stats)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK))
def test_equal_bits_beside_pycocotools(seed):
    check_equals_pycocotools(random.Random(seed))


@pytest.mark.parametrize("seed", range(QUICK))
def test_equal_bits_beside_hotcoco(seed):
    check_equals_hotcoco(random.Random(seed))


@pytest.mark.slow
@pytest.mark.drawn(1, "block")
@pytest.mark.parametrize("block", range(20))
@pytest.mark.parametrize("check", [check_equals_pycocotools, check_equals_hotcoco])
def test_equal_bits_in_four_hundred_random_sets(check, block):
    for seed in range(20 * block, 20 * block + 20):
        check(random.Random(1000 + seed))


def test_twelve_numbers_of_no_answers(one_cat):
    assert score(one_cat, []).coco == score(one_cat, [], backend="pycocotools").coco
    assert list(score(one_cat, []).coco) == list(COCO_KEYS)
