"""Columns of boxes: their pixels, their order, what is taken, moved and put together."""

import numpy as np
import pytest
from coco_builder import coco

from coord_codec import CoordGrid, InputError
from coord_eval import load_ground_truth, parse_answer
from coord_eval.boxes.detections import Detections
from coord_eval.boxes.pixels import boxes_in_pixels
from coord_eval.boxes.quality import expected_iou, hit_probability
from coord_eval.boxes.sorting import places_in_images, stable_order
from coord_eval.shapes.scores import score_shapes

PIXELS = {"scale": "pixels", "image_size": (200, 100)}


@pytest.mark.parametrize(
    ("text", "options", "box"),
    [
        ('{"bbox": [10.1, 20.2, 50.3, 60.4]}', PIXELS, [10.1, 20.2, 40.2, 40.2]),
        ('{"box_2d": [20.2, 10.1, 60.4, 50.3]}', PIXELS, [10.1, 20.2, 40.2, 40.2]),
        ('{"box_2d": [200, 100, 600, 500]}', {}, [20, 20, 80, 40]),
        ('{"bbox_xywh": [10.1, 20.2, 40.2, 40.3]}', PIXELS, [10.1, 20.2, 40.2, 40.3]),
        ('{"bbox_xywh": [-1, 20, 40.2, 40.3]}', PIXELS, [0, 20, 39.2, 40.3]),
        ('{"bbox_xywh": [10, -0.5, 40.2, 40.3]}', PIXELS, [10, 0, 40.2, 39.8]),
        ('{"bbox_xywh": [170, 20, 31, 40]}', PIXELS, [170, 20, 30, 40]),
        ('{"bbox_xywh": [170, 20, 30, 80]}', PIXELS, [170, 20, 30, 80]),
        ('{"bbox_cxcywh": [100, 50, 40.2, 40.4]}', PIXELS, [79.9, 29.8, 40.2, 40.4]),
        ('{"bbox": [50, 60, 10, 20]}', PIXELS, [10, 20, 40, 40]),
        ('{"bbox": ["5%", "20%", "25%", "60%"]}', PIXELS, [10, 20, 40, 40]),
        ('{"bbox": [<|coord_50|>, <|coord_200|>, <|coord_250|>, <|coord_600|>]}', PIXELS, [10, 20, 40, 40]),
        ('{"bbox": [<|coord_50|>, <|coord_200|>, <|coord_250|>, <|coord_600|>]}', {"grid": CoordGrid(scale=2000)},
         [5, 10, 20, 20]),
        ('{"polygon": [[10, 20], [50, 20], [50, 60]]}', PIXELS, [10, 20, 40, 40]),
    ],
)  # fmt: skip
def test_box_in_pixels_is_as_written_and_within_its_image(text, options, box):
    (found,) = boxes_in_pixels(parse_answer(text, **options).objects, np.array([[200.0, 100.0]])).tolist()
    assert found == box if "polygon" not in text else found == pytest.approx(box)


def truth_of(**more):
    return load_ground_truth(coco((1, 1, [1, 2, 3, 4]), (2, 1, [1, 2, 3, 4]), images=(1, 2), size=(100, 80)) | more)


def found_in(truth, images, unknown=(), stated=True):
    count = len(images)
    boxes_D4 = np.tile([1.0, 2.0, 3.0, 4.0], (count, 1))
    found = Detections.of(
        truth, images, [0] * (count - 1) + [len(unknown)], boxes_D4, np.ones(count), range(count), unknown
    )
    column_D = np.full(count, None)
    column_D[0] = {"keypoints": [1, 2, 2]}
    return Detections(
        found.table, found.known, dict.fromkeys(images, (None,)), np.arange(count), column_D if stated else None
    )


def test_detections_keep_all_columns_where_they_are_taken_moved_and_put_together():
    truth = truth_of()
    one, two = found_in(truth, [0, 0], ["cow"]), found_in(truth, [1, 1], ["cow"], stated=False)
    both = Detections.concatenate([one, two])
    assert (both.asked, both.part_D.tolist()) == ({0: (None,), 1: (None,)}, [0, 1, 0, 1])
    assert [shape is not None for shape in both.stated_D] == [True, False, False, False]
    assert (both.unknown, both.category_D.tolist()) == (("cow",), [0, 1, 0, 1])
    part = both.take(np.array([3, 0]))
    assert (part.part_D.tolist(), part.stated_D[1], len(part)) == ([1, 0], {"keypoints": [1, 2, 2]}, 2)
    moved = both.moved(np.array([[0.0, 0, 5, 6]] * 4))
    assert (moved.boxes_D4[0].tolist(), moved.table.area_N[0], moved.stated_D, moved.shapes) == (
        [0, 0, 5, 6],
        30,
        None,
        (),
    )


