"""The plug-ins for lmms-eval and VLMEvalKit: what needs neither of them. Their own loaders were tried by hand."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from coord_eval import score

PLUGINS = Path(__file__).parents[1] / "plugins"
DOC = {"image": "a.jpg", "width": 64, "height": 48, "objects": [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}]}
ANSWER = '[{"bbox_2d": [100, 200, 500, 600], "label": "cat"}, {"bbox_2d": [1, 1, 9, 9], "label": "dog"}]'


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def task(monkeypatch):
    monkeypatch.delenv("COORD_EVAL_SCALE", raising=False)
    return load(PLUGINS / "lmms_eval" / "detection.py")


def test_lmms_eval_task_scores_as_score_does(task):
    records = [task.process_results(DOC, [ANSWER])["AP"], task.process_results({**DOC, "image": "b.jpg"}, [""])["AP"]]
    truth = [{**DOC, "image_id": i, "image": f"{i}.jpg"} for i in range(2)]
    from coord_codec import Instance

    found = score([Instance(**t) for t in truth], [{"image_id": 0, "text": ANSWER}, {"image_id": 1, "text": ""}])
    assert task.ap(records) == found.coco["AP"] > 0
    assert (task.ap50(records), task.mean_iou(records)) == (found.coco["AP50"], found.mean_iou)
    assert task.f1(records) == found.detection["0.5"]["f1"]
    assert task.accuracy(records) == 0.5


def test_lmms_eval_task_asks_for_all_objects_or_for_the_phrase(task):
    other = {**DOC, "objects": [{"desc": "left dog", "bbox": [0.1, 0.2, 0.5, 0.6]}, *DOC["objects"]]}
    assert (
        "every object" in task.doc_to_text(DOC)
        and task.doc_to_text(DOC, {"prompt": "What is here?"}) == "What is here?"
    )
    assert '"cat"' in task.phrase_to_text(DOC) and '"left dog"' in task.phrase_to_text(other)
    assert task.phrase_to_text(other, {"prompt": "Where is {}?"}) == "Where is left dog?"
    assert task.doc_to_target(other) == "left dog, cat"


@pytest.mark.parametrize("scale", ["pixels", "100"])
def test_lmms_eval_task_takes_the_scale_of_the_environment(task, monkeypatch, scale):
    monkeypatch.setenv("COORD_EVAL_SCALE", scale)
    box = [6.4, 9.6, 32, 28.8] if scale == "pixels" else [10, 20, 50, 60]
    records = [task.process_results(DOC, [f'{{"bbox_2d": {box}, "label": "cat"}}'])["AP"]]
    assert task.mean_iou(records) == pytest.approx(1)
    assert task.accuracy(records) == 1.0


def test_lmms_eval_yaml_names_functions_that_exist(task):
    named = [
        name
        for path in (PLUGINS / "lmms_eval").glob("*.yaml")
        for name in re.findall(r"detection\.(\w+)", path.read_text())
    ]
    assert len(named) > 8
    assert all(callable(getattr(task, name)) for name in named if name != "yaml")


def test_vlmevalkit_expressions_ask_for_every_phrase_of_an_image(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    phrases = [("a.jpg", "left cup"), ("a.jpg", "right cup"), ("b.jpg", "dog")]
    box = [0.1, 0.2, 0.5, 0.6]
    rows = [
        {"image": image, "image_id": image[0], "objects": [{"desc": phrase, "bbox": box}]} for image, phrase in phrases
    ]
    (tmp_path / "truth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("COORD_EVAL_GROUND_TRUTH", str(tmp_path / "truth.jsonl"))
    monkeypatch.setenv("COORD_EVAL_SCALE", "1000")
    answers = pandas.DataFrame({"index": [2, 0, 1], "prediction": ["none", *['{"bbox": [100, 200, 500, 600]}'] * 2]})
    stubs = {
        "vlmeval.dataset.image_base": SimpleNamespace(ImageBaseDataset=object),
        "vlmeval.smp": SimpleNamespace(dump=lambda metrics, path: None, load=lambda path: answers),
        "vlmeval.smp.file": SimpleNamespace(get_intermediate_file_path=lambda *names: None),
    }
    for name, stub in {"vlmeval": SimpleNamespace(), "vlmeval.dataset": SimpleNamespace(), **stubs}.items():
        monkeypatch.setitem(sys.modules, name, stub)
    dataset = load(PLUGINS / "vlmevalkit" / "coord_detection.py").CoordExpressions()
    questions = dataset.load_data("")["question"]
    assert all(phrase in question for (_, phrase), question in zip(phrases, questions, strict=True))
    assert dataset.evaluate("answers.xlsx")["Acc@0.5"].tolist() == pytest.approx([2 / 3])
