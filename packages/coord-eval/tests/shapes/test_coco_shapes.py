"""Masks and keypoints of a COCO results list have pycocotools' own figures, to the last bit."""

import json
import random
from itertools import chain

import numpy as np
import pytest
from by_pycocotools import by_pycocotools
from pycocotools import mask as masks

from coord_eval import AnswerSettings, InputError, load_ground_truth, score, to_coco_results
from coord_eval.shapes.similarity import COCO_SIGMAS

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


def mean_similarity(truth, results, geometry):
    """The mean similarity of objects to the shape that is matched at .5, whatever their size; 0 for missed ones."""
    run = by_pycocotools(truth, json.loads(json.dumps(results)), kind=KINDS[geometry])
    similarity = {}
    for found in run.evalImgs:
        if found is not None and found["aRng"] == run.params.areaRng[0]:
            own = run.ious[found["image_id"], found["category_id"]]
            places = [gt["id"] for gt in run._gts[found["image_id"], found["category_id"]]]
            for d, gt in enumerate(found["dtMatches"][0]):
                if gt:
                    similarity[int(gt)] = own[d][places.index(int(gt))]
    counted = [row["id"] + 1 for row in truth["annotations"] if not row["iscrowd"]]
    return sum(similarity.get(number, 0.0) for number in counted) / len(counted)


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
    assert evaluation.shapes["mean"] == pytest.approx(mean_similarity(truth, results, geometry))
    assert evaluation["AP"] == by_pycocotools(truth, json.loads(json.dumps(results))).stats[0]
    assert not [note for note in evaluation.notes if "no effect" in note]
    written, field = to_coco_results(evaluation), "keypoints" if geometry == "keypoints" else "segmentation"
    assert [row[field] for row in written] == [row[field] for row in results]
    assert figures(score(truth, written, answers=AnswerSettings(geometry=geometry))) == reference(
        truth, written, geometry
    )


@pytest.mark.slow
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


@pytest.mark.parametrize("count", [1, 5, 17, 20])
def test_keypoints_of_any_number_have_the_similarity_of_their_distance(count):
    """exp(-d^2 / (8 sigma^2 area)), the sigmas of COCO for its 17, .05 for all of another number."""
    sigmas = COCO_SIGMAS if count == len(COCO_SIGMAS) else [0.05] * count
    truth = {"images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 100}], "categories": [{"id": 1}]}
    truth["categories"][0]["name"] = "cat"
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 40], "area": 900, "iscrowd": 0}
    truth["annotations"] = [row | {"keypoints": [10, 12, 2] * count, "num_keypoints": count}]
    found = [{"image_id": 1, "category_id": 1, "keypoints": [12, 13, 1] * count, "score": 0.9}]
    scores = score(truth, found, answers=AnswerSettings(geometry="keypoints")).shapes
    expected = np.mean([np.exp(-5 / (8 * sigma**2 * 900)) for sigma in sigmas])
    assert scores["mean"] == pytest.approx(expected)


def test_boxes_without_a_shape_are_their_outline_and_are_counted():
    truth, _results = drawn(5, False)
    boxed = {
        **truth,
        "annotations": [{k: v for k, v in a.items() if k != "segmentation"} for a in truth["annotations"]],
    }
    corners = [[x, y, x + w, y, x + w, y + h, x, y + h] for x, y, w, h in (a["bbox"] for a in truth["annotations"])]
    said = [
        {"image_id": a["image_id"], "category_id": a["category_id"], "bbox": a["bbox"], "score": 0.5 + n / 1000}
        | ({"segmentation": [outline]} if n % 2 else {"keypoints": [1, 1, 2]})
        for n, (a, outline) in enumerate(zip(truth["annotations"], corners, strict=True))
        if not a["iscrowd"]
    ]
    scores = score(boxed, said, answers=POLYGONS).shapes
    assert (scores["mean"], scores["AP"]) == pytest.approx((1, 1))
    assert scores["without_shape"] == sum("segmentation" not in row for row in said) > 0


@pytest.mark.parametrize(
    ("stated", "visible", "recall"),
    [({"num_keypoints": 0}, 2, 1.0), ({"num_keypoints": 17}, 2, 0.5), ({}, 2, 0.5), ({}, 1, 0.5), ({}, 0, 1.0)],
)
def test_object_without_keypoints_by_its_own_count_is_ignored(stated, visible, recall):
    points = [[*chain(*((10 + n + shift, 10 + n, v) for n in range(17)))] for shift, v in ((0, 2), (40, visible))]
    rows = [{"id": n, "image_id": 1, "category_id": 1, "bbox": [10 + 40 * n, 10, 17, 17], "area": 9999} for n in (0, 1)]
    truth = {"images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 100}]}
    truth["categories"] = [{"id": 1, "name": "cat"}]
    truth["annotations"] = [{**rows[0], "keypoints": points[0]}, {**rows[1], "keypoints": points[1], **stated}]
    found = [{"image_id": 1, "category_id": 1, "keypoints": points[0], "score": 0.9}]
    assert score(truth, found, answers=AnswerSettings(geometry="keypoints")).shapes["AR"] == recall


def test_object_that_is_found_only_among_those_of_its_size_is_missed():
    """Both overlap the one answer, which is that of the nearer; the other is alone in its range of areas."""
    truth = {"images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 100}]}
    truth["categories"] = [{"id": 1, "name": "cat"}]
    rows = [{"bbox": [10, 10, 40, side], "area": area} for side, area in ((40, 500), (44, 5000), (46, 20000))]
    truth["annotations"] = [{**row, "id": n, "image_id": 1, "category_id": 1} for n, row in enumerate(rows, 1)]
    found = [{"image_id": 1, "category_id": 1, "score": 0.9, "segmentation": [[10, 10, 50, 10, 50, 50, 10, 50]]}]
    assert score(truth, found, answers=POLYGONS).shapes["mean"] == pytest.approx(1 / 3)
