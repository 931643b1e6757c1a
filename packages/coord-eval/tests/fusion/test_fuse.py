"""Fusion against references written naively here, a published answer, and exact cases of tiles."""

import random
from itertools import pairwise

import pytest
from coco_builder import iou

from coord_eval import InputError, ScoredObject, fuse


def naive_wbf(views, weights, threshold):
    """Algorithm 1 of Solovyev et al., with the rescaling of the published package."""
    fused = []
    for label in sorted({o["desc"] for view in views for o in view}):
        boxes = [
            (o["score"] * w, o["bbox"])
            for view, w in zip(views, weights, strict=True)
            for o in view
            if o["desc"] == label
        ]
        clusters = []
        for score, box in sorted(boxes, key=lambda item: -item[0]):
            means = [[sum(s * b[i] for s, b in c) / sum(s for s, _ in c) for i in range(4)] for c in clusters]
            best = max(range(len(clusters)), key=lambda k: iou(means[k], box), default=None)
            if best is not None and iou(means[best], box) > threshold:
                clusters[best].append((score, box))
            else:
                clusters.append([(score, box)])
        for c in clusters:
            total = sum(s for s, _ in c)
            mean = [sum(s * b[i] for s, b in c) / total for i in range(4)]
            fused.append((label, total / len(c) * min(len(c), len(views)) / sum(weights), *mean))
    return sorted(fused)


def random_views(seed, labels="ab"):
    draw = random.Random(seed)
    centres = [(draw.uniform(0, 0.6), draw.uniform(0, 0.6), draw.choice(labels)) for _ in range(5)]

    def box():
        x, y, label = draw.choice(centres)
        x, y = x + draw.gauss(0, 0.03), y + draw.gauss(0, 0.03)
        sides = draw.uniform(0.1, 0.3), draw.uniform(0.2, 0.3)
        return {"desc": label, "bbox": [x, y, x + sides[0], y + sides[1]], "score": draw.uniform(0.05, 1)}

    return [[box() for _ in range(draw.randint(0, 9))] for _ in range(draw.randint(1, 4))]


def rows(fusion):
    return sorted((o.desc, o.score, *o.box) for o in fusion.objects)


@pytest.mark.parametrize("seed", range(12))
def test_wbf_equals_the_naive_reference(seed):
    views, threshold = random_views(seed), (0.55, 0.4, 0.7)[seed % 3]
    weights = [1 + (seed + v) % 3 for v in range(len(views))] if seed % 2 else None
    fusion = fuse(views, iou=threshold, weights=weights)
    expected = naive_wbf(views, weights or [1] * len(views), threshold)
    assert [row[0] for row in rows(fusion)] == [row[0] for row in expected]
    for found, row in zip(rows(fusion), expected, strict=True):
        assert found[1:] == pytest.approx(row[1:], abs=1e-9)
    places = [place for members in fusion.members for place in members]
    assert sorted(places) == [(v, i) for v, view in enumerate(views) for i in range(len(view))]
    for row, view in zip(fusion.counts["views"], views, strict=True):
        assert row["boxes"] == len(view) == row["merged"] + row["duplicate"] + row["alone"]


def test_wbf_gives_no_score_above_one():
    box = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5], "score": 0.9}
    fused = fuse([[box, box], [box]], weights=[5, 1])
    assert [item.score for item in fused.objects] == [1.0]


