"""Scores of shapes from answers: the ceiling is reached by the written truth, and pycocotools gives the same."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from coord_codec import CoordGrid, Instance, Object, encode_target, geometry_of
from coord_codec.geometry.polygon import PolygonGeometry
from coord_eval import AnswerSettings, score

SIDE = 64


def instances(geometry, seed=0, images=12, shift=0.0):
    """Images of up to four shapes of two labels, moved by up to `shift`; the same ones for a seed."""
    rng, noise = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    found = []
    for number in range(images):
        objects = []
        for _ in range(rng.integers(1, 5)):
            centre, radius = rng.uniform(0.3, 0.7, 2), rng.uniform(0.08, 0.2)
            angles = (
                np.sort(rng.uniform(0, 2 * np.pi, 7))
                if geometry == "polygon"
                else rng.uniform(0, 0.7) + np.arange(4) * np.pi / 2
            )
            ring = centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) + noise.normal(0, 1, 2) * shift
            points = {"point": centre[None] + noise.normal(0, 1, 2) * shift}.get(geometry, ring)
            shape = {"type": geometry, "coordinates": np.clip(points, 0, 1).flatten().tolist()}
            if geometry == "keypoints":
                shape |= {"names": list("abcd"), "visibility": [2, 1, 2, 0]}
            objects.append({"desc": ("cat", "dog")[rng.integers(2)], "geometry": shape})
        found.append(Instance(image=f"{number}.png", image_id=number, width=SIDE, height=SIDE, objects=objects))
    return found


def answers_of(given, geometry):
    return [
        {"image_id": i.image_id, "text": encode_target(i, markers="obj", geometry=geometry), "finish_reason": "stop"}
        for i in given
    ]


@pytest.mark.parametrize("geometry", ["point", "polygon", "oriented", "keypoints"])
def test_written_truth_reaches_the_ceiling(geometry):
    given = instances(geometry)
    shapes = score(given, answers_of(given, geometry), answers=AnswerSettings(geometry=geometry)).shapes
    ceiling = shapes["ceiling"]
    assert shapes["AP"] == pytest.approx(ceiling["AP"])
    assert shapes["mean"] == pytest.approx(ceiling["mean"])
    assert shapes["AP"] > 0.9 and shapes["without_shape"] == 0


@pytest.mark.parametrize("geometry", ["point", "polygon", "oriented", "keypoints"])
def test_moved_shapes_score_less(geometry):
    given = instances(geometry)
    near, far = (
        score(
            given, answers_of(instances(geometry, shift=shift), geometry), answers=AnswerSettings(geometry=geometry)
        ).shapes
        for shift in (0.01, 0.05)
    )
    assert far["AP"] < near["AP"] < 1
    assert far["mean"] < near["mean"]
    assert near["ceiling"] == far["ceiling"]


def test_polygon_scores_are_those_of_pycocotools_on_a_larger_image():
    given, moved = instances("polygon"), instances("polygon", shift=0.02)
    ours = score(
        given, answers_of(moved, "polygon"), answers=AnswerSettings(geometry="polygon"), score_source="constant"
    ).shapes
    names, zoom = ["cat", "dog"], 8 * SIDE
    truth, found = COCO(), COCO()
    rows = {"truth": [], "found": []}
    kind = geometry_of("polygon")
    for key, images in (("truth", given), ("found", moved)):
        for image in images:
            for target in (
                sorted(image.targets, key=lambda o: (o.bbox[1], o.bbox[0])) if key == "found" else image.targets
            ):
                coordinates = target.geometry.coordinates
                if key == "found":
                    bins = kind.to_bins(coordinates, CoordGrid())
                    coordinates = [k / 1000 for k in bins]
                place = {"id": len(rows[key]) + 1, "image_id": image.image_id + 1, "bbox": [0, 0, 1, 1], "area": 1}
                shape = {"segmentation": [[c * zoom for c in coordinates]], "iscrowd": 0, "score": 1.0}
                rows[key].append({**place, **shape, "category_id": names.index(target.desc) + 1})
    with contextlib.redirect_stdout(io.StringIO()):
        for coco, key in ((truth, "truth"), (found, "found")):
            coco.dataset = {
                "images": [{"id": i.image_id + 1, "width": zoom, "height": zoom} for i in given],
                "categories": [{"id": 1}, {"id": 2}],
                "annotations": rows[key],
            }
            coco.createIndex()
        evaluator = COCOeval(truth, found, "segm")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    assert ours["AP"] == pytest.approx(evaluator.stats[0], abs=1e-9)
    assert ours["AP50"] == pytest.approx(evaluator.stats[1], abs=1e-9)


def test_simplified_outlines_lower_the_ceiling_and_are_counted():
    given = instances("polygon")
    ceilings = [
        score(given, [], answers=AnswerSettings(geometry=PolygonGeometry(max_vertices=most))).shapes["ceiling"]
        for most in (3, 5, 32)
    ]
    assert [c["simplified"] for c in ceilings] == [sum(len(i.targets) for i in given)] * 2 + [0]
    assert ceilings[0]["mean"] < ceilings[1]["mean"] < ceilings[2]["mean"] < 1


def test_boxes_have_no_shape_scores():
    given = instances("polygon")
    evaluation = score(given, answers_of(given, "box"))
    assert evaluation.shapes == {} and "shapes" not in evaluation.to_dict()


@pytest.mark.parametrize("geometry", ["point", "polygon", "oriented"])
def test_report_colours_shapes_by_their_own_measure(geometry, tmp_path):
    """Half of the answers lie right, half far from any object, though boxes of points never overlap."""
    right = instances(geometry, images=6)
    corners = [0.02, 0.02] if geometry == "point" else [0, 0, 0.05, 0, 0.05, 0.05, 0, 0.05]
    far = Object(desc="cat", geometry={"type": geometry, "coordinates": corners})
    wrong = [i.model_copy(update={"objects": (far,)}) for i in right[3:]]
    answers = answers_of([*right[:3], *wrong], geometry)
    evaluation = score(right, answers, answers=AnswerSettings(geometry=geometry))
    found = sum(len(i.targets) for i in right[:3])
    hits = evaluation.shape_pairs.similarity_D > 0
    assert hits.sum() == found and len(hits) == found + 3
    assert (evaluation.shape_pairs.similarity_N > 0).sum() == found
    page = evaluation.write_report(tmp_path).read_text()
    assert page.count(' class="hit c') == found and page.count(", similarity 0.00,") == 3
    assert page.count(", missed</title>") == sum(len(i.targets) for i in right[3:])
    assert page.count(": F1 1.00</figcaption>") == page.count(": F1 0.00</figcaption>") == 3
    assert ("Average precision and recall (COCO)" in page) == (geometry != "point")


def test_report_draws_the_shapes(tmp_path):
    given = instances("polygon", images=2)
    evaluation = score(given, answers_of(given, "polygon"), answers=AnswerSettings(geometry="polygon"))
    page = evaluation.write_report(tmp_path).read_text()
    assert page.count("<polygon") == 2 * sum(len(i.targets) for i in given)
    assert "AP of shapes" in page
