"""Scoring in threads: nothing that belongs to the process changes."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from coord_eval import score


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["coord_eval", "pycocotools"])
def test_score_in_threads_leaves_standard_output_alone(one_cat, backend, capsys):
    results = [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.9}]
    before = sys.stdout
    seen = []

    def run(_):
        evaluation = score(one_cat, results, backend=backend)
        seen.append(sys.stdout is before)
        return evaluation.coco["AP"]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, range(64)))
    assert found == pytest.approx([1.0] * 64)
    assert all(seen) and sys.stdout is before
    assert capsys.readouterr().out == ""
