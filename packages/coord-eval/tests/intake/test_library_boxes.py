"""Boxes of supervision and torchmetrics score as the same boxes in COCO's format."""

from types import SimpleNamespace

import numpy as np
import pytest
from coco_builder import coco

from coord_eval import InputError, load_ground_truth, score

TRUTH = coco(
    *((3, 1, [10, 10, 30, 40]), (3, 7, [50, 50, 20, 20]), (5, 7, [0, 0, 20, 20])),
    names={1: "cat", 7: "dog"},
    images=(3, 5),
)
RESULTS = [
    {"image_id": 3, "category_id": 1, "bbox": [10, 10, 30, 38], "score": 0.9},
    {"image_id": 3, "category_id": 1, "bbox": [60, 10, 30, 38], "score": 0.95},
    {"image_id": 5, "category_id": 7, "bbox": [1, 0, 20, 20], "score": 0.4},
]


def rows_of(image):
    return [row for row in RESULTS if row["image_id"] == image]


def corners(rows):
    return np.array([[x, y, x + w, y + h] for x, y, w, h in (row["bbox"] for row in rows)], np.float32)


def detections(image, named=False):
    rows = rows_of(image)
    names = {1: "cat", 7: "dog"}
    return SimpleNamespace(
        xyxy=corners(rows),
        confidence=np.array([row["score"] for row in rows], np.float32),
        class_id=np.array([0 if named else row["category_id"] for row in rows]),
        data={"class_name": np.array([names[row["category_id"]] for row in rows])} if named else {},
    )


def dictionary(image):
    rows = rows_of(image)
    labels = np.array([row["category_id"] for row in rows])
    return {"boxes": corners(rows), "scores": np.array([row["score"] for row in rows]), "labels": labels}


@pytest.mark.parametrize(
    "predictions",
    [
        [(3, detections(3)), (5, detections(5))],
        {3: detections(3, named=True), 5: detections(5, named=True)},
        {3: dictionary(3), 5: dictionary(5)},
        [dictionary(3) | {"image_id": 3}, dictionary(5) | {"image_id": np.int64(5)}],
    ],
    ids=["supervision", "supervision, names", "torchmetrics", "torchmetrics, image_id"],
)
def test_score_of_library_boxes_equals_that_of_coco_results(predictions):
    assert score(TRUTH, predictions).coco == pytest.approx(score(TRUTH, RESULTS).coco, abs=1e-9)


def test_torchmetrics_targets_and_predictions_are_joined_by_position():
    targets = [
        {"boxes": [[10, 10, 40, 50], [50, 50, 70, 70]], "labels": [1, 7], "iscrowd": [0, 0], "area": [1200, 400]},
        {"boxes": [[0, 0, 20, 20]], "labels": [7]},
    ]
    assert load_ground_truth(targets).category_ids == (1, 7)
    found, expected = score(targets, [dictionary(3), dictionary(5)]), score(TRUTH, RESULTS)
    assert found.coco == pytest.approx(expected.coco, abs=1e-9)


def test_positions_meet_ids_only_in_a_stated_order():
    """Boxes without image_id are those of the images in the order of their ids, if there are as many; else ask."""
    found = score(TRUTH, [dictionary(3), dictionary(5)])
    assert found.coco == score(TRUTH, RESULTS).coco
    assert any("image_id" in note for note in found.notes)
    with pytest.raises(InputError, match="image_id"):
        score(TRUTH, [dictionary(3)])
    with pytest.raises(InputError, match=r"predictions\[1\]: image_id"):
        score(TRUTH, [dictionary(3) | {"image_id": 3}, dictionary(5)])
    targets = [{"boxes": [[10, 10, 40, 50]], "labels": [1]}, {"boxes": [[0, 0, 20, 20]], "labels": [7]}]
    with pytest.raises(InputError, match="ground truth"):
        score(targets, RESULTS)


def test_library_boxes_without_confidence_are_noted():
    boxes = detections(3)
    boxes.confidence = None
    assert any("score 1" in note for note in score(TRUTH, [(3, boxes)]).notes)


@pytest.mark.parametrize(
    ("predictions", "named"),
    [
        (detections(3), "image"),
        ([detections(3)], "image"),
        ([(3, detections(3)), (5, "x")], r"predictions\[1\]"),
        ([dictionary(3) | {"scores": [1.0]}], "scores"),
        ([dictionary(3) | {"labels": [1]}], "labels"),
        ([dictionary(3) | {"boxes": [[4, 4, 1, 1], [0, 0, 1, 1]]}], "boxes"),
        ([dictionary(3) | {"boxes": "x"}], "boxes"),
    ],
)
def test_faulty_library_boxes_are_input_errors(predictions, named):
    with pytest.raises(InputError, match=named):
        score(TRUTH, predictions)


