"""The ceiling: that of names without asking the parser for families of ours, that of boxes beside scored texts."""

import random

import pytest
from coco_builder import coco
from hypothesis import example, given
from hypothesis import strategies as st

from coord_codec import MARKERS, BoxTable, CoordGrid, Instance, Object, encode_target
from coord_eval import AnswerSettings, GroundTruth, load_ground_truth, oracle_predictions, parse_answer, score
from coord_eval.intake.joining import LabelMatcher
from coord_eval.metrics.ceiling import _categories_read, ceiling_scores, no_ceiling
from coord_eval.settings import CeilingSettings


def truth_of(names):
    table = BoxTable.of([], [], [], image_ids=(), labels=names)
    return GroundTruth.of(table, range(len(names)), sizes_known=True)


def as_parsed(name, markers):
    record = Instance(image="a.jpg", objects=[Object(desc=name, bbox=(0.1, 0.2, 0.5, 0.6))])
    found = parse_answer(encode_target(record, markers=markers, grid=CoordGrid()), markers, grid=CoordGrid())
    return found.objects[0].desc if len(found) == 1 else None


LABELS = st.text(min_size=1).filter(lambda text: not no_ceiling(truth_of([text])))


@given(st.lists(LABELS, min_size=1, unique=True), st.sampled_from(sorted(MARKERS)))
@example([" a", "a"], "obj")
@example(["[THINK]", "a<think>b", "cat"], "obj")
def test_labels_count_as_the_parser_reads_them(names, markers):
    labels = [as_parsed(name, markers) for name in names]
    read = [-1 if label is None else LabelMatcher(names).match(label)[0] for label in labels]
    read = [-1 if category is None else category for category in read]
    assert _categories_read(truth_of(names), CeilingSettings(markers), CoordGrid()).tolist() == read


def crowded_images():
    """Images of 0 to 6 objects of all sizes, some beyond the border or too thin for a coarse grid, and crowd regions.

    Each object is a copy of the file's order: neither by place, nor by size, nor by image.
    """
    draw = random.Random(3)
    objects = [
        (
            draw.randrange(8),
            draw.randint(1, 3),
            [draw.randrange(-20, 500), draw.randrange(-20, 350), draw.choice([6, 40, 120]), draw.choice([9, 50, 130])],
        )
        for _ in range(32)
    ]
    truth = coco(*objects, (1, 1, [600, 20, 30, 30]), names=("cat", "dog", "cow"), images=range(9), size=(520, 400))
    for row in truth["annotations"][::7]:
        row["iscrowd"] = 1
    return truth


@pytest.mark.parametrize("bins", [1000, 40])
@pytest.mark.parametrize(
    ("order", "most"),
    [("top_left", None), *((order, most) for order in ("top_left", "size", "given", "random") for most in (1, 3))],
)
def test_ceiling_is_what_the_written_and_parsed_truth_scores(order, most, bins):
    truth, grid = crowded_images(), CoordGrid(bins, bins)
    records = oracle_predictions(truth, order=order, max_objects=most, grid=grid)
    written = score(truth, records, "pycocotools", "constant", answers=AnswerSettings(format="obj", grid=grid))
    found = ceiling_scores(load_ground_truth(truth), CeilingSettings("obj", most, order), grid)
    assert found == pytest.approx(written.coco, abs=1e-12) and 0 < found["AP"] <= 1
    # What stands in the texts, written out: the first or largest objects that are no crowd and lie in the image.
    for record in records:
        own = [
            (x, y, min(x + w, 520) - max(x, 0), min(y + h, 400) - max(y, 0), row["category_id"])
            for row in truth["annotations"]
            for x, y, w, h in [row["bbox"]]
            if row["image_id"] == record["image_id"] and not row.get("iscrowd")
            if -w < x < 520 and -h < y < 400
        ]
        keys = {"top_left": lambda o: (max(o[1], 0), max(o[0], 0)), "size": lambda o: -o[2] * o[3]}
        own = sorted(own, key=keys[order]) if order in keys else own
        if order != "random":
            labels = [("cat", "dog", "cow")[o[4] - 1] for o in own[:most]]
            assert [part.split("<")[0] for part in record["text"].split("<obj_start>")[1:]] == labels


@pytest.mark.parametrize(
    ("names", "together", "ap"),
    [
        (("[THINK]", "cat", "dog"), False, 2 / 3),
        (("cat", "dog", "[THINK]"), False, 2 / 3),
        (("cat", "[THINK]", "dog"), True, (1 + 26 / 101) / 3),  # what follows the mark is a thought
        (("cat", "[/THINK]", "dog"), True, (1 + 26 / 101) / 3),  # and what stands before this one
        (("<think>", "cat", "dog"), True, (2 * 26 / 101) / 3),
    ],
)
def test_objects_that_are_not_read_are_missing_and_no_others(names, together, ap):
    truth = coco(
        *((n // 3 if together else n, 1 + n % 3, [20 + 9 * n, 30 + n, 40, 90]) for n in range(9)),
        *((9, 1 + n, [20 + 9 * n, 30 + n, 40, 90]) for n in range(3) if "THINK" not in names[n].upper()),
        names=names,
        images=range(10),
        size=(520, 400),
    )
    written = score(truth, oracle_predictions(truth), "pycocotools", "constant", answers=AnswerSettings(format="obj"))
    found = ceiling_scores(load_ground_truth(truth), CeilingSettings(), CoordGrid())
    assert found == pytest.approx(written.coco, abs=1e-12) and found["AP"] == pytest.approx(ap)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda truth: truth["images"][3].update(width=None), "some images state no size"),
        (lambda truth: truth["categories"][1].update(name="cat"), "two categories share a name"),
        (lambda truth: truth["categories"][1].update(name="<obj_end>"), "the name of a category cannot be written"),
        (lambda truth: None, ""),
    ],
)
def test_why_there_is_no_ceiling(change, why):
    document = crowded_images()
    change(document)
    truth = load_ground_truth(document)
    assert no_ceiling(truth).startswith(f"no ceiling: {why}" if why else "") and bool(no_ceiling(truth)) == bool(why)
    assert (ceiling_scores(truth, CeilingSettings(), CoordGrid()) == {}) == bool(why)
