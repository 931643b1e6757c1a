"""The package: light imports, the README's example and list of names."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import coord_codec
import coord_eval
import coord_eval.html
from coord_eval.parse.formats import FORMATS


@pytest.mark.slow
def test_score_loads_no_torch():
    code = (
        "import sys\n"
        "from coord_codec import Instance\n"
        "from coord_eval import oracle_predictions, score\n"
        "truth = [Instance(image='a.jpg', image_id=1, width=9, height=9,"
        " objects=[{'desc': 'cat', 'bbox': [.1, .1, .5, .5]}])]\n"
        "print(round(score(truth, oracle_predictions(truth)).coco['AP'], 9))\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1.0", "[]"]


@pytest.mark.slow
def test_scoring_a_results_list_loads_neither_pydantic_nor_a_parser(tmp_path):
    """Both are a third of the time of a COCO set's scores."""
    truth = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 9, "height": 9}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "area": 25, "iscrowd": 0}],
    }
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    box = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5}
    (tmp_path / "results.json").write_text(json.dumps([box]))
    code = (
        "import sys; from coord_eval import score; print(round(score('truth.json', 'results.json')['AP'], 9))\n"
        "print([name for name in ('pydantic', 'coord_eval.parse.parser', 'pycocotools') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["1.0", "[]"]


def test_readme_example_prints_what_its_comments_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL))
    exec(compile(code, "README.md", "exec"), {})
    FORMATS.remove("at")
    expected = re.findall(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.splitlines() == expected
    assert (tmp_path / "report" / "report.html").exists()


def test_readme_lists_every_public_name():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    section = readme.split("## Public names")[1].split("##")[0]
    names, pieces = section.split("`coord_eval.html`")
    assert set(re.findall(r"`(\w+)`", names)) == set(coord_eval.__all__)
    assert set(re.findall(r"`(\w+)`", pieces)) == set(coord_eval.html.__all__)


def test_input_error_is_that_of_the_codec():
    assert coord_eval.InputError is coord_codec.InputError


def test_dir_lists_public_names_and_an_unknown_one_is_an_attribute_error():
    assert set(coord_eval.__all__) <= set(dir(coord_eval))
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        coord_eval.scores  # noqa: B018