def result(image, boxes, error=""):
    objects = [
        SimpleNamespace(
            label={1: "cat", 7: "dog"}[row["category_id"]], box=corners([row])[0].tolist(), score=row["score"]
        )
        for row in boxes
    ]
    return SimpleNamespace(name=f"{image}.jpg", size=(100, 100), objects=objects, error=error)


def test_results_of_a_detector_score_as_they_stand():
    evaluation = score(TRUTH, [result(3, rows_of(3)), result(5, rows_of(5))])
    assert evaluation["AP"] == score(TRUTH, RESULTS)["AP"]
    assert evaluation.detections.boxes_D4.tolist() == [row["bbox"] for row in RESULTS]
    one = score(TRUTH, result(3, rows_of(3)))
    assert any("1 of 2 images is" in note or "1 of 2 images are without an answer" in note for note in one.notes)
    failed = score(TRUTH, [result(3, rows_of(3)), result(5, [], error="cannot be read")])
    assert failed.join.answered == 1
    assert score(TRUTH, [result(3, rows_of(3)), result(5, [])]).join.answered == 2


def test_a_figure_of_nothing_that_could_match_warns():
    with pytest.warns(UserWarning, match=r"AP is 0: none of 3 boxes has a known label"):
        assert score(TRUTH, [row | {"category_id": row["category_id"] + 100} for row in RESULTS])["AP"] == 0
    with pytest.warns(UserWarning, match=r"AP50 is 0: the predictions have no box"):
        assert score(TRUTH, [])["AP50"] == 0


def test_targets_keep_areas_and_crowds_and_names_beside_numbers():
    boxes = [[0, 0, 10, 10], [10, 0, 30, 10], [0, 20, 10, 30], [0, 50, 10, 60]]
    target = {"boxes": boxes, "labels": [1, "cat", 3, "dog"], "iscrowd": [0, 1, 0, 0], "area": [7, 8, 0, 9]}
    truth = load_ground_truth([target, {"boxes": [], "labels": []}])
    assert (truth.area_N.tolist(), truth.crowd_N.tolist()) == ([7, 8, 100, 9], [False, True, False, False])
    names = dict(zip(truth.categories, truth.category_ids, strict=True))
    assert {names["1"], names["3"]} == {1, 3} and {names["cat"], names["dog"]} == {2, 4}
    assert [truth.categories[k] for k in truth.category_N.tolist()] == ["1", "cat", "3", "dog"]
    assert (truth.boxes_N4[1].tolist(), len(truth), truth.by_position) == ([10, 0, 20, 10], 2, True)
    assert score([target], []).counts["detections"] == 0


@pytest.mark.parametrize("box", [[4, 0, 1, 1], [0, 4, 1, 1]])
def test_one_swapped_pair_of_sides_is_refused(box):
    with pytest.raises(InputError, match=r"predictions\[0\]\.boxes\[1\]: expected x1 <= x2 and y1 <= y2"):
        score(TRUTH, [{"image_id": 3, "boxes": [[0, 0, 1, 1], box], "labels": [1, 1], "scores": [1, 1]}])


@pytest.mark.slow
def test_own_scores_count_beside_those_that_are_missing_and_unplaced_points_are_not_seen():
    rows = [{"image_id": 3, "boxes": [[0, 0, 9, 9]], "labels": [1], "scores": [0.25]}]
    rows += [{"image_id": 5, "boxes": [[0, 0, 9, 9]], "labels": [1]}]
    assert score(TRUTH, rows).detections.scores_D.tolist() == [0.25, 1]
    item = SimpleNamespace(
        label="cat", box=(1, 2, 5, 6), score=0.5, points=((1, 2), (0, 0), (5, 6)), geometry="keypoints"
    )
    outline = SimpleNamespace(**{**vars(item), "geometry": "polygon"})
    found = SimpleNamespace(name="3.jpg", size=(9, 9), objects=[item, outline], error="")
    assert score(TRUTH, [found]).detections.stated_D.tolist() == [
        {"keypoints": [1, 2, 2, 0, 0, 0, 5, 6, 2]},
        {"segmentation": [[1, 2, 0, 0, 5, 6]]},
    ]
