"""Masks and keypoints of a COCO results list have pycocotools' own figures, to the last bit."""

import json
import random
from itertools import chain

import numpy as np
import pytest
from by_pycocotools import by_pycocotools
from pycocotools import mask as masks

from coord_eval import AnswerSettings, InputError, load_ground_truth, score, to_coco_results

POLYGONS = AnswerSettings(geometry="polygon")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' decode
KINDS = {"polygon": "segm", "keypoints": "keypoints"}


def outline(x, y, w, h):
    return [x, y, x + w, y + 0.2 * h, x + 0.8 * w, y + h, x + 0.1 * w, y + 0.9 * h]


def rle(outlines, size):
    mask = masks.merge(masks.frPyObjects(outlines, *size))
    return {**mask, "counts": mask["counts"].decode()}


def runs(mask):
    """The same mask with its counts as a list, as crowd regions have it."""
    pixels = np.asarray(masks.decode([mask])).flatten(order="F")
    ends = [*np.flatnonzero(np.diff(pixels)) + 1, len(pixels)]
    counts = np.diff([0, *ends]).tolist()
    return {"size": mask["size"], "counts": [0, *counts] if pixels[0] else counts}


def drawn(seed, of_points):
    """Objects in outlines, several of them, masks and crowd regions, with keypoints or not, and moved answers."""
    draw = random.Random(seed)
    categories = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}]
    truth = {"images": [], "annotations": [], "categories": categories}
    results = []
    for image in range(5, 15):
        width, height = draw.randint(60, 300), draw.randint(60, 300)
        truth["images"].append({"id": image, "file_name": f"{image}.jpg", "width": width, "height": height})
        for _ in range(draw.randint(0, 5)):
            box = [draw.uniform(0, 0.6 * width), draw.uniform(0, 0.6 * height)]
            box += [draw.uniform(8, 0.4 * width), draw.uniform(8, 0.4 * height)]
            outlines = [outline(*box)] + [outline(*box[:2], 4, 4)] * (draw.random() < 0.2)
            crowd = draw.random() < 0.15
            stated = runs(rle(outlines, (height, width))) if crowd or draw.random() < 0.2 else outlines
            x, y, w, h = box
            seen = [draw.choice([0, 1, 2]) * (draw.random() > 0.1) for _ in range(17)]
            points = [[draw.uniform(x, x + w), draw.uniform(y, y + h), v] if v else [0, 0, 0] for v in seen]
            row = {"image_id": image, "category_id": draw.choice([3, 7]), "bbox": box, "segmentation": stated}
            row |= {"id": len(truth["annotations"]), "area": w * h * draw.uniform(0.4, 0.9), "iscrowd": int(crowd)}
            if of_points:
                row |= {"keypoints": [*chain(*points)], "num_keypoints": sum(v > 0 for v in seen)}
            truth["annotations"].append(row)
            for _ in range(draw.randint(0, 3)):
                moved = [x + draw.gauss(0, 3), y + draw.gauss(0, 3), w, h]
                shape = {"segmentation": rle([outline(*moved)], (height, width))}
                if of_points:
                    far = [[px + draw.gauss(0, 0.1 * w), py + draw.gauss(0, 0.1 * h), 1] for px, py, _ in points]
                    shape = {"keypoints": [*chain(*far)]}
                own = {"image_id": image, "category_id": draw.choice([row["category_id"], 3])}
                results.append({**own, **shape, "score": round(draw.random(), 2)})
    return truth, results


def figures(evaluation):
    return [value for name, value in evaluation.shapes.items() if name[:2] in ("AP", "AR")]


def reference(truth, results, geometry):
    run = by_pycocotools(truth, json.loads(json.dumps(results)), kind=KINDS[geometry])
    return run.stats.tolist()