def test_wbf_equals_the_published_package():
    # ensemble-boxes 1.0.9, with weights=[2, 1, 1] and iou_thr=0.5; it accumulates in single precision.
    views = [
        "0 .101 .458 .466 .669 .664; 0 .553 .515 .489 .703 .697; 0 .493 .448 .483 .665 .65; "
        "1 .283 .222 .015 .417 .195; 0 .392 .473 .47 .67 .645",
        "0 .767 .037 .208 .232 .403; 1 .707 .333 .186 .552 .362; 1 .716 .205 .033 .42 .211; "
        "0 .517 .461 .485 .654 .669; 1 .3 .31 .132 .539 .343",
        "1 .386 .313 .171 .489 .345; 0 .462 .045 .223 .264 .416; 0 .101 .029 .235 .21 .412; "
        "0 .478 .485 .467 .693 .646; 0 .668 .501 .459 .675 .671",
    ]
    published = [
        ("0", 0.2765, 0.515, 0.489, 0.703, 0.697),
        ("0", 0.3325, 0.03917, 0.21526, 0.24145, 0.4082),
        ("0", 0.45438, 0.4704, 0.47302, 0.67026, 0.65574),
        ("1", 0.3205, 0.21251, 0.02505, 0.41868, 0.20394),
        ("1", 0.34825, 0.3225, 0.17021, 0.53174, 0.3532),
    ]

    def objects(text):
        for row in text.split("; "):
            label, score, *box = row.split()
            yield {"desc": label, "score": float(score), "bbox": list(map(float, box))}

    fusion = fuse([list(objects(text)) for text in views], iou=0.5, weights=[2, 1, 1])
    for found, row in zip(rows(fusion), published, strict=True):
        assert found[0] == row[0]
        assert found[1:] == pytest.approx(row[1:], abs=1e-5)


def test_nms_keeps_the_best_of_overlapping_boxes_of_a_label():
    objects = [o for view in random_views(3) for o in view]
    left, expected = sorted(objects, key=lambda o: -o["score"]), []
    for o in left:
        if not any(k["desc"] == o["desc"] and iou(k["bbox"], o["bbox"]) > 0.4 for k in expected):
            expected.append(o)
    fusion = fuse([objects], method="nms", iou=0.4)
    assert rows(fusion) == sorted((o["desc"], o["score"], *o["bbox"]) for o in expected)
    assert fusion.counts["views"][0]["duplicate"] == len(objects) - len(expected)


LEFT, RIGHT, WHOLE = (0, 0, 0.6, 1), (0.4, 0, 1, 1), None
THIRDS = [(0, 0, 1 / 3, 1), (1 / 3, 0, 2 / 3, 1), (2 / 3, 0, 1, 1)]
QUARTERS = [(0, 0, 0.5, 0.5), (0.5, 0, 1, 0.5), (0, 0.5, 0.5, 1), (0.5, 0.5, 1, 1)]


