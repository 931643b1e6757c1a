"""Folders of text files as predictions: label files as YOLO's tools write them, and MOT results."""

import json

import pytest
from coco_builder import coco

from coord_eval import AnswerSettings, InputError, score
from coord_eval.cli.main import main

FILES = {1: "val/a.jpg", 2: "val/b.v2.jpg", 3: "val/c.jpg"}
TRUTH = coco(
    *((1, 10, [10, 20, 40, 30]), (1, 20, [60, 50, 20, 20]), (2, 20, [5, 5, 50, 50])),
    names={10: "cat", 20: "dog"},
    images=FILES,
    size=(200, 100),
)
BOXES = {"a": ["0 0.15 0.35 0.2 0.3", "1 0.35 0.6 0.1 0.2"], "b.v2": ["1 0.15 0.3 0.25 0.5"], "c": []}
OUTLINE = "0.05 0.2 0.25 0.2 0.25 0.5 0.05 0.5"


def write(folder, lines, names=None):
    folder.mkdir(parents=True)
    for image, rows in lines.items():
        (folder / f"{image}.txt").write_text("".join(row + "\n" for row in rows))
    for name, text in (names or {}).items():
        (folder.parent / name).write_text(text)
    return folder.parent


def with_confidence(scores, more=""):
    given = iter(scores)
    return {image: [f"{row} {next(given)}{more}" for row in rows] for image, rows in BOXES.items()}


@pytest.mark.parametrize(
    ("lines", "names", "scores"),
    [
        (with_confidence([0.9, 0.8, 0.7]), {"data.yaml": "names: [cat, dog]"}, [0.9, 0.8, 0.7]),
        (with_confidence([0.9, 0.8, 0.7]), {"data.yaml": "names:\n  0: cat\n  1: dog\n"}, [0.9, 0.8, 0.7]),
        (with_confidence([0.9, 0.8, 0.7]), {"classes.txt": "cat\ndog\n"}, [0.9, 0.8, 0.7]),
        (with_confidence([0.9, 0.8, 0.7], " 4"), {"data.yaml": "names: [cat, dog]"}, [0.9, 0.8, 0.7]),  # tracked
        (BOXES, {"data.yaml": "names: [cat, dog]"}, [1, 1, 1]),
        (with_confidence([0.9, 0.8, 0.7]), None, [0.9, 0.8, 0.7]),
    ],
)
def test_label_files_are_the_boxes_of_their_images(tmp_path, lines, names, scores):
    evaluation = score(TRUTH, write(tmp_path / "run" / "labels", lines, names))
    found = evaluation.detections
    assert found.boxes_D4.tolist() == [row["bbox"] for row in TRUTH["annotations"]]
    assert (found.image_D.tolist(), found.category_D.tolist()) == ([0, 0, 1], [0, 1, 1])
    assert found.scores_D.tolist() == scores
    assert evaluation["AP"] == 1
    assert evaluation.join.answered == 3  # an empty file is an answer
    told = [note for note in evaluation.notes if "names the classes" in note]
    assert bool(told) == (names is None)
    assert not told or ("'cat'" in told[0] and "'dog'" in told[0])
    one = score(TRUTH, tmp_path / "run" / "labels" / "b.v2.txt")
    assert (one.detections.image_D.tolist(), one.detections.scores_D.tolist()) == ([1], scores[2:])


def test_other_orders_of_classes_count_by_name(tmp_path):
    folder = write(tmp_path / "r" / "labels", {"a": ["1 0.15 0.35 0.2 0.3 .5"]}, {"data.yaml": "names: [dog, Cat]"})
    evaluation = score(TRUTH, folder)
    assert evaluation.detections.category_D.tolist() == [0]
    assert any("2 of 3 images are without an answer" in note for note in evaluation.notes)


def test_outlines_and_keypoints(tmp_path):
    truth = json.loads(json.dumps(TRUTH))
    truth["annotations"][0] |= {"segmentation": [[10, 20, 50, 20, 50, 50, 10, 50]]}
    lines = {"a": [f"0 {OUTLINE} .5", "1 0.3 0.5 0.4 0.5 0.4 0.7 0.3 0.7 0.2 0.6 .5"]}
    folder = write(tmp_path / "r" / "labels", lines, {"data.yaml": "names: [cat, dog]"})
    evaluation = score(truth, folder, answers=AnswerSettings(geometry="polygon"))
    assert evaluation.detections.boxes_D4.tolist() == [[10, 20, 40, 30], [40, 50, 40, 20]]
    assert evaluation.shape_pairs.similarity_D[0] == 1
    points = [value for n in range(17) for value in (20 + n, 30 + n, 2)]
    truth["annotations"] = [{**truth["annotations"][0], "keypoints": points, "num_keypoints": 17, "area": 600}]
    line = "0 0.15 0.35 0.2 0.3 " + " ".join(
        f"{x / 200} {y / 100} 0.9" for x, y in zip(points[::3], points[1::3], strict=True)
    )
    pose = write(tmp_path / "p" / "labels", {"a": [f"{line} .5"]}, {"data.yaml": "names: [cat]\nkpt_shape: [17, 3]"})
    assert score(truth, pose, answers=AnswerSettings(geometry="keypoints")).shapes["AP"] == pytest.approx(1)
    unknown = write(tmp_path / "u" / "labels", {"a": [f"{line} .5"] * 3})
    with pytest.raises(InputError, match=r"all 3 lines have 57 numbers, as keypoints have .* kpt_shape"):
        score(truth, unknown)
    assert len(score(truth, write(tmp_path / "two" / "labels", {"a": [f"{line} .5"] * 2})).detections) == 2


