"""Without the extras `report` and `shapes`: scoring is complete, and outlines say what to install."""

import json
import subprocess
import sys

import pytest
from coco_builder import coco

BLOCKED = """
import sys
for name in ("PIL", "shapely"):
    sys.modules[name] = None  # an import of it raises ImportError
"""


def run(code, *words):
    command = [sys.executable, "-c", BLOCKED + code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def files(tmp_path):
    truth = coco((1, 1, [10, 10, 40, 40]))
    truth["annotations"][0]["obb"] = [10, 10, 50, 10, 50, 50, 10, 50]
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    answer = {"image_id": 1, "text": '[{"bbox_2d": [100, 100, 500, 500], "label": "cat"}]'}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer))
    return tmp_path


@pytest.mark.slow
def test_a_report_without_pillow_has_scores_and_charts(files):
    words = ["--ground-truth", files / "truth.json", "--predictions", files / "answers.jsonl", "--out", files / "out"]
    done = run("from coord_eval.cli.main import main\nsys.exit(main())", "score", *words, "--scale", "1000")
    assert done.returncode == 0, done.stderr
    assert json.loads((files / "out" / "evaluation.json").read_text())["coco"]["AP"] == pytest.approx(1)
    html = (files / "out" / "report.html").read_text()
    assert 'class="chart"' in html


@pytest.mark.slow
def test_outlines_without_shapely_say_what_to_install():
    code = """
from coord_codec import InputError
from coord_eval.shapes.similarity import outline_iou
try:
    outline_iou([[(0, 0), (1, 0), (1, 1)]], [[(0, 0), (1, 0), (1, 1)]])
except InputError as error:
    print(error)
"""
    assert "pip install shapely" in run(code).stdout