@pytest.mark.parametrize("geometry", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_pycocotools(tmp_path, geometry, seed):
    truth, results = drawn(seed, geometry == "keypoints")
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    (tmp_path / "results.json").write_text(json.dumps(results))
    evaluation = score(tmp_path / "truth.json", tmp_path / "results.json", answers=AnswerSettings(geometry=geometry))
    assert figures(evaluation) == reference(truth, results, geometry)
    assert evaluation["AP"] == by_pycocotools(truth, json.loads(json.dumps(results))).stats[0]
    assert not [note for note in evaluation.notes if "no effect" in note]
    written, field = to_coco_results(evaluation), "keypoints" if geometry == "keypoints" else "segmentation"
    assert [row[field] for row in written] == [row[field] for row in results]
    assert figures(score(truth, written, answers=AnswerSettings(geometry=geometry))) == reference(
        truth, written, geometry
    )


def test_outlines_and_boxes_beside_them_are_those_of_pycocotools():
    truth, results = drawn(3, False)
    boxed = [{**row, "bbox": masks.toBbox(row["segmentation"]).tolist()} for row in results]
    outlined = [{**row, "segmentation": [outline(*row["bbox"])]} for row in boxed]
    for rows in (boxed, outlined):
        assert figures(score(truth, rows, answers=POLYGONS)) == reference(truth, rows, "polygon")


def test_outlines_alone_are_the_masks_that_they_draw():
    truth, results = drawn(4, False)
    sizes = {row["id"]: (row["height"], row["width"]) for row in truth["images"]}
    boxes = [masks.toBbox(row["segmentation"]).tolist() for row in results]
    alone = [{**row, "segmentation": [outline(*box)]} for row, box in zip(results, boxes, strict=True)]
    encoded = [{**row, "segmentation": rle(row["segmentation"], sizes[row["image_id"]])} for row in alone]
    assert figures(score(truth, alone, answers=POLYGONS)) == reference(truth, encoded, "polygon")
    told = score(truth, alone).notes
    assert any("state a segmentation field: boxes alone are scored; geometry polygon" in note for note in told)


def test_perfect_shapes_of_instances_and_a_report(tmp_path):
    square = {"type": "polygon", "coordinates": [0.1, 0.1, 0.5, 0.1, 0.5, 0.5, 0.1, 0.5]}
    record = {"image": "a.jpg", "width": 100, "height": 80, "image_id": 1}
    record["objects"] = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5], "geometry": square}]
    (tmp_path / "truth.jsonl").write_text(json.dumps(record) + "\n")
    result = {"image_id": 1, "category_id": 1, "segmentation": [[10, 8, 50, 8, 50, 40, 10, 40]], "score": 1}
    evaluation = score(tmp_path / "truth.jsonl", [result], answers=POLYGONS)
    assert (evaluation.shapes["AP"], evaluation.shapes["mean"], evaluation["AP"]) == pytest.approx((1, 1, 1))
    assert "as COCO scores" in evaluation.write_report(tmp_path / "out").read_text()
    assert json.loads(evaluation.to_json())["shapes"]["AP"] == evaluation.shapes["AP"]
    oriented = score(tmp_path / "truth.jsonl", [result], answers=AnswerSettings(geometry="oriented"))
    assert (oriented.shapes["measure"], oriented.shapes["AP"]) == ("IoU of outlines (shapely)", pytest.approx(1))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"segmentation": [[1, 2, 3, 4]]}, r"\[0\]\.segmentation: expected x and y of three points.*found 4 numbers"),
        (
            {"segmentation": {"size": [9, 9], "counts": [80]}},
            r"segmentation\.counts: expected runs of 81 pixels, found 80",
        ),
        ({"segmentation": {"size": [9, 9]}}, r"segmentation\.counts: expected text or a list of runs, found None"),
        ({"keypoints": [1, 2, 3, 4]}, r"\[0\]\.keypoints: expected x, y and v of each, found 4 numbers"),
        ({}, r"\[0\]\.bbox: expected 4 numbers"),
    ],
)
def test_faulty_shapes_are_named(shape, message):
    truth, _ = drawn(0, False)
    with pytest.raises(InputError, match=message):
        score(truth, [{"image_id": 5, "category_id": 3, "score": 1, **shape}], answers=POLYGONS)


def test_shapes_that_cannot_be_compared_are_told():
    truth, _ = drawn(0, True)
    few = {"image_id": 5, "category_id": 3, "keypoints": [1, 1, 2], "score": 1}
    at = next(row for row in truth["annotations"])
    with pytest.raises(InputError, match="17 keypoints, found 1"):
        score(
            truth,
            [few | {"image_id": at["image_id"], "category_id": at["category_id"]}],
            answers=AnswerSettings(geometry="keypoints"),
        )
    with pytest.raises(InputError, match="ground truth: no object has keypoints"):
        score(drawn(0, False)[0], [few], answers=AnswerSettings(geometry="keypoints"))
    size = {"segmentation": {"size": [9, 9], "counts": [0, 81]}}
    with pytest.raises(InputError, match="mask of 9 x 9 pixels"):
        score(truth, [{**few, **size, "keypoints": None}], answers=POLYGONS)


def test_stated_shapes_are_kept_beside_the_objects():
    truth, _ = drawn(0, False)
    kept = load_ground_truth(truth, as_stated=True).stated_N
    assert sorted(map(str, kept)) == sorted(str({"segmentation": a["segmentation"]}) for a in truth["annotations"])


@pytest.mark.parametrize(("stated", "recall"), [({"num_keypoints": 0}, 1.0), ({"num_keypoints": 17}, 0.5), ({}, 0.5)])
def test_object_without_keypoints_by_its_own_count_is_ignored(stated, recall):
    points = [[*chain(*((10 + n + shift, 10 + n, 2) for n in range(17)))] for shift in (0, 40)]
    rows = [{"id": n, "image_id": 1, "category_id": 1, "bbox": [10 + 40 * n, 10, 17, 17], "area": 9999} for n in (0, 1)]
    truth = {"images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 100}]}
    truth["categories"] = [{"id": 1, "name": "cat"}]
    truth["annotations"] = [{**rows[0], "keypoints": points[0]}, {**rows[1], "keypoints": points[1], **stated}]
    found = [{"image_id": 1, "category_id": 1, "keypoints": points[0], "score": 0.9}]
    assert score(truth, found, answers=AnswerSettings(geometry="keypoints")).shapes["AR"] == recall
