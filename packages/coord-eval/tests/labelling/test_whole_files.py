"""Every file that is written for a labelling tool, as it stands."""

import json
from pathlib import Path

import pytest

from coord_eval.labelling import EXPORTS, coco_annotations, coco_results, fiftyone_samples, labelstudio_prediction

FILES = Path(__file__).parent / "whole_files.json"
BOX = {"desc": " red\ncar", "bbox_xyxy": [10.1, 20, 50.3, 60], "score": 0.75}
EDGE = {"desc": "", "bbox_xyxy": [99.8, 79.6, 100, 80], "score": 0.5}
OUTLINE = {**BOX, "desc": "cat", "geometry": "polygon", "points_xy": [[10, 20], [50, 20], [50, 60]]}
POINTS = {**BOX, "desc": "dog", "geometry": "keypoints", "points_xy": [[10, 20], [0, 0], [50, 60]], "score": 0.25}
SINGLE = {**BOX, "desc": "dog", "geometry": "point", "points_xy": [[30, 40]]}
SIZE = {"width": 100, "height": 80}
RECORDS = [
    {"image_id": 7, "image": "a b/c.jpg", **SIZE, "objects": [BOX, EDGE, OUTLINE, POINTS]},
    {"image_id": "x", "image": "../d\u202e.png", **SIZE},
]


def written(folder):
    """Return the contents of all files of all tools by name, and what is returned in place of files."""
    for name, write in EXPORTS.items():
        write(RECORDS, folder / name)
    EXPORTS["yolo"]([{**RECORDS[0], "objects": [POINTS, SINGLE]}], folder / "two numbers of points")
    coco_annotations(RECORDS, folder / "known", {"cat": 9, "hen": 4})
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in files}
    found["results"] = coco_results(RECORDS)
    found["results of known labels"] = coco_results(RECORDS, {"cat": 9, "hen": 4})
    found["samples"] = json.loads(json.dumps(fiftyone_samples(RECORDS)).replace("NaN", '"nan"'))
    found["prediction"] = labelstudio_prediction(RECORDS[0], "v", "from", "to")
    return {**found, "no prediction": labelstudio_prediction(RECORDS[1], "v")}


def test_files_of_labelling_tools_hold_every_field_of_every_shape(tmp_path):
    found, expected = written(tmp_path), json.loads(FILES.read_text())
    assert found.keys() == expected.keys()
    for name, content in expected.items():
        assert json.loads(json.dumps(found[name])) == content, name


@pytest.mark.parametrize("name", EXPORTS)
def test_no_record_is_a_file_too(name, tmp_path):
    assert EXPORTS[name]([], tmp_path).exists()
