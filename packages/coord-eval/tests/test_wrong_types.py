"""Arguments of wrong types are `InputError`s that name them, in every public function."""

import inspect
from contextlib import suppress

import pytest

import coord_eval
from coord_eval import parse_answer, score

TRUTH = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 9, "height": 9}],
    "categories": [{"id": 1, "name": "cat"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}],
}
ANSWERS = [{"image_id": 1, "text": '{"bbox_2d": [100, 100, 300, 300], "label": "cat"}'}]
WRONG = (None, 5, 1.5, "x", b"x", [1, 2], {"a": 1}, object(), True, [[1]], [{}])
FUNCTIONS = [
    name
    for name in coord_eval.__all__
    if name.startswith(
        ("score", "load", "parse", "diagnose", "resample", "compare", "oracle", "to_coco", "to_fiftyone")
    )
    or name in ("write_exports", "register_metric", "unregister_metric", "register_format", "CocoParams")
    or name.endswith("Settings")
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_of_wrong_types_are_input_errors(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of the values are names of folders
    function, evaluation = getattr(coord_eval, name), score(TRUTH, ANSWERS, scale=1000)
    right = {
        **{"ground_truth": TRUTH, "source": TRUTH, "predictions": ANSWERS, "text": "x", "evaluation": evaluation},
        **{"boxes": [(0, 0, 1, 1)], "answers": [parse_answer("x")], "runs": {"a": evaluation, "b": evaluation}},
        **{"folder": tmp_path / "out", "record": ANSWERS[0], "resamples": 2},
    }
    parameters = inspect.signature(function).parameters
    needed = {key: right.get(key) for key, p in parameters.items() if p.default is p.empty}
    needed |= {"resamples": 2} if "resamples" in parameters else {}
    for key in parameters.keys() - {"progress", "label_callback"}:
        for value in WRONG:
            with suppress(ValueError, *([OSError] if key == "folder" else [])):  # `InputError` is a `ValueError`
                function(**needed | {key: value})