@pytest.mark.parametrize(
    ("lines", "names", "message"),
    [
        ({"a": ["0 0.1 0.2 0.3"]}, None, r"a\.txt, line 1: expected a whole class number, x, y, width and height"),
        ({"a": ["0 0.1 0.2 0.3 0.4", "0 10 20 40 30"]}, None, r"a\.txt, line 2: expected fractions .* found 10 to 40"),
        ({"a": ["-1 0.1 0.2 0.3 0.4"]}, None, r"a\.txt, line 1: expected a whole class number"),
        ({"a": ["0.5 0.1 0.2 0.3 0.4"]}, None, r"a\.txt, line 1: expected a whole class number"),
        ({"a": ["0 1.51 0.2 0.3 0.4"]}, None, "line 1: expected fractions of the image, found 0.2 to 1.51"),
        ({"a": ["0 0.1 -0.51 0.3 0.4"]}, None, "line 1: expected fractions of the image, found -0.51 to 0.4"),
        ({"a": ["2 0.1 0.2 0.3 0.4"]}, None, "class 2 of the label files, .* 2 categories: put data.yaml"),
        (
            {"a": ["0 0.1 0.2 0.3 0.4 0.1 0.2 0.3 0.4 0.5"]},
            {"data.yaml": "names: [cat]\nkpt_shape: [1, 3]"},
            "expected 7 n",
        ),
        ({"a": ["5 0.1 0.2 0.3 0.4"]}, None, "class 5 of the label files, .* 2 categories: put data.yaml"),
        ({"a": ["5 0.1 0.2 0.3 0.4"]}, {"data.yaml": "names: [cat]"}, "class 5 is not named: the list of names has 1"),
        ({"a": ["0 0.1 0.2 0.3 0.4"]}, {"data.yaml": "names: 3"}, r"data\.yaml: names: expected class names by number"),
        ({"a": ["cat 0.9 1 2 3 4"]}, None, r"a\.txt: a file of Cartucho's mAP, which is not read here"),
        ({"x": ["0 0.1 0.2 0.3 0.4"]}, None, "none of 1 prediction is about an image of the ground truth"),
    ],
)
def test_faults_are_named(tmp_path, lines, names, message):
    with pytest.raises(InputError, match=message):
        score(TRUTH, write(tmp_path / "run" / "labels", lines, names))


