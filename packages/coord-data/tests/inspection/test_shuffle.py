"""Boxes of other images are found however far away these stand in the file, where there is something to see."""

from dataclasses import replace

import numpy as np
import pytest
from planted import examine, shapes, told_of_boxes

from coord_data.sources import raw_boxes


def codes(draft):
    """Codes of what is told of the boxes of a draft."""
    return set(told_of_boxes(draft)[0])


def rolled(draft, rows):
    """Give each image the boxes that stand so many rows further down."""
    return replace(draft, owners=tuple((np.arange(len(draft.corners)) + rows) % len(draft.corners)))


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 25])
def test_boxes_of_a_neighbouring_row_are_named_in_a_set_of_many_images(rows):
    assert codes(rolled(replace(shapes(100), coco=True), rows)) == ({"shuffled"} if rows else set())


@pytest.mark.slow
def test_sample_of_a_large_set_holds_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_boxes, "SAMPLE", 60)
    source = rolled(shapes(120), 1).write(tmp_path)
    found = examine(source, max_objects=30)
    assert [f.code for f in found.findings if f.severity == "error"] == ["shuffled"]
    assert sum(file.small is not None for file in found.files) <= 60


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize(("images", "box"), [(56, (0, 0, 1, 1)), (58, (0, 0, 0.9, 0.9))])
def test_boxes_that_are_the_same_everywhere_are_not_shuffled(box, images):
    """Their fits differ by rounding alone, and so does chance."""
    draft = shapes(70).subset(range(images))
    same = replace(draft, corners=(np.array([box], float),) * images, labels=(("x",),) * images)
    assert codes(same) <= {"no_evidence"}