def test_objects_that_are_taken_have_no_shapes_and_sizes_are_whole():
    rows = [{**row, "segmentation": [[1, 2, 4, 2, 4, 6]]} for row in coco((1, 1, [1, 2, 3, 4]))["annotations"]]
    truth = load_ground_truth(coco() | {"annotations": rows}, as_stated=True)
    assert truth.stated_N is not None and truth.take(np.array([0])).stated_N is None
    for missing in ("width", "height"):
        image = {"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}
        del image[missing]
        with pytest.raises(InputError, match=r"images\[id=1\]: width and height are missing"):
            truth_of(images=[image, {**image, "id": 2}]).size_of(0)
    order = [{"id": n, "file_name": f"{n}.jpg", "width": 9, "height": 9} for n in (2, 1)]
    assert (truth_of(images=order).ids_in_order, truth_of().ids_in_order) == ([2, 1], [1, 2])


@pytest.mark.parametrize("seed", range(4))
def test_stable_order_is_that_of_lexsort_whatever_the_numbers(seed):
    draw = np.random.default_rng(seed)
    floats = draw.choice([-0.0, 0.0, 1e-300, -1e300, 0.5, -0.5, np.inf, -np.inf], 200)
    wide = draw.choice([-(2**62), 2**62, -1, 0, 70_000, 2**16], 200)
    for keys in ((floats,), (wide,), (floats > 0, floats), (wide, floats), (draw.integers(0, 3, 200), wide)):
        assert stable_order(*keys).tolist() == np.lexsort(keys[::-1]).tolist()
    image_N = draw.integers(0, 5, 50)
    assert places_in_images(image_N).tolist() == [int((image_N[:n] == i).sum()) for n, i in enumerate(image_N)]


@pytest.mark.parametrize("axis", [0, 1])
def test_quality_of_a_box_is_that_of_samples_on_each_side(axis):
    draw = np.random.default_rng(0)
    order = [0, 1, 2, 3] if axis == 0 else [1, 0, 3, 2]
    for rows in (
        ([0.2, 0.3, 0.6, 0.7], [0.25, 0.3, 0.6, 0.75], [0.1, 0.05, 0.02, 0.1]),
        ([0.0, 0.5, 0.3, 0.6], [0.05, 0.5, 0.9, 0.6], [0.1, 0.02, 0.3, 0.04]),
        ([0.5, 0.5, 0.6, 0.6], [0.5, 0.75, 0.6, 0.9], [0.02, 0.03, 0.02, 0.03]),
    ):
        box, mean, spread = np.array(rows)[:, order]
        sides = np.clip(draw.normal(mean, spread, (40_000, 4)), 0, 1)
        low, high = np.minimum(sides[:, :2], sides[:, 2:]), np.maximum(sides[:, :2], sides[:, 2:])
        inner = np.maximum(np.minimum(high, box[2:]) - np.maximum(low, box[:2]), 0).prod(axis=1)
        iou = inner / ((high - low).prod(axis=1) + (box[2:] - box[:2]).prod() - inner)
        assert expected_iou([box], [mean], [spread])[0] == pytest.approx(iou.mean(), abs=0.01)
        assert hit_probability([box], [mean], [spread])[0] == pytest.approx((iou > 0.5).mean(), abs=0.04)


def test_shapes_of_unknown_labels_are_no_answers():
    triangle = {"type": "polygon", "coordinates": [0.1, 0.1, 0.5, 0.1, 0.5, 0.5]}
    record = {"image": "a.jpg", "image_id": 1, "width": 100, "height": 100}
    truth = load_ground_truth([record | {"objects": [{"desc": "cat", "geometry": triangle}]}], geometry="polygon")
    points = [[(10.0, 10.0), (50.0, 10.0), (50.0, 50.0)]] * 2
    boxes_D4 = np.tile([10.0, 10, 40, 40], (2, 1))
    found = Detections.of(truth, [0, 0], [1, 0], boxes_D4, [0.9, 0.5], [0, 1], ["cow"], points)
    scores, pairs = score_shapes(truth, found, "polygon", CoordGrid())
    assert (scores["AP"], scores["mean"], pairs.similarity_D.tolist()) == (1, 1, [0, 1])