@pytest.mark.parametrize("method", ["wbf", "nms"])
@pytest.mark.parametrize(
    ("regions", "boxes", "expected"),
    [
        pytest.param([LEFT, RIGHT], [(0.3, 0.2, 0.6, 0.5), (0.4, 0.2, 0.7, 0.5)], [(0.3, 0.2, 0.7, 0.5)], id="overlap"),
        pytest.param(
            [LEFT, RIGHT, WHOLE],
            [(0.3, 0.2, 0.6, 0.5), (0.4, 0.2, 0.7, 0.5), (0.3, 0.2, 0.7, 0.5)],
            [(0.3, 0.2, 0.7, 0.5)],
            id="beside the whole image",
        ),
        pytest.param(
            [LEFT, RIGHT], [(0.5, 0.2, 0.6, 0.5), (0.5, 0.2, 0.7, 0.5)], [(0.5, 0.2, 0.7, 0.5)], id="whole in one tile"
        ),
        pytest.param(
            THIRDS,
            [(0.1, 0.2, 1 / 3, 0.5), (1 / 3, 0.2, 2 / 3, 0.5), (2 / 3, 0.2, 0.9, 0.5)],
            [(0.1, 0.2, 0.9, 0.5)],
            id="over three adjoining tiles",
        ),
        pytest.param(
            QUARTERS,
            [(0.3, 0.4, 0.5, 0.5), (0.5, 0.4, 0.8, 0.5), (0.3, 0.5, 0.5, 0.9), (0.5, 0.5, 0.8, 0.9)],
            [(0.3, 0.4, 0.8, 0.9)],
            id="over a corner",
        ),
        pytest.param(
            [THIRDS[0], THIRDS[2]],
            [(0.1, 0.2, 1 / 3, 0.5), (2 / 3, 0.2, 0.9, 0.5)],
            [(0.1, 0.2, 1 / 3, 0.5), (2 / 3, 0.2, 0.9, 0.5)],
            id="tiles apart",
        ),
        pytest.param(
            [LEFT, RIGHT],
            [(0.3, 0.2, 0.6, 0.5), (0.4, 0.6, 0.7, 0.9)],
            [(0.3, 0.2, 0.6, 0.5), (0.4, 0.6, 0.7, 0.9)],
            id="other heights",
        ),
        pytest.param(
            [LEFT, RIGHT],
            [(0.3, 0.2, 0.595, 0.5), (0.7, 0.2, 0.9, 0.5)],
            [(0.3, 0.2, 0.595, 0.5), (0.7, 0.2, 0.9, 0.5)],
            id="cut in one tile, another object in the other",
        ),
        pytest.param([LEFT, RIGHT], [(0, 0.2, 0.3, 1)], [(0, 0.2, 0.3, 1)], id="at the border of the image"),
    ],
)
def test_boxes_cut_by_the_edge_of_a_tile_are_joined(method, regions, boxes, expected):
    for scores in ([0.9, 0.5, 0.7, 0.6], [0.5, 0.6, 0.9, 0.7]):
        views = [[{"desc": "cat", "bbox": b, "score": s}] for b, s in zip(boxes, scores, strict=False)]
        views += [[]] * (len(regions) - len(views))
        fusion = fuse(views, method=method, regions=regions)
        assert sorted(o.box for o in fusion.objects) == [pytest.approx(box) for box in expected]
        in_pixels = [[{**o, "bbox": [v * 200 for v in o["bbox"]]} for o in view] for view in views]
        places = [region and [v * 200 for v in region] for region in regions]
        scaled = fuse(in_pixels, method=method, regions=places, frame=(200, 200))
        assert scaled.members == fusion.members


def test_score_of_an_object_is_shared_by_the_views_that_show_it():
    small = {"desc": "cat", "bbox": [0.1, 0.1, 0.2, 0.2], "score": 0.8}
    (alone,) = fuse([[small], [], []], regions=[LEFT, RIGHT, WHOLE]).objects
    assert alone.score == pytest.approx(0.4)  # the left tile and the whole image show it, one of them found it
    (both,) = fuse([[small], [], [small]], regions=[LEFT, RIGHT, WHOLE]).objects
    assert both.score == pytest.approx(0.8)


CAT = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5], "score": 0.5}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"method": "mean"}, "method: expected one of wbf, nms"),
        ({"iou": 1.5}, "iou: expected a number from 0 to 1"),
        ({"weights": [1, 2]}, "weights"),
        ({"weights": [0]}, "weights"),
        ({"regions": [(0, 0, 0.5, 1), None]}, "regions: expected one for each of 1 views, found 2"),
        ({"regions": [(0.5, 0, 0.5, 1)]}, r"regions\[0\]: expected x1 < x2"),
        ({"views": [[{**CAT, "coordinates": [0.1, 0.1, 0.5, 0.5, 0.1, 0.5]}]]}, "expected a box, found another shape"),
        ({"views": [[{**CAT, "score": None}]]}, r"views\[0\]\[0\].score"),
        ({"views": [[{**CAT, "score": -0.1}]]}, r"views\[0\]\[0\].score: expected a number of at least 0"),
        ({"views": [[{"desc": "cat", "score": 1}]]}, r"views\[0\]\[0\].bbox_xyxy"),
        ({"frame": (0, 1)}, "frame: expected a width and a height above 0"),
        ({"regions": [(512, 0, 1024, 512)]}, r"regions\[0\]: .* lies outside the frame 1 x 1"),
        ({"views": [["cat"]]}, r"views\[0\]\[0\]: expected a ScoredObject or a record, found str"),
    ],
)
def test_fuse_names_what_is_wrong(keywords, message):
    with pytest.raises(InputError, match=message):
        fuse(**{"views": [[CAT]], **keywords})


