"""Boxes of other images are found however far away these stand in the file, where there is something to see."""

from dataclasses import replace

import numpy as np
import pytest
from planted import examine, shapes, told_of_boxes

from coord_data.inspection.numbers.edges import EdgeMaps, Sample
from coord_data.inspection.numbers.shuffle import Placement, find_pairs
from coord_data.sources import raw_boxes
from coord_data.sources.raw_boxes import IN_A_ROW


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


def best_pairs(boxes_N4, image_N, maps, owners):
    """Mean standardised fit of the pairs of different images that are each other's best match, and these pairs."""
    count = len(owners)
    means, boxes_of = np.full((count, count), 0.5), np.zeros((count, count))
    for i, owner in enumerate(owners):
        fits = [maps.along(np.tile(box.clip(0, 1), (count, 1)), owners) for box in boxes_N4[image_N == owner]]
        for j in range(count):
            values = [fit[j] for fit in fits if np.isfinite(fit[j])]
            boxes_of[i, j] = max(len(values), 1)
            means[i, j] = np.mean(values) if values else 0.5
    fit = (means - means.mean(axis=0)) * np.sqrt(boxes_of)
    fit -= fit.mean(axis=1, keepdims=True)
    fit /= fit.std()
    np.fill_diagonal(fit, -np.inf)
    pairs = [(i, int(fit[i].argmax())) for i in range(count)]
    mutual = [(i, j) for i, j in pairs if int(fit[:, j].argmax()) == i]
    return sum(fit[i, j] for i, j in mutual) / count, {int(owners[i]): int(owners[j]) for i, j in mutual}


def sample_of(draft):
    """Return the boxes of a draft with their pixels, and the declared placement."""
    raw, maps = draft.raw(), EdgeMaps.of(draft.images.values())
    return Sample(maps, np.arange(len(raw)), raw.image_N), Placement(raw.numbers_N4, False)


@pytest.mark.slow
@pytest.mark.parametrize("images", [12, IN_A_ROW + 5])
def test_pairs_are_those_of_a_comparison_of_every_image_with_the_boxes_of_every_other(images):
    sample, placed = sample_of(rolled(shapes(images + 8).subset(range(images)), 1))
    owners = np.arange(max(0, images - IN_A_ROW) // 2, images)[:IN_A_ROW]
    expected, pairs = best_pairs(placed.boxes_n4, sample.image_n, sample.maps, owners)
    moves = np.random.default_rng(0).uniform(0.1, 0.9, (20, 2))
    low, sides = placed.boxes_n4[:, :2], placed.boxes_n4[:, 2:] - placed.boxes_n4[:, :2]
    chance = []
    for move in moves if images == 12 else ():
        start = (low + move) % np.maximum(1 - sides, 1e-6)
        chance.append(best_pairs(np.hstack([start, start + sides]), sample.image_n, sample.maps, owners)[0])
    z, found = find_pairs([placed], sample, np.full((images, 2), 96))
    assert found == pairs and len(pairs) > 5
    assert not chance or z == pytest.approx((expected - np.mean(chance)) / np.std(chance))


def test_boxes_that_span_their_images_are_not_shuffled():
    """They fit any image, so that the few others decide by chance."""
    sample, placed = sample_of(rolled(shapes(24).subset(range(16)), 1))
    sizes = np.full((16, 2), 96)
    assert find_pairs([placed], sample, sizes) is not None
    spanning = placed.boxes_n4.copy()
    spanning[sample.image_n >= 9] = (0, 0, 1, 0.995)
    assert find_pairs([Placement(spanning, False)], sample, sizes) is None
