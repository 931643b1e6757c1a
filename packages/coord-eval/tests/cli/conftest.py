import json

import pytest

from coord_eval import oracle_predictions


@pytest.fixture
def files(coco_set, tmp_path):
    truth, predictions = tmp_path / "truth.json", tmp_path / "predictions.jsonl"
    truth.write_text(json.dumps(coco_set))
    records = oracle_predictions(coco_set)
    predictions.write_text("".join(json.dumps(record) + "\n" for record in records))
    return ["--ground-truth", str(truth), "--predictions", str(predictions)]


@pytest.fixture
def results(files, coco_set, noisy_results, tmp_path, monkeypatch):
    """The words that name a ground truth and a results list."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "synonyms.json").write_text('{"cat": ["feline"]}')
    (tmp_path / "results.json").write_text(json.dumps(noisy_results(coco_set, 0)))
    return [*files[:3], "results.json"]