def test_boxes_without_area_are_dropped():
    fusion = fuse([[CAT, {**CAT, "bbox": [0.1, 0.1, 0.1, 0.5]}]])
    assert [o.score for o in fusion.objects] == [0.5]
    assert fusion.counts["views"][0]["dropped"] == 1
    assert fuse([[], []]).objects == ()
    assert fuse([[{**CAT, "score": 0.0}, {**CAT, "score": 0.0}]]).objects[0].box == pytest.approx((0.1, 0.1, 0.5, 0.5))


def test_the_score_of_nms_is_shared_by_weights_alone():
    for weights, expected in ((None, 0.5), ([1, 3], 0.125), ([3, 1], 0.375)):
        (found,) = fuse([[CAT], []], method="nms", weights=weights).objects
        assert found.score == expected


@pytest.mark.parametrize(("x", "expected"), [(50, 0.4), (51, 0.8)])
def test_a_tile_that_shows_half_of_a_box_could_have_found_it(x, expected):
    views = [[], [{"desc": "cat", "bbox": [x, 20, x + 20, 50], "score": 0.8}]]
    fusion = fuse(views, regions=[(0, 0, 60, 100), (40, 0, 100, 100)], frame=(100, 100))
    assert [o.score for o in fusion.objects] == [pytest.approx(expected)]


def test_counts_of_cut_boxes_leave_out_those_without_area_and_those_that_stay_alone():
    regions, frame = [(0, 0, 60, 100), (40, 0, 100, 100)], (100, 100)

    def boxes(*found):
        return [{"desc": "cat", "bbox": box, "score": 0.8} for box in found]

    left, right = boxes([30, 20, 60, 50], [60, 20, 60, 50], [30, 60, 60, 90]), boxes([40, 20, 70, 50])
    counts = fuse([left, right], regions=regions, frame=frame).counts
    assert (counts["boxes"], counts["objects"], counts["cut"], counts["joined"]) == (4, 2, 3, 2)
    assert counts["views"] == [
        {"boxes": 3, "merged": 1, "duplicate": 0, "alone": 1, "dropped": 1},
        {"boxes": 1, "merged": 1, "duplicate": 0, "alone": 0, "dropped": 0},
    ]


@pytest.mark.parametrize(("top", "count"), [(0.5, 2), (0.49, 1)])
@pytest.mark.parametrize("method", ["wbf", "nms"])
def test_boxes_join_above_the_threshold_alone(method, top, count):
    """Of an IoU of exactly a half they are two objects; a threshold of 0 joins whatever overlaps."""
    views = [
        [{"desc": "cat", "bbox": [0, 0, 1, 1], "score": 0.5}, {"desc": "cat", "bbox": [0, 0, 1, 0.5], "score": 0.4}]
    ]
    assert len(fuse(views, method=method, iou=top).objects) == count
    views[0][1]["bbox"] = [0, 0, 1, 0.1]
    assert len(fuse(views, method=method, iou=0).objects) == 1 and len(fuse(views, method=method).objects) == 2