def test_folder_without_predictions_says_what_was_looked_for(tmp_path, capsys):
    (tmp_path / "truth.json").write_text(json.dumps(TRUTH))
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.jpg").write_text("")
    words = ["--ground-truth", str(tmp_path / "truth.json"), "--predictions", str(tmp_path / "pictures")]
    assert main(["score", *words, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "(.json or .jsonl) or with a label file (.txt) for each image, found .jpg files" in told
    folder = write(tmp_path / "run" / "labels", BOXES)
    assert main(["fuse", str(folder), str(folder / "labels"), "--out", str(tmp_path / "fused.json")]) == 2
    assert "a folder of label files" in capsys.readouterr().err
    assert main(["score", *words[:3], str(folder), "--out", str(tmp_path / "out"), "--export"]) == 0
    assert len(json.loads((tmp_path / "out" / "coco_results.json").read_text())) == 3


def mot(*files, names=("pedestrian",)):
    return coco(
        *((i, 1, [10.0 * i, 20, 30, 40]) for i, _ in enumerate(files, 1)), names=names, images=dict(enumerate(files, 1))
    )


@pytest.mark.slow
def test_mot_results_find_their_frames(tmp_path):
    truth = mot("MOT17-02/img1/000001.jpg", "MOT17-02/img1/000002.jpg", "MOT17-04/img1/000001.jpg")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "MOT17-02.txt").write_text("1,1,10,20,30,40,0.9,-1,-1,-1\n2,1,20,20,30,40,0.8,-1,-1,-1\n")
    (tmp_path / "data" / "MOT17-04.txt").write_text("1,7,30,20,30,40,0.7,-1,-1,-1\n")
    evaluation = score(truth, tmp_path / "data")
    assert (evaluation["AP"], evaluation.detections.image_D.tolist()) == (1, [0, 1, 2])
    assert any(
        "MOT results state no class: all boxes are taken to be 'pedestrian'" in note for note in evaluation.notes
    )
    one = score(truth, tmp_path / "data" / "MOT17-04.txt")
    assert one.detections.image_D.tolist() == [2]
    for names, taken in ((("cat",), 0), (("cat", "person"), 1), (("person", "pedestrian"), 1), (("person", "cat"), 0)):
        (kind,) = {*score(mot("MOT17-04/1.jpg", names=names), tmp_path / "data" / "MOT17-04.txt").detections.category_D}
        assert kind == taken, names
    with pytest.raises(InputError, match="MOT results state no class, and the ground truth has 2 categories: cat, dog"):
        score(mot("1.jpg", names=("cat", "dog")), tmp_path / "data")
    (tmp_path / "data" / "MOT17-04.txt").rename(tmp_path / "other.txt")
    with pytest.raises(InputError, match=r"frame 1 of other may be .*MOT17-02.* or .*MOT17-04"):
        score(truth, tmp_path / "other.txt")


def test_category_ids_in_text_are_those_numbers():
    rows = [{"image_id": a["image_id"], "bbox": a["bbox"], "score": 0.9} for a in TRUTH["annotations"]]
    texts = [{**row, "category_id": str(a["category_id"])} for row, a in zip(rows, TRUTH["annotations"], strict=True)]
    assert score(TRUTH, texts)["AP"] == 1
    both = {**TRUTH, "categories": [*TRUTH["categories"], {"id": "10", "name": "text"}]}
    assert score(both, texts).detections.category_D.tolist()[0] == 2


@pytest.mark.parametrize(
    ("files", "label"),
    [
        ({"run/classes.txt": "cat\n\ndog\n"}, "dog"),  # class 2 is the third line, and there is no class 1
        ({"run/classes.txt": " cat\nhen\n dog \ncow\n"}, "dog"),
        ({"run/labels/data.yaml": "names: {2: dog}", "run/data.yaml": "names: {2: cat}"}, "dog"),  # the nearest
        ({"run/data.yaml": "names: {2: dog}", "run/classes.txt": "cat\ncat\ncat"}, "dog"),
        ({"run/data.yaml": "kpt_shape: [1, 3]", "run/classes.txt": "cat\ncat\ndog"}, "dog"),
        ({"classes.txt": "cat\ncat\ndog"}, "dog"),
    ],
)
def test_names_of_classes_are_those_of_the_nearest_file_by_line(tmp_path, files, label):
    folder = write(tmp_path / "run" / "labels", {"a": ["2 0.15 0.35 0.2 0.3 .5"]}) / "labels"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = score(TRUTH, folder).detections
    assert [found.table.labels[k] for k in found.category_D] == [label]


@pytest.mark.parametrize(("each", "seen"), [(3, [2, 1.5]), (2, [2, 2])])
@pytest.mark.parametrize("confidence", ["", " .25"])
def test_keypoints_of_label_files_are_in_pixels_with_their_visibility(tmp_path, each, seen, confidence):
    points = "".join(
        f" {x} {y} {v}"[: None if each == 3 else -len(f" {v}")] for x, y, v in ((0.1, 0.2, 2), (0.5, 0.6, 1.5))
    )
    names = {"data.yaml": f"names: [cat]\nkpt_shape: [2, {each}]"}
    folder = write(tmp_path / "r" / "labels", {"a": [f"0 0.15 0.35 0.2 0.3{points}{confidence}"]}, names)
    found = score(TRUTH, folder).detections
    assert found.stated_D[0]["keypoints"] == [20, 20, seen[0], 100, 60, seen[1]]
    assert (found.boxes_D4.tolist(), found.scores_D.tolist()) == ([[10, 20, 40, 30]], [0.25 if confidence else 1])


@pytest.mark.slow
def test_a_name_in_another_folder_is_that_of_its_id_and_a_frame_is_whole(tmp_path):
    truth = coco((1, 1, [1, 2, 3, 4]), images={1: "a/x.jpg", 2: "b/x.jpg"})
    row = {"image_id": 2, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}
    evaluation = score(truth, [{**row, "file_name": "c/x.jpg"}])
    assert evaluation.detections.image_D.tolist() == [1]
    assert evaluation.notes[-1] == "diagnosis: no box is in an image with objects: nothing to compare"
    images = {
        n: f"{n}.jpg" for n in range(602)
    }  # of which every third is looked at first, and none of them has objects
    truth = coco(*((n, 1, [1, 2, 3, 4]) for n in images if n % 3), images=images)
    found = score(truth, [{**row, "image_id": n, "bbox": [50, 50, 60, 60]} for n in images])
    assert any(note.startswith("diagnosis: as read, AP 0.000") for note in found.notes)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("1,1,10,20,30,40,0.9,-1,-1,-1\n1.5,1,10,20,30,40,0.9,-1,-1,-1\n")
    with pytest.raises(InputError, match=r"a\.txt, line 2: expected frame, id, left, top"):
        score(mot("a/000001.jpg"), tmp_path / "data")
