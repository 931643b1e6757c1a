"""Boxes over an image: which are hits, and the colours of their labels."""

import re

import pytest
from coco_builder import coco

from coord_eval import ReportSettings, score
from coord_eval.report.overlay import label_colours, overlay, slots_of
from coord_eval.report.photograph import size_notes

TRUTH = coco((1, 1, [10, 10, 20, 20]), (2, 2, [10, 10, 20, 20]), names=("cat", "dog"), images=(1, 2))


def evaluated(*boxes, truth=TRUTH):
    rows = [{"image_id": 1, "category_id": k, "bbox": box, "score": 0.5} for k, box in boxes]
    return score(truth, rows, report=ReportSettings(diagnose=False))


@pytest.mark.parametrize(
    ("box", "fates"), [([10, 10, 20, 10], ["truth", "hit"]), ([10, 10, 20, 9.99], ["missed", "false"])]
)
def test_box_of_an_iou_of_a_half_is_a_hit(box, fates):
    svg, _ = overlay(evaluated((1, box)), 0)
    assert sorted(re.findall('<rect [^>]*class="(hit|false|truth|missed) ', svg)) == sorted(fates)


def test_labels_have_the_same_colours_in_several_evaluations_that_name_known_ones_alone():
    first, second = (
        evaluated((1, [10, 10, 20, 10]), (77, [1, 1, 9, 9])),
        evaluated((2, [1, 1, 9, 9]), (78, [1, 1, 9, 9])),
    )
    assert "category_id 77" in label_colours(first) and "cat" in label_colours(first)
    both = label_colours(first, second)
    assert "dog" in both and "category_id" not in both
    assert slots_of(first)[:2] == slots_of(second)[:2]
    many = [f"l{n}" for n in range(40)]
    often = coco(*((1, 40, [1, 1, 9, 9]) for _ in range(3)), (1, 1, [1, 1, 9, 9]), names=many)
    alone = coco((1, 1, [1, 1, 9, 9]), names=["l39"])
    assert slots_of(evaluated(truth=often))[39] == slots_of(evaluated(truth=alone))[0]  # the frequent one chooses first


@pytest.mark.slow
def test_sizes_of_images_are_compared_in_both_sides_of_evenly_spread_files(tmp_path):
    image = pytest.importorskip("PIL.Image")
    names = [f"{n}.png" for n in range(201)]
    for name in names[:4]:
        image.new("L", (8, 6)).save(tmp_path / name)
    assert size_notes(tmp_path, names[:4], [(8, 6)] * 4) == []
    for wrong in ((8, 7), (9, 6), (6, 8)):
        for place in range(4):
            sizes = [wrong if n == place else (8, 6) for n in range(201)]
            told = f"1 image file has another size than the ground truth states: {place}.png is 8 x 6, stated are"
            (note,) = size_notes(tmp_path, names[:200], sizes[:200])
            assert note.startswith(told)
            assert len(size_notes(tmp_path, names, sizes)) == (place % 2 == 0)  # 200 of them are looked at