def test_objects_stand_by_score_and_are_those_of_their_best_member_with_all_repairs():
    def scored(desc, box, score, *repairs):
        return ScoredObject(desc, box, (1, 2, 3, 4), (5, 6), score=score, repairs=repairs)

    low, high = scored("cat", (0.0, 0.0, 0.4, 0.4), 0.3, "a", "b"), scored("cat", (0.0, 0.0, 0.4, 0.5), 0.9, "c", "a")
    dog, far = scored("dog", (0.0, 0.0, 0.4, 0.4), 0.8), scored("cat", (0.6, 0.6, 0.9, 0.9), 0.1)
    for method, score, box in (("wbf", 0.6, (0, 0, 0.4, 0.475)), ("nms", 0.9, high.box)):
        found = fuse([[far, low], [dog, high]], method=method, weights=None)
        alone = 0.5 if method == "wbf" else 1  # of two views one has found it
        expected = [("cat", score), ("dog", 0.8 * alone), ("cat", 0.1 * alone)]
        assert [(o.desc, pytest.approx(o.score)) for o in found.objects] == expected
        assert found.members == (((1, 1), (0, 1)), ((1, 0),), ((0, 0),))
        best = found.objects[0]
        assert best.box == pytest.approx(box) and best.numbers == high.numbers and best.scale is None
        # What is averaged was repaired as all of its members were; a box that is kept alone as itself.
        assert best.repairs == (("c", "a", "b") if method == "wbf" else ("c", "a"))


def test_scores_beyond_1_stay_below_the_highest_of_them_and_boxes_of_score_0_have_a_mean():
    box = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
    (found,) = fuse([[{**box, "score": 30.0}], [{**box, "score": 10.0}]]).objects
    assert found.score == pytest.approx(20)
    (found,) = fuse([[{**box, "score": 3.0}] * 2, [{**box, "score": 1.0}]], weights=[9, 1]).objects
    assert found.score == 3
    other = {**box, "bbox": [0.1, 0.1, 0.5, 0.7], "score": 0.0}
    (found,) = fuse([[{**box, "score": 0.0}], [other]]).objects
    assert (found.box, found.score) == (pytest.approx((0.1, 0.1, 0.5, 0.6)), 0)


def test_boxes_of_one_view_alone_are_duplicates_and_of_several_merged():
    cat, dog = ({"desc": desc, "bbox": [0, 0, 0.5, 0.5], "score": 0.5} for desc in ("cat", "dog"))
    counts = fuse([[cat, cat, dog], [dog, dog]]).counts["views"]
    assert counts == [
        {"boxes": 3, "merged": 1, "duplicate": 1, "alone": 1, "dropped": 0},
        {"boxes": 2, "merged": 1, "duplicate": 1, "alone": 0, "dropped": 0},
    ]


def test_an_object_over_five_tiles_in_a_row_is_one_whatever_their_scores():
    """The middle parts are cut on both sides, so that each joining makes the next one possible."""
    edges = [n / 5 for n in range(6)]
    regions = [(a, 0, b, 1) for a, b in pairwise(edges)]
    whole = (0.1, 0.2, 0.9, 0.5)
    parts = [(max(a, 0.1), 0.2, min(b, 0.9), 0.5) for a, b in pairwise(edges)]
    for scores in ((0.9, 0.1, 0.5, 0.2, 0.8), (0.1, 0.9, 0.2, 0.8, 0.3), (0.5, 0.4, 0.3, 0.2, 0.1)):
        views = [[{"desc": "cat", "bbox": box, "score": s}] for box, s in zip(parts, scores, strict=True)]
        fusion = fuse(views, regions=regions)
        assert [o.box for o in fusion.objects] == [pytest.approx(whole)]
        assert (fusion.counts["cut"], fusion.counts["joined"]) == (5, 5)


def test_records_may_name_box_and_label_in_other_words():
    boxes = ({"bbox_xyxy": [0, 0, 1, 1]}, {"bbox": [0, 0, 1, 1]}, {"box": [0, 0, 1, 1]})
    fusion = fuse([[{"desc": "cat", "label": "dog", "score": 0.5, **box}] for box in boxes])
    assert [(o.desc, o.score) for o in fusion.objects] == [("cat", 0.5)] and len(fusion.members[0]) == 3
    assert fuse([[{"label": "dog", "score": 0.5, **boxes[0]}]]).objects[0].desc == "dog"
